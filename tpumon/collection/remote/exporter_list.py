"""The exporters of `--from SOURCE[,SOURCE...]`: URLs, names of DNS that stand for many, files that list them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.collection.remote.exporter_client import GOOD_FORM, ExporterClient, Secret
from tpumon.discovery.addresses import parse_address
from tpumon.discovery.dns import DnsNames
from tpumon.discovery.finder import Discovery
from tpumon.discovery.identity import JobNames
from tpumon.discovery.target_file import TargetFile
from tpumon.errors import UsageError
from tpumon.model import Workers
from tpumon.system.exporter_ports import EXPORTER_PORT
from tpumon.system.threads import Resolve, resolve_host
from tpumon.untrusted_text import one_line

NOT_GIVEN = JobNames()
LISTS = (".json", ".yml", ".yaml")
"""Ends of the names of files that list exporters, as in Prometheus' file_sd."""

_DNS = "dns:"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}(/.*)?")
_MOST_EXPORTERS = 10_000


class Place(Struct, frozen=True, kw_only=True):
    """The place of an exporter, and what is known of its workers beside what it says.

    Attributes:
        url: `http://...` or `https://...`, with the password, if it has one.
        job, slice: of workers whose job or slice the exporter does not know.
    """

    url: str
    job: str | None = None
    slice: str | None = None


class Places(Struct, frozen=True, kw_only=True):
    """All exporters to follow from now on, not only the new ones.

    Attributes:
        places: in a stable order, each URL once.
        waiting: if there are none, one line that says where tpumon looked and what to do.
        finders: by name, whether each way in which they are found works now.
    """

    places: tuple[Place, ...] = ()
    waiting: str | None = None
    finders: Mapping[str, bool] = field(default_factory=dict)


def sources_of(text: str, auth: str | Secret | None = None) -> tuple[str, ...]:
    """Splits `--from SOURCE[,SOURCE...]`, and checks each.

    Args:
        text: what was given.
        auth: a password for all of them; None: there is none.

    Returns:
        Each source once: a URL, `dns:NAME:PORT`, or the path of a file.

    Raises:
        UsageError: one is nothing of these; the message says what would do, and shows no password.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError(f"--from: not the URL of an exporter; {GOOD_FORM}")
    try:
        return tuple(dict.fromkeys(_source(part, auth) for part in parts))
    except UsageError as error:
        if len(parts) > 1 and "@" in text:
            raise UsageError(f"{error}; in a password, write a comma as %2C") from None
        raise


def _source(part: str, auth: str | Secret | None) -> str:
    if part.startswith(_DNS):
        try:
            return f"{_DNS}{parse_address(part.removeprefix(_DNS), default_port=EXPORTER_PORT)}"
        except UsageError as error:
            raise UsageError(f"--from: {error}") from None
    if "://" in part:
        ExporterClient(part, auth)
        return part
    if part.endswith(LISTS):
        return part
    if _ADDRESS.fullmatch(part):
        ExporterClient(f"http://{part}")
        return f"http://{part}"
    path = Path(part)
    if path.exists():
        raise UsageError(f"--from {one_line(part)}: recorded samples cannot be combined with others; give them alone")
    if "@" in part or any(letter in part for letter in "?#[]"):
        raise UsageError(f"--from: not the URL of an exporter; {GOOD_FORM}")
    exporter = f"; for an exporter, give its port, such as {part}:{EXPORTER_PORT}" if "/" not in part else ""
    raise UsageError(f"--from {one_line(part)}: no such file or directory{exporter}")


def lists_exporters(where: str) -> bool:
    """Tells that `--from` names exporters although it may look like the path of recorded samples."""
    path = Path(where)
    if where.endswith(LISTS) and path.is_file():
        try:
            with path.open("rb") as file:
                return not file.read(1000).lstrip().startswith(b"{")  # as a line of recorded samples does
        except OSError:  # which is said when the list is read
            return True
    return where.endswith(LISTS) or where.startswith(_DNS) or ("," in where and not path.exists())


def shown(text: str) -> str:
    """The exporters that `--from` names, in a few words and without passwords."""
    sources = sources_of(text)
    first = ExporterClient(sources[0]).name if "://" in sources[0] else one_line(sources[0])
    return first if len(sources) == 1 else f"{first} and {len(sources) - 1} more"


class ExporterList:
    """Finds the exporters that `--from` names.

    Args:
        text: `SOURCE[,SOURCE...]`.
        auth: of all of them; None: their URLs have passwords, or there is none.
        given: job and slice of workers that neither their exporter nor the list knows.
        waits: whether to wait for a file that cannot be used at the start.
        resolve: looks up all addresses of a name; raises OSError without an answer.
        look_s: time between looks at files.
        resolve_every_s: time between look-ups of names.

    Raises:
        UsageError: it is not of this form.
    """

    def __init__(
        self,
        text: str,
        *,
        auth: Secret | None = None,
        given: JobNames = NOT_GIVEN,
        waits: bool = False,
        resolve: Resolve = resolve_host,
        look_s: float = 2.0,
        resolve_every_s: float = 30.0,
    ) -> None:
        self._sources = sources_of(text, auth)
        self._dynamic: dict[str, Discovery] = {}
        for source in self._sources:
            if source.startswith(_DNS):
                address = source.removeprefix(_DNS)
                self._dynamic[source] = DnsNames(
                    [address], resolve=resolve, resolve_every_s=resolve_every_s, soon_s=resolve_every_s / 6
                )
            elif "://" not in source:
                self._dynamic[source] = TargetFile(
                    source, port=EXPORTER_PORT, waits=waits, option="--from", poll_s=look_s
                )
        self._given = given
        self._found: dict[str, Workers] = {}

    async def watch(self, answers: Callable[[str], bool]) -> AsyncGenerator[Places, None]:
        """Yields the exporters as soon as each source has said something, then each time they have changed.

        Args:
            answers: whether the exporter at a URL answers now; if none of a name does, it is looked up sooner.

        Raises:
            UsageError: a file cannot be read or used at the start, and is not waited for.
        """
        if not self._dynamic:
            yield self._places()
            return
        changed = asyncio.Event()
        failed: list[Exception] = []

        async def follow(source: str, discovery: Discovery) -> None:
            try:
                async with aclosing(discovery.watch(lambda: not any(map(answers, self._urls(source))))) as changes:
                    async for workers in changes:
                        self._found[source] = workers
                        changed.set()
            except Exception as error:  # noqa: BLE001 - whoever watches raises it
                failed.append(error)
                changed.set()

        tasks = [asyncio.create_task(follow(*item), name=f"find {item[0]}") for item in self._dynamic.items()]
        sent: Places | None = None
        try:
            while True:
                await changed.wait()
                changed.clear()
                if failed:
                    raise failed[0]
                places = self._places()
                if len(self._found) == len(self._dynamic) and places != sent:
                    sent = places
                    yield places
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _urls(self, source: str) -> Iterable[str]:
        return (f"http://{target.address}" for target in self._found.get(source, Workers()).targets)

    def _places(self) -> Places:
        by_url: dict[str, Place] = {}
        waiting: list[str] = []
        finders: dict[str, bool] = {}
        for source in self._sources:
            workers = self._found.get(source)
            for place in [Place(url=source)] if source not in self._dynamic else _listed(workers):
                known = replace(place, job=place.job or self._given.job, slice=place.slice or self._given.slice)
                by_url.setdefault(place.url, known)
            if workers is not None:
                waiting += [workers.waiting] if workers.waiting else []
                for name, works in workers.finders.items():
                    finders[name] = works and finders.get(name, True)
        places = tuple(by_url.values())[:_MOST_EXPORTERS]
        return Places(places=places, waiting=waiting[0] if waiting and not places else None, finders=finders)


def _listed(workers: Workers | None) -> Sequence[Place]:
    targets = () if workers is None else workers.targets
    return [Place(url=f"http://{target.address}", job=target.job, slice=target.slice) for target in targets]

"""Workers listed in a file of Prometheus' file_sd format."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tpumon.discovery.addresses import PROFILER_PORT, name_targets, parse_profiler_address
from tpumon.errors import UsageError
from tpumon.model import Target, Workers
from tpumon.system.threads import in_thread
from tpumon.untrusted_text import one_line, unexpected

_log = logging.getLogger(__name__)

_POLL_S = 2.0
_READ_S = 10.0
_MAX_BYTES = 4 << 20
_MAX_YAML_BYTES = 1 << 20  # 20,000 workers; it is read at a fifth of a megabyte a second
_MOST_ROWS = 20_000
_LARGEST_NUMBER = 1 << 63  # longer ones take long to be written out
_SETTLES_S = 3.0  # what was changed just now may be half of it, and may change again within one tick of its clock


class _BadFileError(Exception):
    """The file cannot be used; the message says why, and where in it."""


class TargetFile:
    """Follows the workers that a file lists.

    The file holds a list of `{"targets": ["HOST:PORT", ...], "labels": {...}}`, in JSON or YAML. The labels
    `tpu_job` and `tpu_slice` (or `slice`) name the job and the slice of a group; `worker` names its one worker.

    Args:
        path: of the file; it is read every 2 s if it has changed.
        port: for addresses without one; None: 8466.
        waits: whether to wait for a file that cannot be used at the start: nobody may be there to put it right.
        option: what named the file, for messages.
        poll_s: time between looks.
    """

    def __init__(
        self,
        path: str,
        *,
        port: int | None = None,
        waits: bool = False,
        option: str = "--targets",
        poll_s: float = _POLL_S,
    ) -> None:
        self._path = Path(path)
        self._option = option
        self._port = port if port is not None else PROFILER_PORT
        self._waits = waits
        self._poll_s = poll_s
        self._seen: tuple[int, ...] | None = None
        self._sent: Workers | None = None
        self._was_usable = False
        self._trouble: str | None = None
        self._reading: asyncio.Task[Workers | None] | None = None

    async def watch(self, _all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields the workers each time they have changed.

        Raises:
            UsageError: the file cannot be read or used at the start, and is not waited for.
        """
        try:
            while True:
                try:
                    workers = await self._look()
                except Exception as error:  # noqa: BLE001 - whatever is in the file, the known workers stay
                    workers = self._in_trouble(error)
                else:
                    if workers is not None:
                        self._was_usable, self._trouble = True, None
                workers = workers or self._sent
                if workers is not None:
                    workers = replace(workers, finders={"targets-file": self._trouble is None})
                if workers is not None and workers != self._sent:
                    self._sent = workers
                    yield workers
                await asyncio.sleep(self._poll_s)
        finally:
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None

    async def _look(self) -> Workers | None:
        """Reads the file, but never starts a second read while one hangs."""
        if self._reading is None:
            self._reading = asyncio.create_task(in_thread(self._read, timeout_s=None), name="read targets")
        async with asyncio.timeout(_READ_S):
            await asyncio.wait([self._reading])
        reading, self._reading = self._reading, None
        return reading.result()

    def _in_trouble(self, error: Exception) -> Workers | None:
        """Notes why the file cannot be used; returns what is waited for if it never could."""
        why = str(error) if isinstance(error, _BadFileError) else unexpected(error)
        if isinstance(error, OSError):  # TimeoutError is one
            self._seen = None  # what comes back is read, though it is the same
            why = error.strerror or f"it cannot be read within {_READ_S:.0f} s"
        before, self._trouble = self._trouble, f"{self._option} {self._path}: {one_line(why)}"
        if self._was_usable:
            if self._trouble != before:
                _log.warning("%s; going on with the known workers", self._trouble)
            return None
        if not self._waits:
            raise UsageError(self._trouble) from None
        return Workers(waiting=f"{self._trouble}; it is read again when it changes")

    def _read(self) -> Workers | None:
        """The workers; None if the file has not changed."""
        status = self._path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading may never end
            raise _BadFileError("not a regular file, but a directory, pipe or device")
        seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        fresh = abs(time.time() - status.st_mtime) < _SETTLES_S
        if seen == self._seen and not fresh:
            return None
        data = b""
        if status.st_size <= _MAX_BYTES:
            with self._path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        if max(status.st_size, len(data)) > _MAX_BYTES:
            raise _BadFileError(f"it is larger than {_MAX_BYTES >> 20} MiB")
        text = data.decode(errors="replace")
        if not text.strip() and fresh and self._sent is not None:
            return None  # just about to be written
        self._seen = seen
        groups = _parse(text, is_yaml=self._path.suffix in {".yml", ".yaml"})
        targets = self._keep_names(_targets(groups, self._port))
        if not targets:
            return Workers(waiting=f"{self._path} names no workers; add some, it is read again when it changes")
        return Workers(targets=targets)

    def _keep_names(self, targets: Sequence[Target]) -> tuple[Target, ...]:
        """A worker that stays keeps its name, also when its host has another one from now on."""
        before = {target.address: target.worker for target in self._sent.targets} if self._sent is not None else {}
        taken = {target.worker for target in targets}
        kept = []
        for target in targets:
            old, new = before.get(target.address, target.worker), target.worker
            same_host = old.startswith(f"{new}:") or new.startswith(f"{old}:")
            kept.append(replace(target, worker=old) if same_host and old not in taken else target)
        return tuple(kept)


def _parse(text: str, *, is_yaml: bool) -> Any:
    """The content of the file; YAML where it is named so, or is no JSON."""
    if not text.strip():
        return []
    if not is_yaml:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            if text.lstrip()[0] in "[{":
                raise _BadFileError(f"it is no JSON: {error}") from None
    import yaml  # here: most start without such a file

    if len(text) > _MAX_YAML_BYTES:
        raise _BadFileError(f"it is larger than {_MAX_YAML_BYTES >> 20} MiB, the limit of YAML; write JSON")
    try:
        # Everything is text, a list or a mapping: no merge keys or numbers, whose cost has no bound. The loader in C is
        # faster, but nested lists end the process.
        return yaml.load(text, yaml.BaseLoader)  # noqa: S506 - makes nothing but these three
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _BadFileError(f"it is no YAML: {error}") from None


def _targets(groups: Any, port: int) -> list[Target]:
    """The workers of all groups, each address once, names unique."""
    every_row = (row for number, group in enumerate(_list(groups), 1) for row in _rows(number, group, port))
    rows = list(islice(every_row, _MOST_ROWS + 1))  # by aliases, few bytes of YAML are many rows
    if len(rows) > _MOST_ROWS:
        raise _BadFileError(f"it lists more than {_MOST_ROWS} workers")
    label_of = dict(reversed(rows))
    targets = []
    for target in name_targets([address for address, _ in rows]):
        job, slice_name, worker = label_of[target.address]
        targets.append(replace(target, job=job, slice=slice_name, worker=target.worker if worker is None else worker))
    count = Counter(target.worker for target in targets)
    return [replace(target, worker=target.address) if count[target.worker] > 1 else target for target in targets]


def _rows(number: int, group: Any, port: int) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Address, job, slice and worker of each target of a group."""
    if not isinstance(group, dict) or not isinstance(addresses := group.get("targets"), list):
        raise _BadFileError(f'group {number} is not {{"targets": ["HOST:PORT", ...], "labels": {{...}}}}')
    labels = group.get("labels") or {}
    if not isinstance(labels, dict):
        raise _BadFileError(f"the labels of group {number} are not NAME: TEXT")
    if "<<" in labels:
        raise _BadFileError(f"the labels of group {number} are merged (<<); write them out")
    job, slice_name, worker = (_label(number, labels, name) for name in ("tpu_job", "tpu_slice", "worker"))
    slice_name = slice_name or _label(number, labels, "slice")
    if worker is not None and len(addresses) > 1:
        raise _BadFileError(
            f"group {number} has one label worker for {len(addresses)} targets; give each its own group"
        )
    for address in addresses:
        if not isinstance(address, str):
            raise _BadFileError(f"group {number}: a target is not text such as HOST:PORT")
        try:
            yield parse_profiler_address(address, default_port=port), (job, slice_name, worker)
        except UsageError as error:
            raise _BadFileError(f"group {number}: {error}") from None


def _list(groups: Any) -> list[Any]:
    if groups in (None, "", "null", "~"):
        return []
    if not isinstance(groups, list):
        raise _BadFileError("it is not a list of groups")
    return groups


def _label(number: int, labels: dict[Any, Any], name: str) -> str | None:
    value = labels.get(name)
    if value is None:
        return None
    # Checked before it is turned into text: a few lists within each other may be gigabytes of it.
    if not isinstance(value, (str, int, float)) or (isinstance(value, int) and abs(value) >= _LARGEST_NUMBER):
        raise _BadFileError(f"the label {name} of group {number} is not text")
    return one_line(str(value), limit=100) or None

"""The page `/samples` of an exporter: what it tells another tpumon."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

from msgspec import Raw, Struct
from msgspec.structs import replace

from tpumon.model.documents import Count, UnixTime, at_most
from tpumon.model.finding import MOST_WORKERS, Finding, NotJudged
from tpumon.model.state import Change, StatusSnapshot
from tpumon.model.target import ListedTarget

MOST_RUNS = 20_000
_MOST_CHANGES = 10_000
_MOST_SAMPLES = 12_048  # one of each worker, and twice what an exporter gives at once


class PageHead(Struct, frozen=True, kw_only=True):
    """Head of a page, by which a reader decides whether it can read the rest."""

    schema: int
    tpumon: str


class Page(PageHead, frozen=True, kw_only=True):
    """A page.

    Attributes:
        schema: version of its fields.
        tpumon: version of the exporter.
        run: its name for readers; another one counts samples and changes anew.
        via: the runs of the exporters that its samples came through.
        now_unix_s: the time there.
        sequence: of the last sample.
        level: 1 or 2; how much its workers are asked for.
        host: where all jobs of its host are sampled, and nothing else, its name.
        waiting: why there is no worker.
        targets: the workers.
        changed: of the last change; None: the page hands nothing on, and has none of what follows.
        statuses, changes: all, or what is new.
        findings: what is wrong now; None: the exporter does not judge.
        not_judged: what it cannot judge.
        history: by worker, see `tpumon.model.ExporterSnapshot`; None: only what is new is here.
        samples: Sample objects.
    """

    run: str | None = None
    via: Annotated[tuple[str, ...], at_most(MOST_RUNS)] = ()
    now_unix_s: UnixTime | None = None
    sequence: Count | None = None
    level: Count | None = None
    host: str | None = None
    waiting: str | None = None
    targets: Annotated[tuple[ListedTarget, ...], at_most(MOST_WORKERS)] = ()
    changed: Count | None = None
    statuses: Annotated[tuple[StatusSnapshot, ...], at_most(_MOST_CHANGES)] = ()
    changes: Annotated[tuple[Change, ...], at_most(_MOST_CHANGES)] = ()
    findings: Annotated[tuple[Finding, ...] | None, at_most(_MOST_CHANGES)] = None
    not_judged: Annotated[tuple[NotJudged, ...], at_most(_MOST_CHANGES)] = ()
    history: Annotated[Mapping[str, Raw] | None, at_most(MOST_WORKERS)] = None
    samples: Annotated[tuple[Raw, ...], at_most(_MOST_SAMPLES)] = ()

    def of(self, workers: Collection[str]) -> Page:
        """Page of some workers. Samples are not left out: readers ignore samples of workers that are not listed."""
        of_some = [
            replace(one, workers=kept, more_workers=0)
            for one in self.findings or ()
            if (kept := tuple(name for name in one.workers if name in workers))
        ]
        return replace(
            self,
            targets=tuple(one for one in self.targets if one.worker in workers),
            statuses=tuple(one for one in self.statuses if one.worker in workers),
            changes=tuple(one for one in self.changes if one.worker in workers),
            findings=None if self.findings is None else tuple(of_some),
            history=None
            if self.history is None
            else {name: one for name, one in self.history.items() if name in workers},
        )

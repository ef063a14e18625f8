"""Samples that a judgement needs, taken for a command."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import shlex
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager

from msgspec import Struct
from msgspec.structs import replace

from tpumon.analysis import FleetStatus, WorkerStatus
from tpumon.analysis.fleet_verdict import FleetVerdict
from tpumon.analysis.history import WorkerHistory, state_of
from tpumon.analysis.state_findings import MOST_NAMED
from tpumon.analysis.sufficiency import (
    is_suspected,
    lacking,
    lacking_s,
    missed_steps,
    needs_several,
    samples_of,
    unjudged,
)
from tpumon.collection.event_sources import EventSource, NearbySource, RecordingSource
from tpumon.collection.remote.nearby import find_nearby
from tpumon.discovery.host.processes import user_named
from tpumon.errors import NoTargetError, remedy
from tpumon.model import Target
from tpumon.model.progress import Doing
from tpumon.moments import local_time
from tpumon.outputs.drawing.progress_bar import Bar
from tpumon.pipeline import FeedSettings, open_feed
from tpumon.system.signals import StoppedError, send_soon
from tpumon.untrusted_text import LONGEST_PATH, listed, one_line

_log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Seconds after which the status is looked at again, if nothing has come."""

_AGAIN_S = 0.05
_RECENT_S = 3600.0  # of a recording, from its end, are judged
_LONG_S = 5.0  # until it is said what one waits for
_MINUTES_FROM_S = 120.0  # a wait in minutes
_BETWEEN_LINES_S = 30.0
_MOST_TIMES = 3  # as many samples as needed: so many tell how much a slow core varies by itself
_LATE_S = 5.0  # beyond the time that the samples of an exporter take; and until it is seen that a job has ended
_PRINTED_IN_S = 1.0  # then stdout's reader gets as long as after any signal
_MANY = 40  # samples: in so many shows what comes and goes
_SOME = 12  # samples: so many show compiling that goes on
_LONGER = 1.5  # than these take if nothing is late


class Needs(Struct, frozen=True, kw_only=True):
    """Samples that a judgement needs.

    Attributes:
        samples: of each worker.
        all_of_them: True to wait for all of them even where fewer suffice.
        timeout_s: how long to wait for them.
        more_s: how much longer to wait for findings that take more samples, if these are there by then.
    """

    samples: int
    all_of_them: bool = False
    timeout_s: float = 120.0
    more_s: float = 0.0


def with_one_sampler(settings: FeedSettings) -> FeedSettings:
    """The settings with a tpumon of this host as the source of samples, if it may be read and answers; says so."""
    if settings.nearby_level is None or not settings.source.takes_samples:
        return settings
    page = asyncio.run(find_nearby(settings.nearby_level, settings.source.addresses))
    if page is None:
        return settings
    _log.warning(
        "showing what %s, a tpumon of user %s on this host, samples; to sample here instead, give an option of "
        "sampling, such as --max-duty 0.01",
        page.name,
        user_named(page.uid),
    )
    return replace(settings, source=NearbySource(page, settings.source), state_dir=None)  # it keeps its own


@contextmanager
def collected(settings: FeedSettings, needs: Needs) -> Generator[FleetStatus]:
    """Follows the workers until all have the samples that are needed, no more are to come, or the time is over.

    If SIGTERM ends it before, as `timeout` does, what is known by then is answered before the signal ends this process.

    Yields:
        The status then; of a recording, at its end.

    Raises:
        NoTargetError: there is no worker.
        UsageError: there is no recording.
    """
    status: FleetStatus | None = None
    stopped: StoppedError | None = None
    try:
        with Bar(sys.stderr) as bar, closing(statuses_of(settings, needs, bar)) as statuses:
            for status, is_enough in statuses:  # noqa: B007 - the last one counts
                if is_enough:
                    break
    except StoppedError as error:
        is_known = status is not None and any(each.history.last is not None for each in status.all())
        if error.signal_number != signal.SIGTERM or not is_known:
            raise
        stopped = error
        _log.warning("stopped by SIGTERM before there were enough samples; this is what is known")
    assert status is not None
    if stopped is None:
        yield status
        return
    again = send_soon(stopped.signal_number, _PRINTED_IN_S)  # nobody may read stdout
    try:
        yield status
    finally:
        again.cancel()
    raise stopped


def statuses_of(settings: FeedSettings, needs: Needs, bar: Bar | None = None) -> Generator[tuple[FleetStatus, bool]]:
    """Yields the status when it may have changed, and whether it rests on enough samples; of a recording once.

    Yields after an update, at once or a little later, and at least twice a second.
    """
    settings = with_one_sampler(settings)
    source = settings.source.awaited_by(needs.samples)
    settings = replace(settings, source=source)
    waiting = _Waiting(settings, needs)
    looked_s = 0.0
    remembers = bar is not None or not source.takes_samples
    with open_feed(settings, remembers=remembers, last_s=_RECENT_S, says_waiting=False) as feed:
        for update in feed.updates(timeout_s=LOOK_S):
            now_s = time.monotonic()
            if source.is_over or (update is not None and now_s - looked_s < _AGAIN_S):
                continue
            looked_s = now_s
            status = feed.status()
            yield status, waiting.is_over(status)
            if bar is not None:
                waiting.show(bar)
        yield feed.status(), True


class _Waiting:
    """Decides when there are enough samples."""

    def __init__(self, settings: FeedSettings, needs: Needs) -> None:
        self._source = settings.source
        self._sustained = settings.output_settings.thresholds.sustained
        self._needs = needs
        self._several: set[str] = set()  # workers of which several samples are needed
        self._began_s = time.monotonic()
        self._deadline_s: float | None = None
        self._more_until_s: float | None = None
        self._ended_until_s: float | None = None
        self._next_line_s = self._began_s + _LONG_S
        self._taken = self._wanted = 0  # samples
        self._waits_for: Target | None = None
        self._down: tuple[str, ...] = ()  # workers that do not answer, while others are waited for
        self._said: frozenset[str] = frozenset()  # what was said of the wait

    def is_over(self, status: FleetStatus) -> bool:
        """True if more samples would not change what is said, or do not come.

        Raises:
            NoTargetError: there is no worker.
        """
        workers = status.all()
        if status.waiting is not None and not workers:
            raise NoTargetError(status.waiting)
        passed_s = time.monotonic() - self._began_s
        is_late = passed_s > self._needs.timeout_s
        asked = [worker for worker in workers if worker.history.last is not None]
        self._several.update(worker.name for worker in asked if needs_several(worker.history))
        self._count(workers)
        if not workers or len(asked) < len(workers):
            if is_late:
                self._say_late(len(workers) - len(asked))
            return is_late
        missing = [worker.history for worker in workers if not self._is_settled(worker)]
        if not missing and all(worker.verdict.state != "down" for worker in workers):
            missing = [each.history for each in workers if each.needs_more and self._may_tell_more(each)]
        if not missing and not is_late:
            missing = self._ended(workers) or self._more(workers)
        if self._deadline_s is None and not any(_begins(history) for history in missing):
            left_s = max((_left_s(history, self._needs.samples) for history in missing), default=0.0)
            left_s = max(left_s, *(min(lacking_s(each), self._needs.more_s) for each in workers))
            self._deadline_s = time.monotonic() + left_s + _LATE_S
        if missing and is_late:
            self._say_late(len(missing))
        if not missing or is_late or self._source.takes_samples:
            return not missing or is_late
        return self._deadline_s is not None and time.monotonic() > self._deadline_s

    def _more(self, workers: Sequence[WorkerStatus]) -> list[WorkerHistory]:
        """Histories of workers about which more can be judged within the time that is left."""
        if self._more_until_s is None:
            self._more_until_s = time.monotonic() + self._needs.more_s
        more_s = self._more_until_s - time.monotonic()
        if more_s <= 0:  # no more reasons need be read
            return []
        return [each.history for each in workers if lacking(each) and lacking_s(each) <= more_s]

    def _ended(self, workers: Sequence[WorkerStatus]) -> list[WorkerHistory]:
        """Histories of workers whose process has ended since their last sample: the next one says so, soon."""
        ended = [worker.history for worker in workers if worker.verdict.state not in {"down", "paused"}]
        ended = [history for history in ended if self._source.has_ended(history.target)]
        if ended and self._ended_until_s is None:
            self._ended_until_s = time.monotonic() + _LATE_S
        return ended if self._ended_until_s is not None and time.monotonic() < self._ended_until_s else []

    def show(self, bar: Bar) -> None:
        """Says how far it is and what goes on: with a bar on a terminal, otherwise in a line now and then.

        A worker that is down is named as soon as that is known, and so is what a long wait for more samples is for.
        Each line says so while the wait is likely to be longer than the time that there is.
        """
        now_s, needed_s = time.monotonic(), self._needed_s
        is_beyond = needed_s > self._needs.timeout_s
        holds = {"down": bool(self._down), "long": self._waits_long or is_beyond, "beyond": is_beyond}
        now = {name for name, is_so in holds.items() if is_so}
        news = now - self._said
        if bar.refresh_s is not None:
            bar.count(self._taken, self._wanted, self._progress_words())
            is_due = "beyond" in news
        else:
            is_due = bool(news) or now_s >= self._next_line_s
        if is_due:
            self._said = self._said - {"down"} | now  # who is down anew is named again
            self._next_line_s = now_s + _BETWEEN_LINES_S
            limit = f"{self._needs.timeout_s:g} s at most (--timeout)"
            longer = f", too few for that; to wait so long: {_command(f'--timeout {_minutes(_LONGER * needed_s)}')}"
            _log.info("%s; %s%s", self._progress_words(), limit, longer if is_beyond else "")

    @property
    def _needed_s(self) -> float:
        """Seconds from the beginning that the samples take which wait for a share of time; 0: not known."""
        doing = self._doing
        if doing is None or not doing.why or doing.until_unix_s is None:
            return 0.0
        left_s = max(doing.until_unix_s, doing.all_unix_s or 0.0) - time.time()
        return time.monotonic() - self._began_s + left_s

    def _progress_words(self) -> str:
        """`2 of 3 samples; vm: asked again in 7 s`."""
        if not self._wanted:
            return "looking for jobs" if self._source.takes_samples else "waiting for an answer"
        words = f"{self._taken} of {self._wanted} samples"
        if self._down:
            are = "is" if len(self._down) == 1 else "are"
            words = f"{listed(self._down, MOST_NAMED)} {are} down; the others are waited for: {words}"
        if self._taken == self._wanted:
            words += ", some findings take more"
        doing, target = self._doing, self._waits_for
        return words if doing is None or target is None else f"{words}; {target.worker}: {doing.text(time.time())}"

    @property
    def _doing(self) -> Doing | None:
        """The present action for the worker that lacks most samples; None: not known."""
        progress, target = self._source.progress, self._waits_for
        return None if progress is None or target is None else progress.of(target.address)

    @property
    def _waits_long(self) -> bool:
        """True if a worker that has answered waits long for its share of time; of others that is said in any case."""
        doing = self._doing
        if doing is None or not doing.why or not self._taken:
            return False
        return (doing.left_s(time.time()) or 0) >= _LONG_S

    def _count(self, workers: Sequence[WorkerStatus]) -> None:
        """Notes how many of the needed samples have come, and one of the workers that lack most."""
        lacking = {worker.name: self._lacks(worker) for worker in workers}
        self._taken = sum(min(samples_of(worker.history), self._needs.samples) for worker in workers)
        self._wanted = self._taken + sum(lacking.values())
        down = tuple(worker.name for worker in workers if worker.verdict.state == "down")
        self._down = down if len(down) < len(workers) else ()
        last = max(workers, key=lambda worker: lacking[worker.name], default=None)
        self._waits_for = None if last is None else last.history.target

    def _lacks(self, worker: WorkerStatus) -> int:
        """Number of samples that a worker lacks, as far as it is known that they are needed."""
        if worker.history.last is not None and self._is_settled(worker):
            return 0
        return max(self._needs.samples - _queries(worker.history), 0)

    def _say_late(self, missing: int) -> None:
        _log.warning(
            "the time is over (%g s, --timeout): %s %s too few samples (%s); this is what is known",
            self._needs.timeout_s,
            missing,
            "worker has" if missing == 1 else "workers have",
            self._progress_words(),
        )

    def _is_settled(self, worker: WorkerStatus) -> bool:
        """True if a worker has the samples that are needed, or has never answered."""
        history = worker.history
        never = state_of(history.last) not in {"live", "no-activity"} and not history.samples
        is_judged = worker.judged_upstream and history.last is not None and history.last.findings is not None
        is_judged = is_judged and worker.verdict.status != "unknown"  # its exporter has too few samples, too
        several = self._needs.all_of_them or worker.name in self._several
        return never or is_judged or _queries(history) >= (self._needs.samples if several else 1)

    def _may_tell_more(self, worker: WorkerStatus) -> bool:
        """True if samples of a worker may have been too short to count, so that a few more are worth their time.

        While nothing runs, as several samples in a row agree, none tells more; and a number that was given is kept.
        """
        if (
            self._needs.all_of_them
            or self._needs.samples < self._sustained
            or _queries(worker.history) >= _MOST_TIMES * self._needs.samples
        ):
            return False
        return worker.name in self._several and worker.findings.get("hang") is None


def _left_s(history: WorkerHistory, samples: int) -> float:
    """Seconds that the samples take that are still to come, at most."""
    interval_s = None if history.last is None else history.last.interval_s
    return max(samples - _queries(history), 0) * (interval_s or 0.0)


def _begins(history: WorkerHistory) -> bool:
    """True if its exporter has just begun with it: how often it samples shows with the second sample."""
    return history.last is not None and history.last.interval_s is None and samples_of(history) > 0


def _queries(history: WorkerHistory) -> int:
    """Number of queries, answered or not; what is remembered counts both."""
    return max(samples_of(history), history.samples + history.errors.total())


def moment_of_recording(source: EventSource, time_unix_s: float) -> str:
    """A line that says of which moment of a recording an answer is; of other samples, empty."""
    if not isinstance(source, RecordingSource):
        return ""
    before = f"tpumon events --from {shlex.quote(one_line(source.where, limit=LONGEST_PATH))}"
    return f"So it was at {local_time(time_unix_s)}; what happened before: {before}"


def told_when(answer: FleetVerdict, settings: FeedSettings, needs: Needs, status: FleetStatus) -> FleetVerdict:
    """The answer with the moment, or the command, at which more is known, if it rests on few samples.

    Args:
        answer: to `ok` when and how is added only if this command waited for what takes more samples.
        settings: the source of samples that was asked for.
        needs: the samples that were waited for.
        status: what the answer rests on.
    """
    workers, is_ok = status.all(), answer.verdict == "ok"
    if not workers or (answer.severity if answer.verdict == "restarted" else answer.verdict) not in {"ok", "unknown"}:
        return answer
    awaited = any(each.verdict.state == "waiting" for each in workers)
    is_stale = not settings.source.is_over and any(each.verdict.state == "stale" for each in workers)
    lacks = [lacking(each, only_decisive=not is_ok) for each in workers]
    names = ", ".join(dict.fromkeys(finding for each in lacks for finding in each))
    sustained = settings.output_settings.thresholds.sustained
    few = () if is_ok else unjudged(status, sustained)
    counts = [count for each in lacks for count in each.values()]
    lack = max([*counts, *(sustained - samples_of(status.workers[name].history) for name in few)], default=0)
    last = [each.history.last for each in workers if each.history.last is not None]
    interval_s = status.longest_interval_s
    taken, more = min(map(_judged_on, workers)), ""
    can_tell = any("recompiling" in each.judged for each in workers) or any("recompiling" in each for each in lacks)
    such = ", such as recompiling," if can_tell else ""
    names = names or ("" if needs.more_s else f"what comes and goes{such}".rstrip(","))
    sentence = _told(answer.sentence, taken, names) if is_ok else answer.sentence
    is_short = (is_ok and needs.more_s > 0) or (
        not (lack or awaited) and any(is_suspected(each) or missed_steps(each) for each in workers)
    )
    if hung := _waits_in_vain(settings.source, workers):
        more = hung
    elif is_stale and not is_ok:
        more = f"More is known with the next sample; then ask again: {_command()}"
    elif settings.source.is_over or not (is_short or lack or awaited) or (is_ok and not needs.more_s):
        pass
    elif settings.source.takes_samples and not any(each.judged_upstream for each in workers):
        many = (_MANY if is_ok or taken >= _SOME else _SOME) if is_short else None
        more = _longer_look(taken, needs, lack, interval_s, many, such)
    elif lack or awaited:
        known_s = lack * interval_s - min((status.time_unix_s - one.time_unix_s for one in last), default=0.0)
        when = "a minute" if awaited or not interval_s else _about(known_s)
        known = f"{names.replace('what', 'What')}: known" if names and not is_ok else "More is known"
        more = f"{known} in {when}; then ask again: {_command()}"
    elif is_short and taken < _MANY and interval_s:
        when = _about((_MANY - taken) * interval_s)
        more = f"What comes and goes{such} takes more samples: ask again in {when}: {_command()}"
    return replace(answer, sentence=f"{sentence} {more}".rstrip())


def _waits_in_vain(source: EventSource, workers: Sequence[WorkerStatus]) -> str:
    """A sentence on a trace of the host that this command waits for: it may have hung the job. Empty: there is none."""
    for each in workers:
        target = each.history.target
        doing = None if source.progress is None else source.progress.of(target.address)
        if doing is not None and doing.detail == "host-trace-waits":
            return f"{target.worker}: {doing.words}. To do: {remedy('busy', doing.detail)}."
    return ""


def _told(sentence: str, samples: int, names: str) -> str:
    """The sentence of an `ok` with the number of samples that it rests on, if these are few, and for what too few.

    Args:
        sentence: the sentence.
        samples: the number.
        names: that for which they are too few.
    """
    if samples >= _MANY:
        return sentence
    tell = "sample tells" if samples == 1 else "samples tell"
    return sentence.replace("it can be judged", f"{samples} {tell}{f', too few for {names}' if names else ''}", 1)


def _judged_on(worker: WorkerStatus) -> int:
    """Number of samples that a worker is judged by; its exporter judges by all that it handed on, however old."""
    return samples_of(worker.history, math.inf if worker.judged_upstream else _RECENT_S)


def _longer_look(samples: int, needs: Needs, lack: int, interval_s: float, many: int | None, such: str) -> str:
    """The command that takes so many samples that what comes and goes shows; None: that waits for those that lack."""
    if many is None and lack and (needs.all_of_them or samples >= needs.samples):
        more = f"--num-queries {samples + lack}" + _timeout(_LONGER * (samples + lack) * interval_s, needs)
        return f"To take more samples: {_command(more)}"
    if many is None:
        return f"To wait longer: {_command(f'--timeout {_minutes(_LONGER * 2 * needs.timeout_s)}')}"
    if samples >= many:
        return ""
    more = f"--num-queries {many}" + _timeout(_LONGER * many * interval_s, needs)
    return f"What comes and goes{such} takes a longer look: {_command(more)}"


def _timeout(timeout_s: float, needs: Needs) -> str:
    """The option that waits so long; empty if that is not longer than now."""
    return f" --timeout {_minutes(timeout_s)}" if timeout_s > needs.timeout_s else ""


def _about(time_s: float) -> str:
    return f"about {max(math.ceil(time_s), 1)} s" if time_s < _MINUTES_FROM_S else f"about {math.ceil(time_s / 60)} min"


def _minutes(time_s: float) -> str:
    return f"{math.ceil(time_s / 60)}m"


def _command(more: str = "") -> str:
    """The command as it was typed, without passwords, with other samples or time."""
    typed = shlex.join(re.sub(r"(//)[^/@]*@", r"\1", each) for each in sys.argv[1:])
    if more:
        given = "timeout|num[-_]queries" if "--num-queries" in more else "timeout"
        typed = re.sub(rf" --({given})[ =]\S+", "", typed)
    return f"tpumon {typed} {more}".rstrip()

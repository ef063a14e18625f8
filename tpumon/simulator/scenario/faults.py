"""A fault of the job: its kind, when it begins and ends, its parameters; and the text that `--scenario` takes.

    TERM+TERM+...    where TERM is NAME[@START[+LENGTH]][:PARAMETER=VALUE,...], times in seconds since the job's start

For example `slow-down@300+600:by=0.1+straggler:worker=3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tpumon.errors import UsageError
from tpumon.simulator.scenario.basics import SECOND, hashed
from tpumon.simulator.scenario.fault_table import KINDS, PARAMETERS, PRESETS, Kind, Setting
from tpumon.simulator.topology import Topology

SCENARIOS: tuple[str, ...] = ("steady", *KINDS, *(name for name in PRESETS if name != "steady"))
"""Every scenario; the first is the default."""

_LATEST_S = 1e7  # of start and length: four months
_SHORTEST_S = 1.0
_FOREVER_NS = 1 << 62
_MOST_FAULTS = 12
_MOST_TEXT = 500
_MOST_SHARES = 0.8
_NAME = re.compile(r"[a-z][a-z-]*")
_TERM = re.compile(r"(?P<name>[a-z-]+)(?:@(?P<start>[0-9.]+)(?:\+(?P<length>[0-9.]+))?)?(?::(?P<values>[^+]*))?")
_PARTING = re.compile(r"\+(?=[a-z])")

_Phase = Literal["on", "after", "between"]


class Active(NamedTuple):
    """A fault that holds at a moment.

    Attributes:
        fault: the fault.
        phase: `on`; `after`: it is over, and the job still compiles; `between`: its change holds until the next
            occurrence.
        setting: what it is set to.
    """

    fault: Fault
    phase: _Phase
    setting: Setting


class Fault(Struct, frozen=True, kw_only=True):
    """A fault of the simulated job.

    Attributes:
        kind: one of `tpumon.simulator.scenario.fault_table.KINDS`.
        start_s: when it begins, in seconds since the job's start; None: as its kind does.
        length_s: for how many seconds it lasts; None: to the end.
        worker, core, by, share, every, lasts, over: parameters, see `PARAMETERS`; None: the kind's default.

    Raises:
        UsageError: no such kind, a parameter that it does not take, or a value out of bounds.
    """

    kind: str
    start_s: float | None = None
    length_s: float | None = None
    worker: int | None = None
    core: int | None = None
    by: float | None = None
    share: float | None = None
    every: float | None = None
    lasts: float | None = None
    over: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise _unknown(self.kind)
        if self.start_s is not None and not 0 <= self.start_s <= _LATEST_S:
            raise UsageError(
                f"scenario {self.kind}: start {_plain(self.start_s)} is not within 0 to {_plain(_LATEST_S)} seconds"
            )
        if self.length_s is not None and not _SHORTEST_S <= self.length_s <= _LATEST_S:
            bounds = f"{_plain(_SHORTEST_S)} to {_plain(_LATEST_S)} seconds"
            raise UsageError(f"scenario {self.kind}: length {_plain(self.length_s)} is not within {bounds}")
        for name, parameter in PARAMETERS.items():
            value = getattr(self, name)
            if value is None:
                continue
            if name not in self.row.takes:
                takes = f"it takes {', '.join(self.row.takes)}" if self.row.takes else "it takes none"
                raise UsageError(f"scenario {self.kind} has no parameter {name!r}; {takes}")
            if not parameter.least <= value <= parameter.most:
                bounds = f"{_plain(parameter.least)} to {_plain(parameter.most)}"
                raise UsageError(
                    f"scenario {self.kind}: {name}={_plain(value)} is not within {bounds} ({parameter.about})"
                )
        every = self.value("every")
        if every and every < self.value("lasts") + self.row.compiles_s + _SHORTEST_S:
            least = self.value("lasts") + self.row.compiles_s + _SHORTEST_S
            raise UsageError(
                f"scenario {self.kind}: every={_plain(every)} must be at least {_plain(least)}, longer than it lasts"
            )

    def __str__(self) -> str:
        """The term that stands for it."""
        text = self.kind
        if self.start_s is not None or self.length_s is not None:
            text += f"@{_plain(self._start_s)}"
        if self.length_s is not None:
            text += f"+{_plain(self.length_s)}"
        given = [f"{name}={_plain(getattr(self, name))}" for name in PARAMETERS if getattr(self, name) is not None]
        return f"{text}:{','.join(given)}" if given else text

    @property
    def row(self) -> Kind:
        """Its row in the table of kinds."""
        return KINDS[self.kind]

    @property
    def _start_s(self) -> float:
        return self.row.start_s if self.start_s is None else self.start_s

    def value(self, name: str) -> float:
        """A parameter; 0 if it does not take it, -1 if the seed is to pick and has not."""
        own = getattr(self, name)
        default = self.row.takes.get(name, 0.0)
        return float(own if own is not None else -1 if default is None else default)

    def bound(self, topology: Topology, seed: int) -> Fault:
        """The same fault with its worker and core; the seed picks those that are not given.

        Raises:
            UsageError: the TPU has no such worker or core.
        """
        hosts, devices = topology.hosts, topology.devices_per_host
        pick = hashed(seed, 1, 0, 0)
        worker, core = self.worker, self.core
        if "worker" in self.row.takes and worker is None:
            worker = pick % hosts
        if "core" in self.row.takes and core is None:
            core = pick // hosts % devices
        for name, number, count in (("worker", worker, hosts), ("core", core, devices)):
            if number is not None and number >= count:
                raise UsageError(
                    f"scenario {self.kind}: no {name} {number} on {topology.name}; the last {name} is {count - 1}"
                )
        if self.kind == "straggler" and hosts == 1:
            return replace(self, kind="slow-core", worker=0, core=pick % devices, by=self.value("by"))
        return replace(self, worker=worker, core=core)

    def at(self, time_ns: int) -> Active | None:
        """What the fault is at a moment; None if it does not hold."""
        occurrence, within_ns = self._place(time_ns)
        if occurrence < 0:
            return None
        over_ns = int(self.value("over") * SECOND)
        progress = round(min(1.0, within_ns / over_ns), 3) if over_ns else 1.0
        lasts_ns = int(self.value("lasts") * SECOND)
        phase: _Phase = "on"
        if lasts_ns and within_ns >= lasts_ns:
            if within_ns < lasts_ns + int(self.row.compiles_s * SECOND):
                phase = "after"
            elif self.row.keeps:
                phase = "between"
            else:
                return None
        setting = Setting(self.value("by"), self.value("share"), self.worker, self.core, occurrence, progress)
        return Active(self, phase, setting)

    def since_ns(self, time_ns: int) -> int | None:
        """When the occurrence that holds at a moment began; None if none holds."""
        return None if self.at(time_ns) is None else time_ns - self._place(time_ns)[1]

    def last_ended_ns(self, time_ns: int) -> int | None:
        """When the last occurrence before a moment was over, or None."""
        if self.length_s is not None and time_ns >= (end_ns := int((self._start_s + self.length_s) * SECOND)):
            return end_ns if self.at(end_ns - 1) is not None else self.last_ended_ns(end_ns - 1)
        occurrence, within_ns = self._place(time_ns)
        lasts_ns = int(self.value("lasts") * SECOND)
        if occurrence < 0:
            return None
        if within_ns >= lasts_ns:
            return time_ns - within_ns + lasts_ns
        if occurrence == 0:
            return None
        return time_ns - within_ns - int(self.value("every") * SECOND) + lasts_ns

    def same_until_ns(self, time_ns: int) -> int:
        """A moment until which the fault stays as it is; at least `time_ns`."""
        begin_ns, end_ns = int(self._start_s * SECOND), _FOREVER_NS
        if time_ns < begin_ns:
            return begin_ns
        occurrence, within_ns = self._place(time_ns)
        if occurrence < 0:
            return _FOREVER_NS
        if self.length_s is not None:
            end_ns = begin_ns + int(self.length_s * SECOND)
        if not within_ns or within_ns < int(self.value("over") * SECOND):
            return time_ns  # what begins here may leave a step unfinished
        begin_ns = time_ns - within_ns
        lasts_ns, every_ns = int(self.value("lasts") * SECOND), int(self.value("every") * SECOND)
        over_ns = lasts_ns + int(self.row.compiles_s * SECOND)
        changes_ns = [edge for edge in (lasts_ns, over_ns, every_ns) if edge > within_ns]
        return min([end_ns, *(begin_ns + edge for edge in changes_ns)])

    def _place(self, time_ns: int) -> tuple[int, int]:
        """Number of the occurrence at a moment, and the time since its begin; -1 before the start and after the end."""
        since_ns = time_ns - int(self._start_s * SECOND)
        if since_ns < 0 or (self.length_s is not None and since_ns >= int(self.length_s * SECOND)):
            return -1, 0
        every_ns = int(self.value("every") * SECOND)
        return divmod(since_ns, every_ns) if every_ns else (0, since_ns)

    def edges_ns(self, begin_ns: int, end_ns: int) -> Iterator[int]:
        """Yields the moments within (begin, end) at which the fault may begin or end."""
        start_ns = int(self._start_s * SECOND)
        stop_ns = end_ns if self.length_s is None else start_ns + int(self.length_s * SECOND)
        every_ns, lasts_ns = int(self.value("every") * SECOND), int(self.value("lasts") * SECOND)
        edges = [start_ns, stop_ns]
        if lasts_ns:
            first = max(0, (begin_ns - start_ns) // every_ns - 1) if every_ns else 0
            last = max(0, (end_ns - start_ns) // every_ns) if every_ns else 0
            for occurrence in range(first, last + 1):
                at_ns = start_ns + occurrence * every_ns
                edges += [at_ns, at_ns + lasts_ns, at_ns + lasts_ns + int(self.row.compiles_s * SECOND)]
        yield from (edge for edge in edges if begin_ns < edge < end_ns and edge <= stop_ns)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Reads a scenario.

    Args:
        text: as in the docstring of this module; `steady` and other presets stand for the terms that they name.

    Raises:
        UsageError: it is not a scenario; the message says what is wrong with which term.
    """
    if len(text) > _MOST_TEXT:
        raise UsageError(f"a scenario has at most {_MOST_TEXT} characters, this one has {len(text)}")
    faults: list[Fault] = []
    for term in _PARTING.split(text):
        if term in PRESETS:
            faults += parse_faults(PRESETS[term][1]) if PRESETS[term][1] else ()
        else:
            faults.append(_parse_term(term))
    return tuple(faults)


def check_together(faults: tuple[Fault, ...]) -> None:
    """Checks what faults must not be together.

    Raises:
        UsageError: there are too many, or their shares leave no time for compute.
    """
    if len(faults) > _MOST_FAULTS:
        raise UsageError(f"a scenario has at most {_MOST_FAULTS} faults, this one has {len(faults)}")
    shares = sum(fault.value("share") for fault in faults)
    if shares > _MOST_SHARES + 1e-9:
        raise UsageError(
            f"the shares of a scenario's faults add up to {_plain(_MOST_SHARES)} at most, these to {shares:.3g}"
        )


def _parse_term(term: str) -> Fault:
    match = _TERM.fullmatch(term)
    if match is None:
        begin = _NAME.match(term)
        if begin is None or begin[0] not in KINDS:
            raise _unknown(begin[0] if begin is not None else term)
        raise UsageError(
            f"scenario {term!r} is not NAME[@START[+LENGTH]][:PARAMETER=VALUE,...], for example "
            "slow-down@300+600:by=0.1 (seconds)"
        )
    name: str = match["name"]
    if name not in KINDS:
        if name in PRESETS:
            raise UsageError(f"scenario {name} takes neither times nor parameters")
        raise _unknown(name)
    given: dict[str, float] = {}
    for pair in match["values"].split(",") if match["values"] is not None else ():
        key, equals, value = pair.partition("=")
        if not equals or key not in PARAMETERS:
            takes = ", ".join(KINDS[name].takes) or "none"
            raise UsageError(f"scenario {name}: {pair!r} is not PARAMETER=VALUE; its parameters: {takes}")
        number = _number(value, f"scenario {name}: {key}={value}")
        if PARAMETERS[key].whole and not number.is_integer():
            raise UsageError(f"scenario {name}: {key}={value} is not a whole number")
        given[key] = int(number) if PARAMETERS[key].whole else number
    start, length = match["start"], match["length"]
    return Fault(
        kind=name,
        start_s=None if start is None else _number(start, f"scenario {name}: start {start}"),
        length_s=None if length is None else _number(length, f"scenario {name}: length {length}"),
        **given,  # type: ignore[arg-type] # whole numbers are int
    )


def _number(text: str, what: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}", text):
        raise UsageError(f"{what} is not a number")
    return float(text)


def _plain(number: float) -> str:
    """A number without exponent or trailing zeros, as `_number` reads it."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _unknown(name: str) -> UsageError:
    import difflib  # here: few names are wrong

    close = difflib.get_close_matches(name, SCENARIOS, n=2)
    hint = f"did you mean {' or '.join(close)}?" if close else f"choose one of {', '.join(SCENARIOS)}"
    return UsageError(f"unknown scenario {name[:50]!r}; {hint}")

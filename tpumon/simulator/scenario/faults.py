"""A fault of the job: its kind, when it begins and ends, its parameters; and the text that `--scenario` takes.

    TERM+TERM+...    where TERM is NAME[@START[+LENGTH]][:PARAMETER=VALUE,...], times since the job's start

For example `slow-down@5m+10m:by=10%+straggler:worker=3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tpumon.errors import UsageError
from tpumon.quantities import Quantity
from tpumon.simulator.scenario.basics import SECOND, hashed
from tpumon.simulator.scenario.fault_table import KINDS, PARAMETERS, PRESETS, SCENARIOS, TIME, ActiveFault, Kind
from tpumon.simulator.topology import Topology, hint_at

_LATEST_S = 1e7  # of start and length: four months
_SHORTEST_S = 1.0
_NEVER_NS = 1 << 62
_MOST_FAULTS = 12
_MOST_TEXT = 500
_MOST_SHARES = 0.8
_NAME = re.compile(r"[a-z][a-z-]*")
_TIME = r"[0-9.][0-9.a-z]*"
_TERM = re.compile(rf"(?P<name>[a-z-]+)(?:@(?P<start>{_TIME})(?:\+(?P<length>{_TIME}))?)?(?::(?P<values>[^+]*))?")
_PARTING = re.compile(r"\+(?=[a-z])")


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
        for name, time_s, least in (("start", self.start_s, 0.0), ("length", self.length_s, _SHORTEST_S)):
            if time_s is not None and not least <= time_s <= _LATEST_S:
                bounds = f"{_plain(least)} to {_plain(_LATEST_S)} seconds"
                raise _wrong(f"scenario {self.kind}: {name} {_plain(time_s)} is not within {bounds}")
        for name, parameter in PARAMETERS.items():
            value = getattr(self, name)
            if value is None:
                continue
            if name not in self.row.parameters:
                raise _no_parameter(self.kind, name)
            if not parameter.least <= value <= parameter.most:
                bounds = f"{_written(name, parameter.least)} to {_written(name, parameter.most)} ({parameter.about})"
                raise _wrong(f"scenario {self.kind}: {name}={_written(name, value)} is not within {bounds}")
        every, least = self.value("every"), self.value("lasts") + self.row.compiles_s + _SHORTEST_S
        if every and every < least:
            raise _wrong(
                f"scenario {self.kind}: every={_plain(every)} must be at least {_plain(least)}, longer than it lasts"
            )

    def __str__(self) -> str:
        """The term that stands for it."""
        text = self.kind
        if self.start_s is not None or self.length_s is not None:
            text += f"@{_plain(self.row.start_s if self.start_s is None else self.start_s)}"
        if self.length_s is not None:
            text += f"+{_plain(self.length_s)}"
        values = {name: getattr(self, name) for name in PARAMETERS}
        given = [f"{name}={_written(name, value)}" for name, value in values.items() if value is not None]
        return f"{text}:{','.join(given)}" if given else text

    @property
    def row(self) -> Kind:
        """Row of the fault in the table of kinds."""
        return KINDS[self.kind]

    @property
    def _start_ns(self) -> int:
        return int((self.row.start_s if self.start_s is None else self.start_s) * SECOND)

    @property
    def _end_ns(self) -> int:
        return _NEVER_NS if self.length_s is None else self._start_ns + int(self.length_s * SECOND)

    def _ns(self, name: str) -> int:
        """A parameter that is a time, in nanoseconds."""
        return int(self.value(name) * SECOND)

    def value(self, name: str) -> float:
        """A parameter; 0 if it does not take it, -1 if the seed is to pick and has not."""
        own = getattr(self, name)
        default = self.row.parameters.get(name, 0.0)
        return float(own if own is not None else -1 if default is None else default)

    def bound(self, topology: Topology, seed: int) -> Fault:
        """Fault with a worker and a core; the seed picks what is not given.

        Raises:
            UsageError: the TPU has no such worker or core.
        """
        hosts, devices = topology.hosts, topology.devices_per_host
        pick = hashed(seed, 1, 0, 0)
        worker, core = self.worker, self.core
        if "worker" in self.row.parameters and worker is None:
            worker = pick % hosts
        if "core" in self.row.parameters and core is None:
            core = pick // hosts % devices
        for name, number, count in (("worker", worker, hosts), ("core", core, devices)):
            if number is not None and number >= count:
                raise _wrong(
                    f"scenario {self.kind}: no {name} {number} on {topology.name}; the last {name} is {count - 1}"
                )
        if self.kind == "straggler" and hosts == 1:
            return replace(self, kind="slow-core", worker=0, core=pick % devices, by=self.value("by"))
        return replace(self, worker=worker, core=core)

    def at(self, time_ns: int) -> ActiveFault | None:
        """The fault at a moment, in nanoseconds since the job's start; None if it does not hold."""
        occurrence, within_ns = self._place(time_ns)
        if occurrence < 0:
            return None
        over_ns, lasts_ns = self._ns("over"), self._ns("lasts")
        progress = round(min(1.0, within_ns / over_ns), 3) if over_ns else 1.0
        phase: Literal["on", "after", "between"] = "on"
        if lasts_ns and within_ns >= lasts_ns:
            if within_ns < lasts_ns + int(self.row.compiles_s * SECOND):
                phase = "after"
            elif self.row.keeps:
                phase = "between"
            else:
                return None
        by, share = self.value("by"), self.value("share")
        return ActiveFault(self.kind, phase, by, share, self.worker, self.core, occurrence, progress)

    def since_ns(self, time_ns: int) -> int | None:
        """The begin of the occurrence that holds at a moment; None if none holds."""
        return None if self.at(time_ns) is None else time_ns - self._place(time_ns)[1]

    def last_ended_ns(self, time_ns: int) -> int | None:
        """The end of the last occurrence that was over by a moment, or None."""
        latest, _ = self._place(min(time_ns, self._end_ns - 1))
        for occurrence in (latest, latest - 1):
            if occurrence >= 0:
                over_ns = self._start_ns + occurrence * self._ns("every") + self._ns("lasts")
                if min(over_ns, self._end_ns) <= time_ns:
                    return min(over_ns, self._end_ns)
        return None

    def _place(self, time_ns: int) -> tuple[int, int]:
        """Number of the occurrence at a moment, and the time since its begin; -1 before the start and after the end."""
        if not self._start_ns <= time_ns < self._end_ns:
            return -1, 0
        since_ns, every_ns = time_ns - self._start_ns, self._ns("every")
        return divmod(since_ns, every_ns) if every_ns else (0, since_ns)

    def edges_ns(self, begin_ns: int, end_ns: int) -> Iterator[int]:
        """Yields the moments within (begin, end) at which the fault may begin or end."""
        every_ns, lasts_ns = self._ns("every"), self._ns("lasts")
        edges = [self._start_ns, self._end_ns]
        if lasts_ns:
            first = last = 0
            if every_ns:
                first, last = ((edge - self._start_ns) // every_ns for edge in (begin_ns, end_ns))
            for occurrence in range(max(first - 1, 0), max(last, 0) + 1):
                at_ns = self._start_ns + occurrence * every_ns
                edges += [at_ns, at_ns + lasts_ns, at_ns + lasts_ns + int(self.row.compiles_s * SECOND)]
        yield from (edge for edge in edges if begin_ns < edge < end_ns and edge <= self._end_ns)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Reads a scenario.

    Args:
        text: as in the docstring of this module; `steady` and other presets stand for the terms that they name.

    Raises:
        UsageError: it is not a scenario; the message says what is wrong with which term.
    """
    if len(text) > _MOST_TEXT:
        raise _wrong(f"a scenario has at most {_MOST_TEXT} characters, this one has {len(text)}")
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
        raise _wrong(f"a scenario has at most {_MOST_FAULTS} faults, this one has {len(faults)}")
    shares = sum(fault.value("share") for fault in faults)
    if shares > _MOST_SHARES + 1e-9:
        raise _wrong(
            f"the shares of a scenario's faults add up to {_plain(_MOST_SHARES)} at most, these to {shares:.3g}"
        )


def _parse_term(term: str) -> Fault:
    match = _TERM.fullmatch(term)
    if match is None:
        begin = _NAME.match(term)
        if begin is None or begin[0] not in KINDS:
            raise _unknown(begin[0] if begin is not None else term)
        raise _wrong(
            f"scenario {term!r} is not NAME[@START[+LENGTH]][:PARAMETER=VALUE,...], for example slow-down@5m+10m:by=10%"
        )
    name: str = match["name"]
    if name not in KINDS:
        if name in PRESETS:
            raise _wrong(f"scenario {name} takes neither times nor parameters")
        raise _unknown(name)
    given: dict[str, float] = {}
    for pair in match["values"].split(",") if match["values"] is not None else ():
        key, equals, value = pair.partition("=")
        if not equals:
            names = ", ".join(KINDS[name].parameters) or "none"
            raise _wrong(f"scenario {name}: {pair!r} is not PARAMETER=VALUE; its parameters: {names}")
        if key not in PARAMETERS:
            raise _no_parameter(name, key)
        given[key] = _given(value, PARAMETERS[key].quantity, f"scenario {name}: {key}=")
    start, length = match["start"], match["length"]
    return Fault(
        kind=name,
        start_s=None if start is None else _given(start, TIME, f"scenario {name}: start "),
        length_s=None if length is None else _given(length, TIME, f"scenario {name}: length "),
        **given,  # type: ignore[arg-type] # whole numbers are int
    )


def _given(text: str, quantity: Quantity | None, what: str) -> float:
    """The value of a quantity, or without one a whole number."""
    if quantity is None:
        if not re.fullmatch(r"[0-9]{1,9}", text):
            raise _wrong(f"{what}{text}: give a whole number")
        return int(text)
    try:
        return quantity.read(text)
    except ValueError as error:
        raise _wrong(f"{what}{error}") from None


def _written(name: str, value: float) -> str:
    """A parameter's value as `_given` reads it: a share in percent."""
    quantity = PARAMETERS[name].quantity
    return f"{_plain(100 * value)}%" if quantity is not None and quantity.kind == "share" else _plain(value)


def _plain(number: float) -> str:
    """A number without exponent or trailing zeros, as `_given` reads it."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _wrong(message: str) -> UsageError:
    return UsageError(message, option="scenario")


def _unknown(name: str) -> UsageError:
    hint = hint_at(name, SCENARIOS, f"choose one of {', '.join(SCENARIOS)}")
    return _wrong(f"unknown scenario {name[:50]!r}; {hint}")


def _no_parameter(kind: str, parameter: str) -> UsageError:
    names = tuple(KINDS[kind].parameters)
    hint = hint_at(parameter, names, f"it takes {', '.join(names) or 'none'}", most=1)
    return _wrong(f"scenario {kind} has no parameter {parameter[:50]!r}; {hint}")

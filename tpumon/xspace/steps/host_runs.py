"""Runs of programs on the host's own processors, from the ops that name their module and run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from tpumon.xspace.columns.columns import Events, Ints, join
from tpumon.xspace.columns.intervals import by_id, covered_ps
from tpumon.xspace.steps.functions import Runs, named_function

HLO_MODULE = "hlo_module"
"""Stat of ops on a GPU or on the host: a reference to the name of the module."""

RUN, DEVICE, PROGRAM = "run_id", "device_ordinal", "program_id"
"""Stats of ops on the host's own processors: their run, the device that they stand for, and their program."""

_FEW_OPS = 4  # say nothing of when a run began
_NEAR_RATIO = 0.1


def module_times_ps(names: Mapping[int, str], lines: Iterable[Events]) -> dict[str, int]:
    """Time in ops by module, summed over lines; empty if the ops do not name their modules.

    Args:
        names: of the plane's stats, by metadata id.
        lines: events of each line, with the stat HLO_MODULE.
    """
    times_ps: dict[str, int] = {}
    for events in lines:
        if (column := events.stats.get(HLO_MODULE)) is None:
            continue
        naming = column.rows
        for number, here in by_id(column.integers()[naming]):
            rows = naming[here]
            name = named_function(names.get(number, ""))
            times_ps[name] = times_ps.get(name, 0) + covered_ps(events.begin_ps[rows], events.end_ps[rows])
    return times_ps


def module_runs(names: Mapping[int, str], lines: Sequence[Events]) -> dict[str, dict[int, Runs]]:
    """Runs of each module on the host's own processors, by device; empty if the ops do not tell.

    A module's first run that lacks ops of its program began before the trace. It counts only where a single run is left
    otherwise, and the ops that both have tell when it began: steps may be nearly as long as the window.

    Args:
        names: of the plane's stats, by metadata id.
        lines: events of each line, with the stats HLO_MODULE, RUN, DEVICE and PROGRAM.
    """
    telling = [events for events in lines if HLO_MODULE in events.stats and RUN in events.stats]
    ops = join([events.select(events.stats[HLO_MODULE].present & events.stats[RUN].present) for events in telling])
    runs: dict[str, dict[int, Runs]] = {}
    if not len(ops):
        return runs
    shown = _ShownRuns.of(ops)
    for number, mine in by_id(shown.module):
        for place, here in by_id(shown.device[mine]):
            rows = mine[here]
            rows = rows[np.argsort(shown.begin_ps[rows], kind="stable")]
            runs.setdefault(named_function(names.get(number, "")), {})[place] = shown.runs(rows)
    return runs


class _ShownRuns(Struct, frozen=True, kw_only=True, eq=False):
    """Module, device, program, begin and end of each run, as far as shown; and ops, those of a run together."""

    module: Ints
    device: Ints
    program: Ints
    begin_ps: Ints
    end_ps: Ints
    first: Ints
    op: Ints
    op_begin_ps: Ints

    @classmethod
    def of(cls, ops: Events) -> _ShownRuns:
        """The runs of these ops."""
        module, run = (ops.stats[name].integers() for name in (HLO_MODULE, RUN))
        device, program = (
            ops.stats[name].integers() if name in ops.stats else np.zeros_like(run) for name in (DEVICE, PROGRAM)
        )
        order = np.lexsort((ops.metadata_id, run, device, module))
        of_op = np.stack([module, device, run])[:, order]
        first = np.flatnonzero(np.concatenate([[True], (np.diff(of_op) != 0).any(axis=0)]))
        return cls(
            module=module[order][first],
            device=device[order][first],
            program=program[order][first],
            begin_ps=np.minimum.reduceat(ops.begin_ps[order], first),
            end_ps=np.maximum.reduceat(ops.end_ps[order], first),
            first=np.append(first, len(order)),
            op=ops.metadata_id[order],
            op_begin_ps=ops.begin_ps[order],
        )

    def runs(self, rows: Ints) -> Runs:
        """Runs of one module on one device.

        Args:
            rows: theirs, by begin.
        """
        begin_ps, end_ps, before_ps = self.begin_ps[rows], self.end_ps[rows], None
        is_last = begin_ps[-1] == self.begin_ps[self.device == self.device[rows[0]]].max()
        earlier = self._of_program(rows[-1], rows[:-1][::-1])
        cut = self._lacks_ops(rows[-1], earlier) if len(earlier) else is_last
        if self._lacks_ops(rows[0], self._of_program(rows[0], rows[1:])):
            before_ps = int(begin_ps[0]), int(end_ps[0])
            lag_ps = self._lag_ps(*rows.tolist()) if len(rows) == 2 else None
            if lag_ps is None:
                begin_ps, end_ps = begin_ps[1:], end_ps[1:]
            else:
                begin_ps = np.array([begin_ps[1] - lag_ps, begin_ps[1]])
        return Runs(begin_ps=begin_ps, duration_ps=end_ps - begin_ps, cut=(False, cut), before_ps=before_ps)

    def _of_program(self, row: int, others: Ints) -> Ints:
        mine: Ints = others[self.program[others] == self.program[row]]
        return mine

    def _ops(self, row: int) -> tuple[Ints, Ints]:
        """Ops of a run, and when each began."""
        here = slice(self.first[row], self.first[row + 1])
        return self.op[here], self.op_begin_ps[here]

    def _lacks_ops(self, row: int, others: Ints) -> bool:
        """True for a run without some ops of the nearest other one of its program."""
        return bool(len(others)) and not np.isin(self._ops(others[0])[0], self._ops(row)[0]).all()

    def _lag_ps(self, row: int, later: int) -> int | None:
        """Time between two runs by the ops that both have; None: they do not tell, or repeat within a run."""
        (op, begin_ps), (later_op, later_begin_ps) = self._ops(row), self._ops(later)
        if len(np.unique(op)) < len(op) or len(np.unique(later_op)) < len(later_op):
            return None
        _, mine, its = np.intersect1d(op, later_op, assume_unique=True, return_indices=True)
        lag_ps = later_begin_ps[its] - begin_ps[mine]
        if len(lag_ps) < _FEW_OPS or np.ptp(lag_ps) > _NEAR_RATIO * np.median(lag_ps):
            return None
        return int(np.median(lag_ps))

"""The programs of a server of models in a trace: their runs by family, and the batches that they ran for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tpumon.model import FamilyRuns, ProgramFamily, TracedPrograms
from tpumon.model.server_figures import SERVING, family_of
from tpumon.xspace.columns.columns import PS_PER_S, Events, Ints
from tpumon.xspace.columns.intervals import covered_ps
from tpumon.xspace.planes.core import CoreDuty
from tpumon.xspace.planes.plane import Plane, named, parsed_metadata
from tpumon.xspace.steps.functions import Function, named_program
from tpumon.xspace.steps.host_runs import PROGRAM

_BATCH = re.compile(r"execute_model: \d{1,9} reqs, (\d{1,9}) toks")  # tpu-inference's annotation
_BATCH_BEGINS = b"execute_model: "
_LEAST_SIZE = 16  # tokens; servers compile no smaller program
_ROWS = re.compile(r" = \(?[a-z]\w*\[(\d{1,9}),\d")  # of an op's first result, if it has columns, too
_BESIDE: frozenset[ProgramFamily] = frozenset({"sample", "move"})  # all that a window shows that cuts a long step
_ID_BITS = 64
_MOST_KNOWN = 1000
_known_rows: dict[str, int | None] = {}
"""Rows of a program by its name and number, which is a hash of the program: a program is looked at once."""


def traced_programs(
    functions: Sequence[Function],
    window_ps: tuple[int, int] | None,
    *,
    duties: Sequence[CoreDuty] = (),
    cores: Sequence[Plane] = (),
    runs: Sequence[tuple[str, int, Ints, Ints]] = (),
    host: Plane | None = None,
) -> TracedPrograms | None:
    """Programs of a server in a trace; None if no function is one of a server's, or it also shows those of others.

    Args:
        functions: of the devices; where there are none, of the host.
        window_ps: first and last moment of what counts.
        duties: when each TensorCore worked, as far as its ops show it: also in programs that the window cuts.
        cores: planes of the TensorCores.
        runs: name with number, position of the core, starts and durations of each program on these.
        host: plane of the host's threads.

    Raises:
        SourceError: `malformed`.
    """
    families: dict[ProgramFamily, list[Function]] = {}
    for function in functions:
        families.setdefault(family_of(function.name), []).append(function)
    runs_model = not families.keys().isdisjoint(SERVING)
    if not runs_model and not (families and families.keys() <= _BESIDE):
        return None
    batches, tokens = _batches(host)
    sizes, padded = _sizes(cores, runs)
    if cores:
        padded_tokens = None if padded is None else round(padded * len(tokens))
    else:
        sizes, padded_tokens = _sizes_of_batches(families, batches, tokens), None
    if padded_tokens is None and len(tokens):
        padded_tokens = int(_next_sizes(tokens).sum())
    on_device = [each for each in functions if each.on_device]
    return TracedPrograms(
        families=tuple(_family(family, mine, sizes.get(family, ())) for family, mine in families.items()),
        busy_s=_busy_ps(on_device, duties) / PS_PER_S if on_device else None,
        window_s=(window_ps[1] - window_ps[0]) / PS_PER_S if window_ps else 0.0,
        real_tokens=int(tokens.sum()) if len(tokens) else None,
        padded_tokens=padded_tokens if len(tokens) else None,
        runs_model=runs_model,
    )


def _family(family: ProgramFamily, functions: Sequence[Function], sizes: Collection[int]) -> FamilyRuns:
    """The runs of some functions on the core, or thread, that has most of them."""
    counts = Counter[int]()
    for function in functions:
        counts.update({place: len(runs.whole_ps) for place, runs in function.places.items()})
    place = max(counts, key=lambda place: counts[place])
    duration_ps = np.concatenate([each.places[place].whole_ps for each in functions if place in each.places])
    durations_s = tuple((duration_ps / PS_PER_S).tolist())
    return FamilyRuns(family=family, durations_s=durations_s, sizes=tuple(sorted(sizes)))


def _busy_ps(functions: Sequence[Function], duties: Sequence[CoreDuty]) -> int:
    """Time in programs on the core with most of it."""
    spans: dict[int, list[tuple[Ints, Ints]]] = {i: [(duty.begin_ps, duty.end_ps)] for i, duty in enumerate(duties)}
    for function in functions:
        for place, runs in function.places.items():
            end_ps = runs.begin_ps + runs.duration_ps
            shown_ps = runs.begin_ps if runs.before_ps is None else np.maximum(runs.begin_ps, runs.before_ps[0])
            spans.setdefault(place, []).append((shown_ps, end_ps))
            if runs.before_ps is not None:
                spans[place].append((np.array(runs.before_ps[:1]), np.array(runs.before_ps[1:])))
    return max(covered_ps(*(np.concatenate(ends) for ends in zip(*mine, strict=True))) for mine in spans.values())


def tokens_of_batches(host: Plane) -> dict[int, int]:
    """Metadata ids of the annotations of batches, and the tokens of each; batches of none are left out.

    Raises:
        SourceError: `malformed`.
    """
    return {
        number: int(match[1])
        for number, metadata in host.metadata_by_id.items()
        if _BATCH_BEGINS in metadata and (match := _BATCH.fullmatch(parsed_metadata(metadata).name)) and int(match[1])
    }


def _batches(host: Plane | None) -> tuple[Events, Ints]:
    """The batches that the host annotates, and the tokens of each."""
    of_kind = {} if host is None else tokens_of_batches(host)
    events = host.read_kinds(host.lines(), list(of_kind)).sorted() if host is not None and of_kind else None
    if events is None:
        nothing = np.zeros(0, dtype=np.int64)
        return Events(metadata_id=nothing, begin_ps=nothing, duration_ps=nothing), nothing
    return events, np.array([of_kind[number] for number in events.metadata_id.tolist()], dtype=np.int64)


def _next_sizes(tokens: Ints) -> Ints:
    """The powers of two to which servers pad so many tokens."""
    return np.maximum(_LEAST_SIZE, 2 ** np.ceil(np.log2(tokens)).astype(np.int64))


def _sizes_of_batches(
    families: Mapping[ProgramFamily, Sequence[Function]], batches: Events, tokens: Ints
) -> dict[ProgramFamily, set[int]]:
    """Sizes of the batches in which programs of each family begin; the host's own processors run them at once."""
    sizes: dict[ProgramFamily, set[int]] = {}
    padded = _next_sizes(tokens)
    for family in SERVING & families.keys():
        for runs in (runs for function in families[family] for runs in function.places.values()):
            beyond_ps = np.append(runs.begin_ps, np.iinfo(np.int64).max)
            holding = beyond_ps[np.searchsorted(runs.begin_ps, batches.begin_ps)] < batches.end_ps
            sizes.setdefault(family, set()).update(padded[holding].tolist())
    return sizes


def _sizes(
    cores: Sequence[Plane], runs: Sequence[tuple[str, int, Ints, Ints]]
) -> tuple[dict[ProgramFamily, set[int]], float | None]:
    """Sizes by family of the programs that run the model, and the mean over their runs; None if any is not known."""
    sizes: dict[ProgramFamily, set[int]] = {}
    total = count = 0
    is_whole = True
    for core, of_core in _by_core(runs).items():
        rows = _rows(cores[core], list(of_core))
        for name, number in of_core.items():
            if (size := rows[name]) is None:
                is_whole = False
                continue
            sizes.setdefault(family_of(name), set()).add(size)
            total, count = total + size * number, count + number
    return sizes, total / count if count and is_whole else None


def _by_core(runs: Sequence[tuple[str, int, Ints, Ints]]) -> dict[int, dict[str, int]]:
    """Number of runs of each program that runs the model, by core."""
    counts: dict[int, dict[str, int]] = {}
    for name, core, begin_ps, _ in runs:
        if family_of(name) in SERVING:
            counts.setdefault(core, {})[name] = len(begin_ps)
    return counts


def _rows(core: Plane, programs: Sequence[str]) -> dict[str, int | None]:
    """The size of the batch that each program is compiled for: the rows of most of its ops' results.

    Args:
        core: whose ops tell.
        programs: names with numbers.
    """
    new = {each[0]: name for name in programs if name not in _known_rows and (each := named_program(name))}
    if new:
        counts = _rows_of_ops(core, new.keys())
        if len(_known_rows) > _MOST_KNOWN:
            _known_rows.clear()
        for number, name in new.items():
            ((rows, most),) = counts[number].most_common(1) or [(0, 0)]
            _known_rows[name] = rows if 2 * most > counts[number].total() else None
    return {name: _known_rows.get(name) for name in programs}


def _rows_of_ops(core: Plane, programs: Collection[int]) -> dict[int, Counter[int]]:
    """Rows of the results of each program's ops: how many ops have so many; those of one dimension are left out."""
    counts = {number: Counter[int]() for number in programs}
    wanted = core.numbers_of((PROGRAM,))
    for raw in core.metadata_by_id.values():
        metadata = parsed_metadata(raw)
        if (rows := _ROWS.search(metadata.name)) is None:
            continue
        number = named(metadata.stats, core.stat_names, wanted).get(PROGRAM)
        if isinstance(number, int) and (number := number % (1 << _ID_BITS)) in counts:
            counts[number][int(rows[1])] += 1
    return counts

"""Functions that a program runs again and again, and which of them is its step.

A function may be compiled several times, once for each shape: all its programs are one function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tpumon.model import FunctionFigures, Percentiles
from tpumon.model.figures import MOST_FUNCTIONS, NO_STEP
from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import PS_PER_S, Ints, Mask

EAGER = f"{NO_STEP}eager dispatch"
TOO_FEW = "no two steps in the window"

_LONGEST_NAME = 60
_PROGRAM_ID = re.compile(r"\((\d+)\)$")
_PROGRAM = re.compile(r"(.*)\((\d{1,20})\)")
_CALL = re.compile(r"PjitFunction\((.*)\)", re.DOTALL)
_JIT = re.compile(r"(?:jit|pmap)\((.*)\)", re.DOTALL)
_METADATA = re.compile(r"#.*#$", re.DOTALL)
_NAMELESS = "unnamed"

_DOMINANT_RATIO, _HEAVY_RATIO = 0.5, 0.1
_BUSY_RATIO = 0.5
_NEAR_RATIO, _PAIRS_NEAR_RATIO = 1 / 3, 1 / 5  # sums of two vary less, also where nothing is regular
_FEW_PERIODS = 5  # fewer say nothing about regularity
_MOST_RATIO = 0.6
_PAUSE_PERIODS = 10
_EAGER_FUNCTIONS = 5
_MOST_MISSED_RATIO = 1 / 8
_CLOSING_RATIO, _MOST_PARTS = 0.001, 64
_LOCKSTEP_RATIO = 0.1


# Operations of jax.lax and jax.numpy, and those of jax.nn and jax.random that compile as a function of their own.
_PRIMITIVES = """
abs absolute acos acosh add all all_gather all_to_all amax amin any append arange arccos arcsin arctan arctan2
argmax argmin argpartition argsort array_equal asin asinh atan atan2 atanh average bernoulli bitcast_convert_type
bitwise_and bitwise_not bitwise_or bitwise_xor broadcast broadcast_in_dim cbrt ceil cholesky choice clamp clip
column_stack complex concatenate conj conv_general_dilated convert_element_type convolve copy cos cosh count_nonzero
cross cumlogsumexp cummax cummin cumprod cumsum delete det diag diagonal diff div divide divmod dot dot_general
dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_update_index_in_dim dynamic_update_slice
dynamic_update_slice_in_dim eig eigh einsum elu eq equal erf erf_inv erfc exp exp2 expand_dims expm1 eye fft flip
floor floor_divide fmod full full_like gather ge gelu geqrf greater greater_equal gt heaviside hstack hypot imag inner
integer_pow inv iota is_finite isclose isfinite isinf isnan kron le leaky_relu less less_equal lgamma linspace log
log10 log1p log2 log_softmax logaddexp logical_and logical_not logical_or logical_xor logistic logsumexp lt lu matmul
max maximum mean median min minimum mod moveaxis mul multiply nan_to_num ndtri ne neg negative nextafter nonzero norm
normal not not_equal one_hot ones or outer pad percentile permutation population_count pow power prod psum qr quantile
randint random_bits ravel real reciprocal reduce reduce_and reduce_max reduce_min reduce_or reduce_precision
reduce_prod reduce_sum reduce_window relu rem remainder repeat reshape rev rng_bit_generator rng_uniform roll rot90
round rsqrt scatter scatter-add scatter_add searchsorted select select_and_scatter_add select_n shift_left
shift_right_logical sigmoid sign silu sin sinh slice softmax softplus solve sort split sqrt square squeeze stack std
sub subtract sum svd swapaxes take take_along_axis tan tanh tensordot threefry2x32 tile top_k trace transpose tri
triangular_solve tril triu true_divide trunc uniform unique unstack vdot vstack where xor zeros zeros_like
"""
_KNOWN_PRIMITIVES = frozenset(_PRIMITIVES.split())
# Beside these, what the helpers of jax.numpy and jax.random are named after: _where, _reduce_sum, _threefry_split. A
# program's own functions begin with `_`, too: _generate_jit, _train_step.
_HELPED = """
beta binomial cauchy chisquare dirichlet exponential gamma geometric geomspace gumbel laplace lognormal logspace
maxwell nanargmax nanargmin orthogonal pareto philox2x32 philox4x32 piecewise pinv poisson ptp rademacher rayleigh
resize schur searchsorted shuffle threefry threefry4x32 triangular var wald weibull
"""
_KNOWN_HELPED = _KNOWN_PRIMITIVES | frozenset(_HELPED.split())
_MOST_WORDS = 8  # of a helper's name


class Runs(Struct, frozen=True, kw_only=True, eq=False):
    """The runs of one function on one core, or its calls on one thread.

    Attributes:
        begin_ps: starts, ascending.
        duration_ps: shape as `begin_ps`.
        cut: whether the window cuts the first one, and the last one: their durations then say nothing.
        before_ps: begin and end of what is shown of a run that began before the window; None if there is none. These do
            without it, unless its ops tell when it began.
    """

    begin_ps: Ints
    duration_ps: Ints
    cut: tuple[bool, bool] = (False, False)
    before_ps: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.begin_ps)

    @property
    def whole_ps(self) -> Ints:
        """Durations of the runs that the window shows whole."""
        return self.duration_ps[int(self.cut[0]) : len(self) - int(self.cut[1])]

    @property
    def period_ps(self) -> Ints:
        """From each start to the next one."""
        return np.diff(self.begin_ps)

    def steps(self) -> Mask:
        """For each period whether it is a step: not one that is mostly a pause of many times the usual period."""
        period_ps = self.period_ps
        if len(period_ps) < _FEW_PERIODS:
            return np.ones(len(period_ps), dtype=np.bool_)
        return period_ps - self.duration_ps[:-1] <= _PAUSE_PERIODS * np.median(period_ps)

    @property
    def is_regular(self) -> bool:
        """True if the starts follow the work and not, for example, the arrival of requests.

        Half of the time is the function's own; or 60 % of the pauses after runs differ from their median by no more
        than a third of the median period; or 60 % of the pairs of periods are within a fifth of their median. Pauses
        that are no steps are left out.
        """
        steps = self.steps()
        period_ps, duration_ps = self.period_ps[steps], self.duration_ps[:-1][steps]
        if len(period_ps) < _FEW_PERIODS:
            return True
        busy_ps = np.minimum(duration_ps, period_ps)
        pairs_ps = period_ps[1:] + period_ps[:-1]
        return (
            bool(busy_ps.sum() >= _BUSY_RATIO * period_ps.sum())
            or _is_steady(period_ps - busy_ps, _NEAR_RATIO * np.median(period_ps))
            or _is_steady(pairs_ps, _PAIRS_NEAR_RATIO * np.median(pairs_ps))
        )


def _is_steady(times_ps: Ints, near_ps: float) -> bool:
    """True if most of some times are near their median."""
    return bool((np.abs(times_ps - np.median(times_ps)) <= near_ps).mean() >= _MOST_RATIO)


class Function(Struct, frozen=True, kw_only=True, eq=False):
    """One function of a host.

    Attributes:
        name: without the program's number.
        places: its runs on each core or thread that ran it, by that one's position.
        device_ps: time that devices spent on it, summed over devices; None if the trace does not say.
        on_device: whether these are runs on a device, and not calls on the host.
        programs: number of its programs, on the core that ran most; None for calls.
    """

    name: str
    places: Mapping[int, Runs]
    device_ps: int | None
    on_device: bool = False
    programs: int | None = None

    @property
    def runs(self) -> int:
        """On the core or thread that ran it most often."""
        return max(len(runs) for runs in self.places.values())

    @property
    def weight_ps(self) -> int:
        """Time of the function on devices; if unknown, in calls."""
        if self.device_ps is not None:
            return self.device_ps
        return sum(int(runs.duration_ps.sum()) for runs in self.places.values())

    @property
    def is_regular(self) -> bool:
        """True if its starts are regular on most of its cores or threads; those with two runs or more count."""
        regular = [runs.is_regular for runs in self.places.values() if len(runs) > 1]
        return 2 * sum(regular) > len(regular)

    def pauses_ps(self) -> Ints:
        """Pauses between runs that are no steps, on the core or thread that had most of them."""
        pauses = [runs.period_ps[~runs.steps()] for runs in self.places.values()]
        return max(pauses, key=lambda each: int(each.sum()))


class StepChoice(Struct, frozen=True, kw_only=True, eq=False):
    """The function that is the step.

    Attributes:
        function: the step; None if no function is.
        reason: why there is none.
    """

    function: Function | None = None
    reason: str = TOO_FEW


def choose_step(functions: Sequence[Function], annotated: int = 0) -> StepChoice:
    """The function that is the step, if the trace supports one.

    It takes most of the time and its starts are regular, or it closes each round of one that does, or the host
    annotates as many steps as it has runs.

    Args:
        functions: of one host.
        annotated: number of steps that the host annotates; 0 if it does not.
    """
    if annotated > 1:
        missed = max(1, annotated * _MOST_MISSED_RATIO)
        marked = [each for each in functions if each.runs > 1 and abs(each.runs - annotated) <= missed]
        return StepChoice(function=max(marked, key=lambda each: each.weight_ps, default=None))
    heaviest = max(functions, key=lambda each: (each.weight_ps, each.name), default=None)
    if heaviest is None:
        return StepChoice()
    if heaviest.weight_ps < _DOMINANT_RATIO * sum(each.weight_ps for each in functions):
        return StepChoice(reason=_why_none(functions))
    if heaviest.runs < 2:
        return StepChoice()
    if is_primitive(heaviest.name) and _has_other_primitives(heaviest, functions):
        return StepChoice(reason=EAGER)
    if not heaviest.is_regular:
        return StepChoice(reason=f"{NO_STEP}{heaviest.name} does not start at regular intervals")
    return StepChoice(function=_closing(heaviest, functions) or heaviest)


def _closing(part: Function, functions: Sequence[Function]) -> Function | None:
    """The function that ends each step if another one is a part of it: the update after so many sums of gradients.

    Between any two of its runs are as many of the part's, two or more, twice in a row at least; and it takes a part of
    the time that a mere sum of losses does not.
    """
    least_ps = _CLOSING_RATIO * sum(each.weight_ps for each in functions)
    others = [each for each in functions if each.weight_ps >= least_ps and not is_primitive(each.name)]
    closing = [each for each in others if each is not part and _closes(each, part)]
    return max(closing, key=lambda each: (each.weight_ps, each.name), default=None)


def _closes(other: Function, part: Function) -> bool:
    between = [
        np.diff(np.searchsorted(part.places[place].begin_ps, runs.begin_ps))
        for place, runs in other.places.items()
        if place in part.places
    ]
    return bool(between) and all(
        len(counts) > 1 and 1 < counts[0] <= _MOST_PARTS and (counts == counts[0]).all() for counts in between
    )


def keeps_step(period_s: float, functions: Sequence[Function]) -> bool:
    """True if some function that takes much time runs as often as the host says to step, or a few times as often.

    Args:
        period_s: the host's steps, on average.
        functions: what the devices ran.
    """
    least_ps = _HEAVY_RATIO * sum(each.weight_ps for each in functions)
    for runs in (runs for each in functions if each.weight_ps >= least_ps for runs in each.places.values()):
        if len(runs) > 1:
            ratio = period_s * PS_PER_S / max(float(runs.period_ps.mean()), 1.0)
            if abs(ratio - max(round(ratio), 1)) <= _LOCKSTEP_RATIO * ratio:
                return True
    return False


def _why_none(functions: Sequence[Function]) -> str:
    recurring = [each for each in functions if each.runs > 1]
    if not recurring:
        return TOO_FEW
    primitive = sum(each.runs for each in recurring if is_primitive(each.name))
    if 2 * primitive > sum(each.runs for each in recurring) or len(recurring) >= _EAGER_FUNCTIONS:
        return EAGER
    return f"{NO_STEP}no function takes most of the time"


def _has_other_primitives(function: Function, functions: Sequence[Function]) -> bool:
    return any(each.runs > 1 and is_primitive(each.name) for each in functions if each is not function)


def is_primitive(function: str) -> bool:
    """True if JAX's eager dispatch compiles a function of this name.

    Args:
        function: with or without the `jit_` of its module.
    """
    name = function.removeprefix("jit_")
    return name in _KNOWN_PRIMITIVES or (name.startswith("_") and _names_operation(name.split("_")[1:]))


def _names_operation(words: Sequence[str]) -> bool:
    """True if some words of a helper's name, one after the other, are an operation's."""
    places = range(min(len(words), _MOST_WORDS) + 1)
    return any("_".join(words[begin:end]) in _KNOWN_HELPED for end in places for begin in range(end))


def named_function(raw: str) -> str:
    """The function that a module, a call on the host or an annotation is of.

    `jit_f(123)` is jit_f, `PjitFunction(jit(f))` is f.
    """
    call = _CALL.fullmatch(raw)
    name = call[1] if call else _PROGRAM_ID.sub("", _METADATA.sub("", raw))
    inner = _JIT.fullmatch(name) if call else None
    return one_line(inner[1] if inner else name, limit=_LONGEST_NAME) or _NAMELESS


def program_of(module: str) -> str:
    """The id of the program that a module is: of jit_f(123) it is 123; the whole name where there is none."""
    number = _PROGRAM_ID.search(module)
    return number[1][:_LONGEST_NAME] if number else one_line(module, limit=_LONGEST_NAME)


def named_program(module: str) -> tuple[int, str] | None:
    """The number and name of the program that a module is: of "jit_f(123)" 123 and "jit_f"; None if it has none."""
    match = _PROGRAM.fullmatch(module)
    return (int(match[2]), one_line(match[1])) if match else None


def gather(runs: Iterable[tuple[str, int, Ints, Ints]], *, on_device: bool) -> tuple[Function, ...]:
    """The functions, from runs of programs or from calls.

    Args:
        runs: name as traced, position of the core or thread, starts and durations.
        on_device: whether these are runs on a device, so that their durations are the device's time.
    """
    parts: dict[str, dict[int, list[tuple[Ints, Ints]]]] = {}
    for raw, place, begin_ps, duration_ps in runs:
        parts.setdefault(named_function(raw), {}).setdefault(place, []).append((begin_ps, duration_ps))
    functions = []
    for name, here in parts.items():
        places = {place: _together(each) for place, each in here.items()}
        device_ps = sum(int(each.duration_ps.sum()) for each in places.values())
        known_ps, programs = (device_ps, max(map(len, here.values()))) if on_device else (None, None)
        functions.append(Function(name=name, places=places, device_ps=known_ps, on_device=on_device, programs=programs))
    return tuple(functions)


def _together(parts: Sequence[tuple[Ints, Ints]]) -> Runs:
    """Runs in the order of their starts; of several that start at once, the longest."""
    begin_ps, duration_ps = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    order = np.lexsort((-duration_ps, begin_ps))
    begin_ps, first = np.unique(begin_ps[order], return_index=True)
    return Runs(begin_ps=begin_ps, duration_ps=duration_ps[order][first])


def with_device_time(functions: Sequence[Function], device_ps: Mapping[str, int]) -> tuple[Function, ...]:
    """The host's functions with the time that their modules took; as they are if most of it is not theirs.

    Args:
        functions: called on the host, for example f.
        device_ps: time by name of the module, for example jit_f.
    """
    own_ps = [device_ps.get(f"jit_{each.name}", device_ps.get(each.name, 0)) for each in functions]
    if not device_ps or 2 * sum(own_ps) < sum(device_ps.values()):
        return tuple(functions)
    return tuple(
        Function(name=each.name, places=each.places, device_ps=time_ps)
        for each, time_ps in zip(functions, own_ps, strict=True)
    )


def as_run(functions: Sequence[Function], runs: Mapping[str, Mapping[int, Runs]]) -> tuple[Function, ...]:
    """Functions by the runs of their programs, where these are known, and not by calls: a host may be far ahead.

    Args:
        functions: called on the host, for example f.
        runs: by name of the module, for example jit_f.
    """
    return tuple(
        each
        if (own := runs.get(f"jit_{each.name}")) is None
        else replace(each, places=_cut_as_called(own, each.places), on_device=True)
        for each in functions
    )


def _cut_as_called(runs: Mapping[int, Runs], calls: Mapping[int, Runs]) -> dict[int, Runs]:
    """Runs of a function; where no call is shown before the first one, that one may have begun before the window."""
    called_ps = min(int(each.begin_ps[0]) for each in calls.values())
    return {place: _begun_before(each) if each.begin_ps[0] < called_ps else each for place, each in runs.items()}


def _begun_before(runs: Runs) -> Runs:
    """Runs without the first one; with it where it is the only one, or its ops have told when it began."""
    if runs.before_ps is not None or len(runs) == 1:
        return replace(runs, cut=(True, runs.cut[1]))
    begin_ps, duration_ps = runs.begin_ps, runs.duration_ps
    before_ps = int(begin_ps[0]), int(begin_ps[0] + duration_ps[0])
    return replace(runs, begin_ps=begin_ps[1:], duration_ps=duration_ps[1:], before_ps=before_ps)


def function_figures(hosts: Sequence[Sequence[Function]]) -> tuple[FunctionFigures, ...]:
    """The functions of all hosts that ran most, heaviest first; at most MOST_FUNCTIONS."""
    same: dict[str, list[Function]] = {}
    for functions in hosts:
        for function in functions:
            same.setdefault(function.name, []).append(function)
    total_ps = sum(each.device_ps for functions in same.values() for each in functions if each.device_ps is not None)
    heaviest = sorted(same, key=lambda name: (-sum(each.weight_ps for each in same[name]), name))
    return tuple(_figures(name, same[name], total_ps) for name in heaviest[:MOST_FUNCTIONS])


def _figures(name: str, functions: Sequence[Function], total_ps: int) -> FunctionFigures:
    places = [runs for function in functions for runs in function.places.values()]
    device = [function.device_ps for function in functions if function.device_ps is not None]
    programs = [function.programs for function in functions if function.programs is not None]
    return FunctionFigures(
        name=name,
        runs=max(function.runs for function in functions),
        period_s=_percentiles(np.concatenate([runs.period_ps for runs in places])),
        duration_s=_percentiles(np.concatenate([runs.duration_ps for runs in places])),
        device_time_ratio=sum(device) / total_ps if device and total_ps else None,
        programs=max(programs, default=None),
    )


def _percentiles(times_ps: Ints) -> Percentiles | None:
    if not len(times_ps):
        return None
    p50, p95 = np.percentile(times_ps, (50, 95)).tolist()
    return Percentiles(p50=p50 / PS_PER_S, p95=p95 / PS_PER_S)

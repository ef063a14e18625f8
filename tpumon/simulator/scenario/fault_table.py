"""The kinds of faults and the scenarios made of them: the table behind `--scenario`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Literal, NamedTuple

from msgspec import Struct, field

from tpumon.quantities import Quantity
from tpumon.simulator.scenario.step_work import Draft, SlowCores, StepPart, Stop

TIME = Quantity("time", "5m", unit="s")
_SHARE = Quantity("share", "10%", most="100%")


class Parameter(NamedTuple):
    """A parameter of a fault: its bounds, both allowed, its meaning, and its grammar; None: a whole number."""

    least: float
    most: float
    about: str
    quantity: Quantity | None


PARAMETERS: dict[str, Parameter] = {
    "worker": Parameter(0, 100_000, "number of the worker; default: one that the seed picks", None),
    "core": Parameter(0, 1_000, "number of the device on its worker; default: one that the seed picks", None),
    "by": Parameter(0.001, 1, "how much longer, as a fraction", _SHARE),
    "share": Parameter(0.01, 0.8, "share of the time from step to step", _SHARE),
    "every": Parameter(0, 1e7, "seconds from one occurrence to the next; 0: once", TIME),
    "lasts": Parameter(1, 1e7, "seconds of each occurrence", TIME),
    "over": Parameter(1, 1e7, "seconds until the fault has grown to its full size", TIME),
}
"""Every parameter that a fault may take."""


class ActiveFault(NamedTuple):
    """A fault at a moment at which it holds.

    Attributes:
        kind: a key of KINDS.
        phase: `on`; `after`: it is over, and the job still compiles; `between`: its change holds until the next
            occurrence.
        by, share: 0 where the fault does not take it.
        worker, core: None where it does not take it.
        occurrence: number of the occurrence, of faults that come again and again.
        progress: the part to which the fault has grown, from 0 to 1.
    """

    kind: str
    phase: Literal["on", "after", "between"]
    by: float
    share: float
    worker: int | None
    core: int | None
    occurrence: int
    progress: float


Change = Callable[[Draft, ActiveFault], None]


class Kind(Struct, frozen=True, kw_only=True):
    """A kind of fault.

    Attributes:
        about: one line for the list of scenarios.
        parameters: by name, with their defaults; None: the seed picks.
        stop: the reason why no step runs while it holds; None: steps run.
        change: its effect on the work of the job; None: none, or it shows elsewhere.
        keeps: whether the change also holds between occurrences.
        start_s: when it begins, unless said otherwise.
        compiles_s: the time for which the job compiles after each occurrence before it runs steps again.
    """

    about: str
    parameters: Mapping[str, float | None] = field(default_factory=dict)
    stop: Stop | None = None
    change: Change | None = None
    keeps: bool = False
    start_s: float = 0.0
    compiles_s: float = 0.0


def _share(part: StepPart) -> Change:
    return partial(_raise_share, part)


def _raise_share(part: StepPart, draft: Draft, fault: ActiveFault) -> None:
    draft.shares[part] = max(fault.share, draft.shares.get(part, 0.0))


def _compiled(**changes: str | float | bool) -> Change:
    return lambda draft, _: draft.compile(**changes)


def _stretch(draft: Draft, fault: ActiveFault) -> None:
    draft.stretch += fault.by * fault.progress


def _slow(draft: Draft, fault: ActiveFault) -> None:
    draft.slow.append(SlowCores(fault.worker or 0, fault.core, fault.by))


def _noise(draft: Draft, fault: ActiveFault) -> None:
    draft.noise += fault.by


def _recompile(draft: Draft, fault: ActiveFault) -> None:
    """A program of its own for each batch: its size changes, and with it all shapes."""
    rows = 8192 - 64 * (fault.occurrence % 32)
    draft.compile(version=fault.occurrence + 1, shape=f"bf16[{rows},8192]{{1,0}}")


_BUCKETS = 4


def _serve(draft: Draft, _fault: ActiveFault) -> None:
    draft.compile(function="run_model_impl", jax=True, convolution=3.0, loop=9.0, all_reduce=0.6, idle=0.4)


def _next_bucket(draft: Draft, fault: ActiveFault) -> None:
    """Another of the few sizes that were compiled ahead."""
    tokens = 64 << fault.occurrence % _BUCKETS
    draft.compile(version=fault.occurrence % _BUCKETS, shape=f"bf16[{tokens},8192]{{1,0}}")


_SMALL = "bf16[8,100,72]{2,1,0:T(8,128)(2,1)}"

SERVING, POOL_PRESSURE = "serving", "pool-pressure"

KINDS: dict[str, Kind] = {
    "input-bound": Kind(
        about="waits for input, in infeed; with jax between steps",
        parameters={"share": 0.44},
        change=_share(StepPart.INFEED),
    ),
    "straggler": Kind(
        about="one worker computes longer, or one core if there is one worker; the others wait in the collective",
        parameters={"worker": None, "by": 0.4},
        change=_slow,
    ),
    "compile-pause": Kind(
        about="stops to compile, and goes on with the same program",
        parameters={"every": 32, "lasts": 5},
        stop="compile",
        start_s=16,
    ),
    "idle": Kind(about="the TPU runs nothing", stop="idle"),
    "flaky": Kind(about="some calls fail or hang"),
    "crash-and-return": Kind(about="each worker's ports close for 6 to 10 s of every 40 s"),
    "overflow": Kind(about="traces are truncated until fewer SparseCores are traced"),
    "overflow-refused": Kind(about="the same, but the options for smaller traces are refused"),
    "overflow-nothing": Kind(about="the same, but with these options nothing is collected"),
    "jax": Kind(about="a JAX program: no infeed, no outfeed, no step markers", change=_compiled(jax=True)),
    "host-bound": Kind(
        about="gaps between steps: dispatch, Python, callbacks",
        parameters={"share": 0.4},
        change=_share(StepPart.HOST_GAP),
    ),
    "slow-core": Kind(
        about="one core of a worker computes longer",
        parameters={"worker": None, "core": None, "by": 0.4},
        change=_slow,
    ),
    "slow-down": Kind(about="steps take longer on all workers", parameters={"by": 0.2}, change=_stretch),
    "drift": Kind(
        about="steps take longer and longer on all workers", parameters={"by": 0.3, "over": 3600}, change=_stretch
    ),
    "hang": Kind(
        about="one worker stops, the others wait for it; the processes live",
        parameters={"worker": None},
        stop="hang",
        start_s=60,
    ),
    "recompiling": Kind(
        about="compiles again and again; each time the program has another id and other shapes",
        parameters={"every": 12, "lasts": 2},
        stop="compile",
        change=_recompile,
        keeps=True,
    ),
    "checkpoint": Kind(
        about="stops to write a checkpoint",
        parameters={"every": 300, "lasts": 10},
        stop="checkpoint",
        start_s=300,
    ),
    "evaluation": Kind(
        about="runs another program, with shorter steps",
        parameters={"every": 7200, "lasts": 1800},
        change=_compiled(function="eval_step", convolution=14.0, loop=4.0, all_reduce=0.6, idle=3.0),
        start_s=600,
    ),
    "collective-bound": Kind(
        about="collectives take long on all workers", parameters={"share": 0.4}, change=_share(StepPart.ALL_REDUCE)
    ),
    "outfeed-bound": Kind(about="waits to write outfeed", parameters={"share": 0.3}, change=_share(StepPart.OUTFEED)),
    "host-transfer-bound": Kind(
        about="waits for data from the host", parameters={"share": 0.3}, change=_share(StepPart.HOST_TRANSFER)
    ),
    "async-wait": Kind(
        about="waits for copies on their way", parameters={"share": 0.3}, change=_share(StepPart.COPY_DONE)
    ),
    "data-shuffle": Kind(
        about="changes the layout of data", parameters={"share": 0.35}, change=_share(StepPart.FORMATTING)
    ),
    "sparsecore-bound": Kind(
        about="waits for embeddings from the SparseCores",
        parameters={"share": 0.3},
        change=_share(StepPart.SPARSE_WAIT),
    ),
    "barrier-wait": Kind(about="cores wait at barriers", parameters={"share": 0.2}, change=_share(StepPart.BARRIER)),
    "debug-print": Kind(about="prints from the device", parameters={"share": 0.2}, change=_share(StepPart.DEBUG_PRINT)),
    "small-shapes": Kind(
        about="small, padded shapes: the device is busy, the matrix units are not",
        change=_compiled(efficiency=0.06, convolution_bandwidth=0.1, loop_bandwidth=0.2, shape=_SMALL),
    ),
    "memory-bound": Kind(
        about="HBM is the limit",
        change=_compiled(convolution=6.0, loop=46.0, idle=3.0, convolution_bandwidth=0.5, loop_bandwidth=0.95),
    ),
    "compute-bound": Kind(
        about="the matrix units are the limit: as it should be",
        change=_compiled(convolution=54.0, loop=3.0, idle=2.0, efficiency=0.92, convolution_bandwidth=0.2),
    ),
    "hbm-leak": Kind(about="HBM in use grows until it is full", parameters={"over": 3600}),
    "hbm-nearly-full": Kind(about="95 % of HBM is in use"),
    "jitter": Kind(
        about="workers' compute time varies from step to step, and steps drift by 3 % over minutes",
        parameters={"by": 0.02},
        change=_noise,
    ),
    "restart": Kind(
        about="all workers' processes end and start again",
        parameters={"every": 0, "lasts": 20},
        stop="away",
        start_s=60,
        compiles_s=8,
    ),
    SERVING: Kind(about="a server of models that is always busy, with its own metrics", change=_serve),
    "quiet-night": Kind(about="no request comes", parameters={"every": 0, "lasts": 900}, stop="quiet", start_s=60),
    "bursts": Kind(about="requests come in bursts", parameters={"every": 20, "lasts": 8}, stop="quiet", start_s=8),
    "buckets": Kind(
        about="programs of four sizes, compiled ahead, in turn",
        parameters={"every": 6, "lasts": 1},
        change=_next_bucket,
        keeps=True,
    ),
    "stuck": Kind(about="requests run, but no program does", stop="stuck", start_s=60),
    POOL_PRESSURE: Kind(about="the cache of keys and values is full: requests wait, and are put back", start_s=30),
    "preemption": Kind(
        about="one worker goes away and returns; the others wait for it",
        parameters={"worker": None, "every": 0, "lasts": 60},
        stop="away",
        start_s=60,
        compiles_s=8,
    ),
}
"""Every kind of fault, by name."""

PRESETS: dict[str, tuple[str, str]] = {
    "steady": ("nothing is wrong", ""),
    "normal-life": (
        "jitter, checkpoints, evaluation, a restart every 7 hours, a preemption every 11",
        "jitter+checkpoint+evaluation@3600:every=10800+restart@9000:every=25200+preemption@18000:every=39600",
    ),
    "server-life": (
        "a server with several sizes, bursts and a quiet night",
        "serving+buckets+bursts@30+600+quiet-night@900:every=3600,lasts=1800",
    ),
}
"""Scenarios that are no fault, or several: one line, and the terms that they stand for."""

SCENARIOS: tuple[str, ...] = ("steady", *KINDS, *(name for name in PRESETS if name != "steady"))
"""Every scenario; the first is the default."""


class ListedScenario(NamedTuple):
    """A scenario in the list: its name, one line, its parameters with their defaults and when it begins."""

    name: str
    about: str
    settings: tuple[str, ...]


def listed() -> Iterator[ListedScenario]:
    """Yields every scenario for help pages and docs, the default first."""
    for name in SCENARIOS:
        if name in PRESETS:
            yield ListedScenario(name, PRESETS[name][0], ())
            continue
        kind = KINDS[name]
        parameters = [key if default is None else f"{key}={default:g}" for key, default in kind.parameters.items()]
        settings = [", ".join(parameters)] if parameters else []
        if kind.start_s:
            settings.append(f"From second {kind.start_s:g}")
        yield ListedScenario(name, kind.about, tuple(settings))

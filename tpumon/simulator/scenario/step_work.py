"""The work of a step: the program and its ops, and the length of each part at full health.

The faults that hold at a moment change a `Draft`; `Draft.finish` makes the `StepWork` of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple, replace

from tpumon.simulator.scenario.basics import MS

FUSIONS = 3  # convolution fusions per step, and as many loop fusions

Stop = Literal["idle", "away", "hang", "compile", "checkpoint", "quiet", "stuck"]
"""A reason why no step runs. Of servers: quiet, no request comes; stuck, requests wait for nothing."""


class StepPart(IntEnum):
    """Part of a step. Parts that are ops come first; the value is their index in `HLO_CATEGORIES`."""

    INFEED = 0
    CONVOLUTION = 1
    LOOP = 2
    ALL_REDUCE = 3
    OUTFEED = 4
    HOST_TRANSFER = 5
    FORMATTING = 6
    COPY_DONE = 7
    SPARSE_WAIT = 8
    BARRIER = 9
    DEBUG_PRINT = 10
    IDLE = 11
    INPUT_GAP = 12  # between steps: the host has no input ready
    HOST_GAP = 13  # between steps: the host does something else


HLO_CATEGORIES = (
    "infeed",
    "convolution fusion",
    "loop fusion",
    "all-reduce",
    "outfeed",
    "host recv-done",
    "data formatting",
    "copy-done",
    "sparsecorev0 infeed wait",
)


class StepOp(NamedTuple):
    """One op of a step: its name, its part, its code in HLO, and where it comes from, if the trace says so."""

    name: str
    part: StepPart
    code: str
    tf_op: str = ""


OPS: tuple[StepOp, ...] = (
    StepOp("infeed.1", StepPart.INFEED, "infeed"),
    *(
        op
        for i in range(1, FUSIONS + 1)
        for op in (
            StepOp(f"convolution_fusion.{i}", StepPart.CONVOLUTION, "fusion"),
            StepOp(f"loop_fusion.{i}", StepPart.LOOP, "fusion"),
        )
    ),
    StepOp("all-reduce.1", StepPart.ALL_REDUCE, "all-reduce"),
    StepOp("outfeed.1", StepPart.OUTFEED, "outfeed"),
    StepOp("recv-done.1", StepPart.HOST_TRANSFER, "recv-done", "train_step/io_callback"),
    StepOp("copy.1", StepPart.FORMATTING, "copy", "train_step/transpose"),
    StepOp("copy-done.1", StepPart.COPY_DONE, "copy-done", "train_step/device_put"),
    StepOp("infeed.2", StepPart.SPARSE_WAIT, "infeed", "train_step/embedding_lookup"),
)
"""Every op that a step may have. A step has those whose part takes time."""

PROGRAM_ID = 7_310_467_204_561_120_160


class StepProgram(Struct, frozen=True, kw_only=True):
    """A compiled program. Durations are milliseconds on a core that is not slow.

    Attributes:
        function: name of the function that it was compiled from.
        version: number of its compilation.
        convolution, loop, all_reduce, idle: durations; the other parts are the job's.
        efficiency: share of the peak FLOP/s that a convolution fusion reaches at its nominal length. Its FLOPs are
            constant, as in a real program, so that a slower step means a lower MXU utilization.
        convolution_bandwidth, loop_bandwidth: shares of the HBM bandwidth that fusions use at their nominal length.
        shape: of the result of each op, as in HLO.
        jax: whether it has no infeed, no outfeed and no step markers.
    """

    function: str = "train_step"
    version: int = 0
    convolution: float = 38.4
    loop: float = 10.9
    all_reduce: float = 5.1
    idle: float = 8.0
    efficiency: float = 0.75
    convolution_bandwidth: float = 0.25
    loop_bandwidth: float = 0.7
    shape: str = "bf16[8192,8192]{1,0}"
    jax: bool = False

    @property
    def number(self) -> int:
        return _number(self)

    @property
    def module(self) -> str:
        return f"jit_{self.function}({self.number})"

    def flops(self, op: int, peak_flops: float) -> int:
        """FLOPs of one run of an op on a device with that peak."""
        if OPS[op].part is not StepPart.CONVOLUTION:
            return 0
        return int(peak_flops * self.efficiency * self.convolution / 1e3 / FUSIONS)

    def bytes(self, op: int, bandwidth_bytes_per_s: float) -> int:
        """Bytes that one run of an op moves to and from HBM."""
        if OPS[op].part is StepPart.CONVOLUTION:
            return int(bandwidth_bytes_per_s * self.convolution_bandwidth * self.convolution / 1e3 / FUSIONS)
        if OPS[op].part is StepPart.LOOP:
            return int(bandwidth_bytes_per_s * self.loop_bandwidth * self.loop / 1e3 / FUSIONS)
        return 0

    def tf_op(self, op: int) -> str:
        """The provenance of an op in the framework; empty if the trace does not say."""
        return OPS[op].tf_op or (f"jit({self.function})/{OPS[op].name.partition('.')[0]}" if self.jax else "")


TRAINING = StepProgram()


@lru_cache(maxsize=256)
def _number(program: StepProgram) -> int:
    if program == TRAINING:
        return PROGRAM_ID
    return int.from_bytes(blake2b(repr(astuple(program)).encode(), digest_size=8).digest(), "little") >> 1


class SlowCores(NamedTuple):
    """Cores that compute longer: those of a worker, or one of them; `by` is a fraction of their compute time."""

    worker: int
    core: int | None
    by: float


class StepWork(Struct, frozen=True, kw_only=True):
    """The work of the job at a moment.

    Attributes:
        program: the program that runs.
        ms: nominal duration of each part in milliseconds, by `StepPart`, on a core that is not slow.
        elastic: parts that take up the slack, if a step is longer or shorter than its nominal length.
        slow: cores that compute longer, so that the others wait for them in the collective.
        noise: fraction by which each worker's compute time varies from step to step.
        slowest: compute time of the slowest core, as a multiple of the nominal one.
        stop: the reason why no step runs; None if steps run.
        missing: the worker that does not take part any more when a stop begins, so that the others wait for it.
        waits_for_input: whether waiting for input is a fault here, which host events then show.
    """

    program: StepProgram
    ms: tuple[float, ...]
    elastic: tuple[StepPart, ...]
    slow: tuple[SlowCores, ...] = ()
    noise: float = 0.0
    slowest: float = 1.0
    stop: Stop | None = None
    missing: int | None = None
    waits_for_input: bool = False

    @property
    def compute_ms(self) -> float:
        """Nominal time in fusions."""
        return self.ms[StepPart.CONVOLUTION] + self.ms[StepPart.LOOP]

    @property
    def period_ns(self) -> float:
        """Nominal time from step to step."""
        others = sum(ms for part, ms in enumerate(self.ms) if part not in {StepPart.CONVOLUTION, StepPart.LOOP})
        return (self.compute_ms * self.slowest + others) * MS

    def factor(self, worker: int, core: int, noise: float) -> float:
        """Compute time of a core as a multiple of the nominal one; `noise` is random, from 0 to 1."""
        return 1.0 + _excess(self.slow, worker, core) + self.noise * noise


def _excess(slow: tuple[SlowCores, ...], worker: int, core: int | None) -> float:
    return sum(slow_core.by for slow_core in slow if slow_core.worker == worker and slow_core.core in {None, core})


@dataclass(slots=True, kw_only=True)
class Draft:
    """Work that faults still change; attributes as in `StepWork`.

    Attributes:
        stretch: length of a step on all cores, as a multiple of the nominal one; what is more is compute time.
        shares: share of the time from step to step that a part takes.
    """

    program: StepProgram = TRAINING
    stretch: float = 1.0
    shares: dict[StepPart, float] = field(default_factory=dict)
    slow: list[SlowCores] = field(default_factory=list)
    noise: float = 0.0
    stop: Stop | None = None
    missing: int | None = None

    def finish(self) -> StepWork:
        """Returns the work, in which every part has its share."""
        program = self.program
        ms = [0.0] * len(StepPart)
        ms[StepPart.CONVOLUTION], ms[StepPart.LOOP] = program.convolution, program.loop
        ms[StepPart.ALL_REDUCE], ms[StepPart.IDLE] = program.all_reduce, program.idle
        # A shorter step has less input.
        length = (program.convolution + program.loop) / (TRAINING.convolution + TRAINING.loop)
        ms[StepPart.INPUT_GAP if program.jax else StepPart.INFEED] = 1.3 * length
        ms[StepPart.OUTFEED] = 0.0 if program.jax else 0.3 * length
        if self.stretch != 1.0:
            extra = 1 + (self.stretch - 1) * sum(ms) / (program.convolution + program.loop)
            ms[StepPart.CONVOLUTION] *= extra
            ms[StepPart.LOOP] *= extra
        shares = dict(self.shares)
        waits_for_input = StepPart.INFEED in shares
        if program.jax and waits_for_input:
            shares[StepPart.INPUT_GAP] = shares.pop(StepPart.INFEED)
        for part in shares:
            ms[part] = 0.0
        total = sum(ms) / (1 - sum(shares.values()))
        for part, share in shares.items():
            ms[part] = share * total
        elastic = {StepPart.IDLE, StepPart.INPUT_GAP if program.jax else StepPart.INFEED, *shares}
        slow = tuple(self.slow)
        places = product({slow_core.worker for slow_core in slow}, {slow_core.core for slow_core in slow})
        return StepWork(
            program=program,
            ms=tuple(ms),
            elastic=tuple(sorted(elastic)),
            slow=slow,
            noise=self.noise,
            slowest=1.0 + max((_excess(slow, *place) for place in places), default=0.0) + self.noise,
            stop=self.stop,
            missing=self.missing,
            waits_for_input=waits_for_input,
        )

    def compile(self, **changes: str | float | bool) -> None:
        """Replaces the program by one that differs in some attributes."""
        self.program = replace(self.program, **changes)

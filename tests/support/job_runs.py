"""Runs of a job, simulated or made by hand, that a test gives to every output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from support.sample_kinds import on_cpu
from support.samples import failed_sample, sample
from support.scenes import BEGIN_UNIX_S, Scene
from tpumon.errors import NOT_SEEN
from tpumon.model import Sample, Spread, StepTimes, Target, Workers

INTERVAL_S = 10.0


@dataclass
class JobRun:
    """What happens to a job.

    Attributes:
        name: of the run.
        workers: who they are.
        rounds: samples of each round, in order of time.
        ends: the time at the end of each round.
        interval_s: seconds from one sample of a worker to its next one.
        wanted: findings that must be there at the end.
    """

    name: str
    workers: Workers
    rounds: Sequence[Sequence[Sample]]
    ends: Sequence[float]
    interval_s: float = INTERVAL_S
    wanted: frozenset[str] = field(default_factory=frozenset)

    @property
    def samples(self) -> Iterator[Sample]:
        """All of them."""
        for one in self.rounds:
            yield from one


def simulated(
    scenario: str, rounds: int = 16, *, wanted: Sequence[str] = (), interval_s: float = INTERVAL_S, **given
) -> JobRun:
    """The run of a simulated job, of one job and slice."""
    scene = Scene(scenario, interval_s=interval_s, **given)
    return JobRun(
        name=scenario,
        workers=Workers(targets=tuple(replace(one, job="j") for one in scene.workers.targets)),
        rounds=[[replace(one, job="j", slice="s") for one in scene.round(number)] for number in range(rounds)],
        ends=[BEGIN_UNIX_S + interval_s * (number + 1) for number in range(rounds)],
        interval_s=interval_s,
        wanted=frozenset(wanted),
    )


Make = Callable[[str, int], Sample | None]
"""Makes the sample of a worker in a round; None: none came."""


def made(name: str, targets: Sequence[Target], make: Make, rounds: int = 12, *, wanted: Sequence[str] = ()) -> JobRun:
    """A run of samples made by hand; each is given its time, its address, and its job."""
    everything = []
    for number in range(rounds):
        taken = []
        for place, target in enumerate(targets):
            one = make(target.worker, number)
            if one is not None:
                at = BEGIN_UNIX_S + INTERVAL_S * (number + place / len(targets))
                known = {"worker": target.worker, "address": target.address, "job": target.job, "slice": target.slice}
                taken.append(replace(one, time_unix_s=at, took_s=0.4, window_s=0.35, interval_s=INTERVAL_S, **known))
        everything.append(taken)
    ends = [BEGIN_UNIX_S + INTERVAL_S * (number + 1) for number in range(rounds)]
    return JobRun(name, Workers(targets=tuple(targets)), everything, ends, wanted=frozenset(wanted))


def target(worker: str, **known) -> Target:
    """A worker of job j and slice s, unless said otherwise."""
    return Target(worker=worker, address=f"{worker.replace('/', '-')}:9999", **{"job": "j", "slice": "s"} | known)


def running(worker: str = "w0", **given) -> Sample:
    """A worker that steps as it should."""
    times = StepTimes(avg=0.1, min=0.1, max=0.1, count=5)
    usual = {"step_time_s": times, "step_work_s": 0.06, "idle_ratio": 0.1, "mxu_utilization_ratio": 0.4}
    return sample(worker, **usual | {"infeed_ratio": Spread(avg=0.01, min=0.01, max=0.01)} | given)


_FOUR = tuple(target(f"w{number}") for number in range(4))


def _from(number: int, then: Make, whose: str = "w1") -> Make:
    """One worker becomes another from a round on."""
    return lambda worker, now: then(worker, now) if worker == whose and now >= number else running(worker)


def _hbm(ratio: float):
    return [{"device": "0", "hbm_used_bytes": int(ratio * (16 << 30)), "hbm_total_bytes": 16 << 30}]


def _waits(ratio: float) -> Spread:
    return Spread(avg=ratio, min=ratio, max=ratio)


def _restarting(worker: str, number: int) -> Sample:
    uptime_s = 1000.0 + 10 * number if number < 7 else 10.0 * (number - 6)
    slow = {"step_work_s": 0.09} if worker == "w1" and number < 7 else {}
    return running(worker, runtime={"uptime_s": uptime_s}, **slow)


def _refused(worker: str) -> Sample:
    return failed_sample(worker, "unavailable", "connection refused", "connection-refused")


def _down_then_back(worker: str, number: int) -> Sample:
    if worker == "w1" and 5 <= number < 8:
        return _refused(worker)
    return running(worker, runtime={"uptime_s": 1000.0 + 10 * number if number < 8 or worker != "w1" else 5.0})


def _alone(worker: str, number: int) -> Sample:
    return running(worker, infeed_ratio=_waits(0.3)) if worker == "w1" and number > 3 else running(worker)


def _slow(worker: str, _number: int) -> Sample:
    return running(worker, step_work_s=0.09)


NAMESPACES = (
    *(
        target(f"{job}/s/{name}", job=job, name=name)
        for job in ("one/train", "two/train")
        for name in ("w0", "w1", "w2")
    ),
)


def _namespaces(worker: str, number: int) -> Sample:
    return _slow(worker, number) if worker == "two/train/s/w1" and number > 2 else running(worker)


def by_hand() -> Iterator[JobRun]:
    """Runs that no simulator makes."""
    yield made("steady by hand", _FOUR, lambda worker, _: running(worker))
    yield made("straggler by hand", _FOUR, _from(4, _slow), wanted=["straggler"])
    yield made("busy", _FOUR, _from(6, lambda worker, _: failed_sample(worker, "busy", "another session")))
    yield made(
        "busy while it straggles", _FOUR,
        lambda worker, number: running(worker) if worker != "w1" or number < 3
        else _slow(worker, number) if number < 8 else failed_sample(worker, "busy", "another session"),
        wanted=["straggler"],
    )  # fmt: skip
    yield made("paused", _FOUR, lambda worker, number: running(worker) if number < 6
               else failed_sample(worker, "paused", "paused"))  # fmt: skip
    yield made("down", _FOUR, _from(6, lambda worker, _: _refused(worker)))
    yield made("all down", _FOUR, lambda worker, number: running(worker) if number < 6 else _refused(worker))
    yield made(
        "down from the first", _FOUR, _from(0, lambda worker, _: failed_sample(worker, "unavailable", "refused"))
    )
    yield made("down and back", _FOUR, _down_then_back)
    yield made("stale", _FOUR, _from(6, lambda _worker, _number: None))
    yield made("stale straggler", _FOUR,
               lambda worker, number: None if worker == "w1" and number >= 8 else
               _slow(worker, number) if worker == "w1" and number > 2 else running(worker))  # fmt: skip
    yield made("truncated", _FOUR, _from(6, lambda worker, _: running(worker, truncated="ops dropped")))
    yield made("HBM nearly full", _FOUR, _from(6, lambda worker, _: running(worker, devices=_hbm(0.93))),
               wanted=["hbm-nearly-full"])  # fmt: skip
    yield made("HBM full", _FOUR, _from(6, lambda worker, _: running(worker, devices=_hbm(0.98))),
               wanted=["hbm-nearly-full"])  # fmt: skip
    yield made("restart of a job with a straggler", _FOUR, _restarting)
    yield made("two independent workers", (target("w0", independent=True), target("w1", independent=True)), _alone,
               wanted=["input-bound"])  # fmt: skip
    yield made("without job and slice", tuple(target(f"w{i}", job=None, slice=None) for i in range(3)), _from(4, _slow),
               wanted=["straggler"])  # fmt: skip
    yield made("two namespaces", NAMESPACES, _namespaces, wanted=["straggler"])
    yield made("on a CPU", (target("w0", independent=True),), lambda worker, _: on_cpu(worker))
    yield made("nothing can be seen", _FOUR, _from(0, lambda worker, _: failed_sample(
        worker, "empty-trace", f"{NOT_SEEN}: no TPU", "not-seen")))  # fmt: skip
    yield made("warning, then critical", _FOUR, _from(3, lambda worker, number: running(
        worker, step_work_s=0.064 if number < 8 else 0.09)), wanted=["straggler"])  # fmt: skip


COMPUTED: Sequence[tuple[str, Sequence[str]]] = (
    ("steady", ()),
    ("jitter", ()),
    ("straggler@80:worker=1,by=0.4", ["straggler"]),
    ("straggler@80:worker=1,by=0.1+jitter", ["straggler"]),
    ("straggler@40+60:worker=1,by=0.4", ()),
    ("hang@80:worker=1", ["hang"]),
    ("input-bound@80", ["input-bound"]),
    ("input-bound@80:share=0.15+jitter", ["input-bound"]),
    ("input-bound@80+straggler@80:worker=1,by=0.3", ["input-bound"]),
    ("slow-down@120:by=0.5", ["slow-down"]),
    ("hbm-nearly-full@80", ["hbm-nearly-full"]),
    ("preemption@80:worker=1,lasts=60", ()),
    ("preemption@80:worker=1,lasts=25", ()),
    ("restart@80:lasts=20", ()),
    ("idle@80", ()),
)
TRACED: Sequence[tuple[str, Sequence[str]]] = (
    ("host-bound@60", ["host-bound"]),
    ("compute-bound@60", ["compute-bound"]),
    ("collective-bound@60", ["collective-bound"]),
    ("memory-bound@60", ["memory-bound"]),
    ("recompiling@60", []),
    ("jax+input-bound@60", ["idle"]),
    ("jax+straggler@60:by=0.1", ["straggler"]),
    ("jax+hang@60", ["hang"]),
    ("slow-core@60:by=0.4", ["straggler"]),
    ("small-shapes@60", ["low-mxu"]),
    ("overflow@60", ["truncated"]),
    ("outfeed-bound@60", ["outfeed-bound"]),
    ("debug-print@60", ["debug-print"]),
)


def every() -> Iterator[tuple[str, Callable[[], JobRun]]]:
    """The name of each run, and what makes it."""
    for scenario, wanted in COMPUTED:
        yield scenario, partial(simulated, scenario, 18, wanted=wanted, computed=True)
    for scenario, wanted in TRACED:
        topology = "v6e-8" if "jax" not in scenario else "v6e-16"
        yield scenario, partial(simulated, scenario, 11, wanted=wanted, topology=topology)
    long = "hang@120:worker=1"
    yield f"{long}, for minutes", partial(simulated, long, 18, wanted=["hang"], interval_s=60.0, computed=True)
    leak = "hbm-leak@60:over=3600+jitter"
    yield leak, partial(simulated, leak, 110, wanted=["hbm-growing"], topology="v6e-8", computed=True)
    for run in by_hand():
        yield run.name, partial(_itself, run)


def _itself(run: JobRun) -> JobRun:
    return run

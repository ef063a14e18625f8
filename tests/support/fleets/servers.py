"""Servers of models that are well, under loads of many kinds, and servers in trouble, in virtual time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from support.fleets.courses import BEGIN_S
from support.samples import failed_sample, sample
from tpumon.model import (
    FamilyFigures,
    FunctionFigures,
    Percentiles,
    Process,
    Sample,
    ServerFigures,
    StepTimes,
    Target,
)

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86_400.0
_INTERVAL_S = 30.0
_HBM_BYTES = 32 << 30
_MOST_RUNNING = 64
_OPS = {"compute": 0.7, "collective": 0.2, "data_shuffle": 0.1}
_PROGRAMS = ("jit_run_model_impl", "jit_sample", "jit_run_compute_logits")


@dataclass(frozen=True)
class Load:
    """What a server is asked and does at one moment.

    Attributes:
        requests: that run and wait on its page; None: it has none yet.
        own: of these, those of its own chip; None: all.
        tokens_per_s: as its page counts them.
        context: length of a step relative to the usual.
        silent: no program runs although there are requests.
        reason: why the profiler gives nothing, if that is it.
        server: further figures of the server.
        figures: further figures of the window.
    """

    requests: int | None
    own: int | None = None
    tokens_per_s: float = 0.0
    context: float = 1.0
    silent: bool = False
    reason: str | None = None
    server: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)


Loads = Callable[[float, random.Random], Sequence[Load]]
"""What each replica is asked so many seconds after the begin."""


@dataclass(frozen=True)
class Server:
    """Replicas of one server.

    Attributes:
        loads: what they are asked.
        replicas: how many they are.
        hbm_ratio: share of HBM in use, by time.
        began_s: when the process began that runs at a time: another one is a restart.
    """

    loads: Loads
    replicas: int = 1
    hbm_ratio: Callable[[float], float] = lambda _at_s: 0.88
    began_s: Callable[[float], float] = lambda _at_s: 0.0

    @property
    def targets(self) -> Sequence[Target]:
        """Its workers, of which nobody says that they serve."""
        return [
            Target(worker=f"w{number}", address=f"w{number}:9999", job="j", independent=self.replicas == 1)
            for number in range(self.replicas)
        ]

    def samples(self, hours: float, seed: int, *, with_metrics: bool = True) -> Iterator[Sample]:
        """Its samples, with the server's own metrics or without."""
        draw = random.Random(seed)
        for number in range(int(hours * _HOUR_S / _INTERVAL_S)):
            at_s = _INTERVAL_S * number + draw.uniform(0, 3)
            for place, load in enumerate(self.loads(at_s, draw)):
                yield self._sample(f"w{place}", at_s + place, load, draw, with_metrics=with_metrics)

    def _sample(self, worker: str, at_s: float, load: Load, draw: random.Random, *, with_metrics: bool) -> Sample:
        used = int(_HBM_BYTES * self.hbm_ratio(at_s))
        given = {
            "address": f"{worker}:9999",
            "time_unix_s": BEGIN_S + at_s,
            "taken_monotonic_s": BEGIN_S + at_s,
            "interval_s": _INTERVAL_S,
            "job": "j",
            "process": Process(pid=1 + int(self.began_s(at_s)), started_unix_s=BEGIN_S + self.began_s(at_s)),
            "hbm_used_bytes": used,
            "hbm_total_bytes": _HBM_BYTES,
            "devices": [{"device": "0", "hbm_used_bytes": used, "hbm_total_bytes": _HBM_BYTES}],
            "server": _server(load, draw, with_metrics=with_metrics),
        }
        if load.reason is not None:
            return failed_sample(worker, load.reason, **given)
        own = load.requests if load.own is None else load.own
        if load.silent or (not own and not load.figures):
            return failed_sample(worker, "empty-trace", source="runtime", **given)
        return sample(worker, **given, **(_window(own or 0, load.context, draw) | dict(load.figures)))


def _server(load: Load, draw: random.Random, *, with_metrics: bool) -> ServerFigures:
    own = (load.requests if load.own is None else load.own) or 0
    busy = 0.0 if load.silent else min(own / 4, 1.0) * draw.uniform(0.7, 0.9)
    step = FamilyFigures(family="step", executions_per_s=50 * busy, duration_s=Percentiles(p50=0.015, p95=0.03))
    figures: dict[str, Any] = {"busy_ratio": busy, "families": (step,) if own else ()}
    if with_metrics and load.requests is not None:
        figures |= {
            "requests_running": float(min(load.requests, _MOST_RUNNING)),
            "requests_waiting": float(max(load.requests - _MOST_RUNNING, 0)),
            "tokens_per_s": load.tokens_per_s,
            "kv_used_ratio": min(load.requests / _MOST_RUNNING, 0.93),
            "preemptions_per_s": 0.0,
            "padding_ratio": 0.77 if load.requests < 8 else draw.uniform(0.2, 0.45),
            "host_gap_ratio": draw.uniform(0.08, 0.28) if own else None,
        }
    return ServerFigures(**(figures | (dict(load.server) if with_metrics else {})))


def _window(requests: int, context: float, draw: random.Random) -> dict[str, Any]:
    """A window in which steps run: of a program for that many requests, for as long as there are any."""
    bucket = 1 << max(requests - 1, 0).bit_length()
    step_s = 0.009 * context * (1 + 0.01 * bucket) * draw.uniform(0.9, 1.1)
    idle = draw.uniform(0.02, 0.78 if requests < 3 else 0.25)
    return {
        "step_time_s": StepTimes(avg=step_s, min=0.9 * step_s, max=1.3 * step_s, count=10),
        "step_source": "modules",
        "step_name": _PROGRAMS[0],
        "functions": tuple(FunctionFigures(name=name, runs=10) for name in _PROGRAMS),
        "programs": (str(1000 + bucket),),
        "idle_ratio": idle,
        "idle_between_programs_ratio": 0.9 * idle,
        "op_time_ratios": {kind: ratio * (1 - idle) for kind, ratio in _OPS.items()},
        "step_work_s": step_s * (1 - idle) * 0.8,
        "mxu_utilization_ratio": draw.uniform(0.02, 0.2),
        "compile_ratio": 0.0,
        "truncated": "events end 0.339 s before the window does" if draw.random() < 0.05 else None,
    }  # fmt: skip


def _poisson(mean: float, draw: random.Random) -> int:
    if mean > 30:
        return max(round(draw.gauss(mean, math.sqrt(mean))), 0)
    count, product = 0, draw.random()
    while product > math.exp(-mean):
        count, product = count + 1, product * draw.random()
    return count


def _asked(rate: float, draw: random.Random, *, lasts_s: float = 1.5, **given: Any) -> Load:
    """What so many requests a second, of 100 tokens each, make of a moment."""
    requests = _poisson(rate * lasts_s, draw)
    tokens_per_s = 100.0 * _poisson(rate * _INTERVAL_S, draw) / _INTERVAL_S + 30.0 * (requests > 0)
    return Load(requests, tokens_per_s=tokens_per_s, **given)


def _one(rate: Callable[[float], float], **given: Any) -> Loads:
    return lambda at_s, draw: [_asked(rate(at_s), draw, **given)]


def _by_day(at_s: float) -> float:
    """Nobody asks from 22 to 6 o'clock."""
    hour = at_s % _DAY_S / _HOUR_S
    return 6.0 * max(math.sin(math.pi * (hour - 6) / 16), 0.0) if 6 < hour < 22 else 0.0


def _early(at_s: float) -> float:
    """The night begins two hours after the begin."""
    return _by_day(at_s + 20 * _HOUR_S)


def _trickle(at_s: float, _draw: random.Random) -> Sequence[Load]:
    """A request each 25 s, of 0.7 s: few windows begin while one runs, but its tokens are counted."""
    return [Load(int(at_s % 25 < 0.7), tokens_per_s=4.0)]


def _ramp(at_s: float) -> float:
    return 1 + 149 * min(at_s % _HOUR_S / 65, 1.0)


def _growing(at_s: float, draw: random.Random) -> Sequence[Load]:
    return [_asked(4.0, draw, context=1 + at_s % 360 / 360)]


def _replicas(at_s: float, draw: random.Random) -> Sequence[Load]:
    """Four replicas, unequal, each by its own: longer contexts here, more requests there."""
    return [
        _asked(5.0 + place, draw, context=1 + 0.08 * place + 0.04 * math.sin(at_s / 3000 + place)) for place in range(4)
    ]


def _ranks(at_s: float, draw: random.Random) -> Sequence[Load]:
    """Two of four ranks have no requests for hours; a page counts those of all together."""
    every = _asked(2.0 + math.sin(at_s / 5000), draw)
    own = [every.requests, every.requests // 2, 0, 0] if every.requests is not None else [0] * 4
    return [replace(every, own=each, server={"engines": 4, "host_gap_ratio": None}) for each in own]


def _warming(at_s: float, draw: random.Random) -> Sequence[Load]:
    """Each day a new process: weights for 5 minutes, programs until 15, the last ones by first requests until 20."""
    since_s = at_s % _DAY_S
    if since_s < 5 * _MINUTE_S:
        return [Load(None)]
    if since_s < 15 * _MINUTE_S:
        return [Load(None, figures={"compile_ratio": 0.8, "step_time_s": None, "step_work_s": None})]
    if since_s < 20 * _MINUTE_S:
        return [_asked(0.5, draw, figures={"compile_ratio": 0.5 if draw.random() < 0.5 else 0.0})]
    return [_asked(3.0, draw)]


def _weights(at_s: float) -> float:
    return min(0.03 + 0.4 * at_s % _DAY_S / (5 * _MINUTE_S), 0.43) if at_s % _DAY_S < 16 * _MINUTE_S else 0.9


def _profiling(at_s: float, draw: random.Random) -> Sequence[Load]:
    """The server profiles itself for three minutes of each hour."""
    return [_asked(3.0, draw, reason="busy" if at_s % _HOUR_S < 180 else None)]


def _levels(at_s: float, draw: random.Random) -> Sequence[Load]:
    return [_asked(draw.choice((0.5, 1, 2, 4, 8, 14, 25, 40)), draw)]


HEALTHY: Mapping[str, Server] = {
    "quiet night": Server(_one(_early)),
    "bursts": Server(lambda _at_s, draw: [_asked(draw.choice((0.5, 14.0)), draw)]),
    "a request each 25 s": Server(_trickle),
    "buckets compiled ahead": Server(_levels),
    "morning ramp": Server(_one(_ramp)),
    "pool of 93 %": Server(_one(_early), hbm_ratio=lambda _at_s: 0.93),
    "pool of 98 %": Server(_one(lambda _at_s: 3.0), hbm_ratio=lambda _at_s: 0.98),
    "growing context": Server(_growing),
    "replicas": Server(_replicas, replicas=4),
    "idle ranks": Server(_ranks, replicas=4),
    "warm-up of 20 minutes": Server(_warming, hbm_ratio=_weights, began_s=lambda at_s: at_s // _DAY_S * _DAY_S),
    "it profiles itself": Server(_profiling),
    "full": Server(_one(lambda _at_s: 60.0)),
}
"""Servers that are well."""


def _from(begin_s: float, trouble: Loads, well: Loads) -> Loads:
    return lambda at_s, draw: trouble(at_s, draw) if at_s >= begin_s else well(at_s, draw)


def _stuck(_at_s: float, _draw: random.Random) -> Sequence[Load]:
    return [Load(3, silent=True)]


def _in_trouble(rate: float, **given: Any) -> Server:
    """A server that is asked all the time, and has a trouble from the second hour on."""
    return Server(_from(_HOUR_S, _one(lambda _at_s: rate, **given), _one(lambda _at_s: rate)))


IN_TROUBLE: Mapping[str, Server] = {
    "stuck": Server(_from(_HOUR_S, _stuck, _one(lambda _at_s: 8.0))),
    "host-gap": _in_trouble(8.0, server={"host_gap_ratio": 0.6}),
    "compiling-while-serving": _in_trouble(8.0, figures={"compile_ratio": 0.4}),
    "kv-pressure": _in_trouble(60.0, server={"preemptions_per_s": 0.5, "kv_used_ratio": 0.99}),
    "batch-underfilled": _in_trouble(60.0, server={"padding_ratio": 0.7}),
    "replica-imbalance": Server(
        _from(
            _HOUR_S,
            lambda _at_s, draw: [_asked(20.0 if not place else 2.0, draw) for place in range(3)],
            lambda _at_s, draw: [_asked(8.0, draw) for _ in range(3)],
        ),
        replicas=3,
    ),
}
"""By the finding that must be found, a server that is well for an hour and then in trouble."""

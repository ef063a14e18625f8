"""Large traces of many shapes, as files: what a decoder has to be fast on, and what must not cost more than its bytes.

Each shape grows with a number: twice the number, about twice the bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))

from support.traces import ALL_REDUCE, CONV, INFEED, LOOP, OUTFEED, US, WHILE, Op, Plane, Traced  # noqa: E402

PER_STEP = 2800
TRAINING_LINES = ("XLA Ops",) * 14 + ("Async XLA Ops",) * 5 + ("XLA TraceMe",)
"""Of 20 events, as in the real v6e trace's first core."""


def kinds_of(plane: Plane, count: int, words: int = 1) -> list[Op]:
    """So many different ops; each says which part of the model it is of, as libtpu's do, and holds so much HLO text."""
    kinds = [INFEED, *(Op(f"fusion.{i}", "convolution fusion", flops=10**9, read_bytes=10**6) for i in range(count))]
    kinds += [CONV, LOOP, ALL_REDUCE, OUTFEED]
    for i, kind in enumerate(kinds):
        name = f"jit(train_step)/jit(main)/transformer/layer_{i % 24}/{'attention' if i % 3 else 'mlp'}/dot_general:"
        metadata = plane.plane.event_metadata[plane.event_id(kind)]
        metadata.name += " fusion(bf16[8,1024,4096]{2,1,0:T(8,128)(2,1)S(1)} %param.1)" * (words - 1)
        plane.put(metadata.stats, {"tf_op": name, "source": f"/app/model.py:{100 + i}"})
    return kinds


def training(
    events: int,
    *,
    cores: int = 8,
    lines: Sequence[str] = TRAINING_LINES,
    kinds: int = 300,
    words: int = 1,
    extra_stats: int = 0,
    sparse: bool = False,
) -> Traced:
    """A training loop on one host, of device events only, as samples are.

    Events carry the device's clock as libtpu writes it and two stats more.
    """
    traced = Traced()
    for number in range(cores):
        plane = traced.core(number)
        if sparse:
            _training(traced.core(number, sparse=0), number, events // cores, ("Sparse Core Ops",), kinds, words, 0)
        _training(plane, number, events // cores, lines, kinds, words, extra_stats)
    traced.host()
    traced.space.hostnames.append("bench")
    return traced


def _training(plane: Plane, number: int, count: int, names: Sequence[str], kinds: int, words: int, extra: int) -> None:
    lines = {name: plane.line(name) for name in ("Steps", "XLA Modules", *dict.fromkeys(names))}
    ops = kinds_of(plane, kinds, words)
    more = {f"extra_{i}": 1000 + i for i in range(extra)}
    at_us = begin_us = 100.0
    for i in range(count):
        name = names[i % len(names)]
        length_us = 3 + (i * 7 + number) % 40
        op = ops[i % len(ops)] if name.endswith("Ops") and "Async" not in name else name
        at_ps = round(at_us * US)
        event = lines[name].events.add(metadata_id=plane.event_id(op), offset_ps=at_ps, duration_ps=length_us * US)
        own = {"device_offset_ps": at_ps - 1234, "device_duration_ps": length_us * US - 78}
        plane.put(event.stats, own | {"run_id": i + 1, "scope_range_id": 123456789} | more)
        if op is not name:
            at_us += length_us + 0.25
        if i % PER_STEP == PER_STEP - 1:
            plane.event("Steps", "train", begin_us, at_us - begin_us)
            plane.event("XLA Modules", "jit_train_step(42)", begin_us, at_us - begin_us)
            at_us += 50
            begin_us = at_us


def nested(events: int) -> Traced:
    """Loops that hold ten ops each."""
    traced = Traced()
    for number in range(8):
        plane = traced.core(number)
        line, kinds, at_us = plane.line("XLA Ops"), kinds_of(plane, 300), 100.0
        plane.line("Steps"), plane.line("XLA Modules")
        step_us = at_us
        for i in range(events // 8 // 11):
            begin_us = at_us
            loop = line.events.add(metadata_id=plane.event_id(WHILE), offset_ps=round(begin_us * US))
            for j in range(10):
                op = plane.event_id(kinds[(10 * i + j) % len(kinds)])
                event = line.events.add(metadata_id=op, offset_ps=round(at_us * US), duration_ps=(3 + j) * US)
                own = {"device_offset_ps": round(at_us * US) - 1234, "device_duration_ps": (3 + j) * US}
                plane.put(event.stats, own | {"run_id": i + 1})
                at_us += 3.25 + j
            loop.duration_ps = round((at_us - begin_us) * US)
            if i % 250 == 249:
                plane.event("Steps", "train", step_us, at_us - step_us)
                plane.event("XLA Modules", "jit_train_step(42)", step_us, at_us - step_us)
                at_us += 50
                step_us = at_us
    traced.host()
    return traced


def modules(events: int) -> Traced:
    """Half of the events are runs of a short program, with one op each."""
    traced = Traced()
    for number in range(8):
        plane = traced.core(number)
        for i in range(events // 16):
            module = plane.event("XLA Modules", "jit_step(42)", 10.0 * i, 8)
            plane.put(module.stats, {"run_id": i + 1, "queue_id": 3})
            plane.event("XLA Ops", (CONV, LOOP)[i % 2], 10.0 * i + 1, 6)
    traced.host()
    return traced


def host_events(events: int, *, roots: bool = False) -> Traced:
    """Nine of ten events are the host's; with roots, they are roots of steps and what leads from one to the next."""
    traced = training(events // 10, lines=("XLA Ops",))
    host = Plane(next(plane for plane in traced.space.planes if plane.name == "/host:CPU"))
    names = [host.event_id(f"Call{i}") for i in range(200)]
    for thread in range(16):
        line = host.line(f"thread/{thread}", number=thread + 1)
        for i in range(events * 9 // 10 // 16):
            event = line.events.add(metadata_id=names[i % 200], offset_ps=i * 5 * US, duration_ps=4 * US)
            number = thread * 1_000_000 + i
            own = {"group_id": i // 10, "flow": number}
            if roots:
                own = {"_pt": 1, "_p": number, "_ct": 1, "_c": number - 1} | ({} if i % 100 else {"_r": 1})
            host.put(event.stats, own)
    if roots:
        for plane in traced.space.planes:
            for line in plane.lines:
                for i, event in enumerate(line.events if line.name == "Steps" else ()):
                    Plane(plane).put(event.stats, {"_ct": 1, "_c": 100 * i})
    return traced


def many_planes(events: int) -> Traced:
    """64 cores, each beside a SparseCore."""
    return training(events // 2, cores=64, lines=("XLA Ops",), sparse=True)


@dataclass(frozen=True)
class Shape:
    """One shape.

    Attributes:
        name: what the table calls it.
        size: the number that makes it as large as in the table.
        build: makes the trace from the number.
    """

    name: str
    size: int
    build: Callable[[int], Traced]

    @property
    def slug(self) -> str:
        """The name as that of a file."""
        return "".join(c if c.isalnum() else "-" for c in self.name.lower())


MILLION = 1_000_000
SHAPES = (
    Shape("1M ops, 8 cores", MILLION, lambda n: training(n, lines=("XLA Ops",))),
    Shape("training, 1M events", MILLION, training),
    Shape("one core, 1M events", MILLION, lambda n: training(n, cores=1, lines=("XLA Ops",))),
    Shape("nested loops", MILLION, nested),
    Shape("500k modules", MILLION, modules),
    Shape("128 planes", MILLION, many_planes),
    Shape("12 stats an event", MILLION // 2, lambda n: training(n, lines=("XLA Ops",), extra_stats=8)),
    Shape("90 % host events", MILLION, host_events),
    Shape("the same, with roots", MILLION // 2, lambda n: host_events(n, roots=True)),
    Shape("12,000 ops on 8 cores", 12_000, lambda n: training(30 * n, kinds=n, words=5)),
    Shape("2.6 MB, a usual worker", 26_000, lambda n: training(n, cores=4, kinds=n // 42, words=5)),
)


def write(shape: Shape, path: Path, size: int | None = None) -> None:
    """Writes a trace of this shape."""
    path.write_bytes(shape.build(shape.size if size is None else size).bytes())

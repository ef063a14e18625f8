"""Traces for reports, of everything that tables of ops have to tell apart; and reports of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from support import REAL_TRACE, require
from support.traces import (
    ALL_REDUCE,
    ASYNC_DONE,
    BETWEEN_SLICES,
    CONV,
    CUSTOM,
    HOST_SEND,
    INFEED,
    LOOP,
    MEGACORE,
    OUTFEED,
    SEND,
    WHILE,
    Named,
    Op,
    Plane,
    Traced,
    run_step,
)
from tpumon.model.documents import encoded
from tpumon.proto.xplane_pb2 import XEventMetadata
from tpumon.report.profiles import Capture, Choice, HostProfile
from tpumon.report.sections import SECTIONS, needs
from tpumon.simulator.scenario import SECOND, SimulatedJob
from tpumon.simulator.trace_writer import TraceOptions, build_trace
from tpumon.xspace.profile.profile import Extra, read_profile
from tpumon.xspace.trace_figures import figures_of_hosts

TWINS = tuple(Op(f"fusion.{i}", "loop fusion", flops=2_000_000, read_bytes=10_000_000) for i in (7, 8, 9))
"""The same fusion three times; two name the third as what they duplicate."""


def say_more(plane: Plane, op: Op, **stats: object) -> None:
    """Adds stats to the metadata of an op."""
    plane.put(plane.plane.event_metadata[plane.event_id(op)].stats, stats)


def training(cores: int = 2, steps: int = 4, *, slower: float = 1.0, name: str = "", first_us: float = 100) -> Traced:
    """A training loop with every kind of op: a core after the other, each with its own infeed and all-reduce.

    Args:
        slower: factor on the time of the convolution.
        name: of the host.
        first_us: when the first step starts.
    """
    traced = Traced()
    for number in range(cores):
        plane = traced.core(number)
        at_us = first_us
        for step in range(steps):
            parts: list[tuple[Any, ...]] = [
                (INFEED, 300 + 10 * number),
                (CONV, 500 * slower, {"Time Scale Multiplier": 0.5}),
                (None, 30),
                (ALL_REDUCE, 100 + 50 * ((number + step) % 3), {"all_reduce_unique_id": 1000 + step}),
                *((twin, 60 + 5 * i) for i, twin in enumerate(TWINS)),
                (LOOP, 200),
                (OUTFEED, 40 + number),
                (HOST_SEND, 20),
                (SEND, 10),
            ]
            at_us = run_step(plane, at_us, parts) + 20
        described(plane)
    traced.host()
    if name:
        traced.space.hostnames.append(name)
    return traced


def described(plane: Plane) -> None:
    """Says of some ops where in the program they are."""
    say_more(plane, CONV, tf_op="jit(train)/jit(main)/layer_1/attention/dot_general:", source="/app/model.py:10")
    say_more(plane, LOOP, tf_op="jit(train)/jit(main)/layer_1/mlp/add:", source="/app/model.py:22")
    say_more(plane, ALL_REDUCE, tf_op="jit(train)/jit(main)/psum:", source="/app/train.py:5")
    for twin in TWINS:
        say_more(plane, twin, tf_op="jit(train)/jit(main)/layer_2/mlp/add:", source="/app/model.py:23")
        if twin is not TWINS[0]:
            say_more(plane, twin, deduplicated_name=TWINS[0].name)


def metadata_of(plane: Plane, op: Op) -> XEventMetadata:
    """The metadata of an op that a plane has already."""
    return next(one for one in plane.plane.event_metadata.values() if one.display_name == op.name)


def nested() -> Traced:
    """A loop that holds ops, a fusion that lists what it is made of, and two programs."""
    traced = training(cores=1)
    plane = Plane(traced.space.planes[0])
    at_us = 100_000.0
    plane.event("XLA Ops", WHILE, at_us, 300)
    plane.event("XLA Ops", LOOP, at_us + 10, 100)
    plane.event("XLA Ops", CONV, at_us + 120, 100)
    children = [plane.event_id(Op(f"multiply.{i}", "multiply")) for i in range(2)]
    metadata_of(plane, LOOP).child_id.extend(children)
    for i in range(2):
        other = Op(f"dot.{i}", "convolution", flops=9_000_000_000, read_bytes=5_000_000)
        number = plane.event_id(other)
        for stat in plane.plane.event_metadata[number].stats:
            if stat.metadata_id == plane.stat_id("program_id"):
                stat.int64_value = 77
        plane.event("XLA Ops", other, at_us + 400 + 100 * i, 90)
    plane.event("XLA Modules", "jit_eval(77)", at_us + 400, 200)
    return traced


def megacore() -> Traced:
    """Two cores a chip that wait for each other, and copies that are waited for."""
    traced = Traced()
    for number in range(4):
        plane = traced.core(number, chip=number // 2, core=number % 2)
        at_us = 100 + (number % 2) * 70
        for _ in range(4):
            parts = [(CONV, 500), (None, 100), (MEGACORE, 50), (ASYNC_DONE, 30), (LOOP, 60)]
            at_us = run_step(plane, at_us, parts, length_us=900) + 300
    traced.host()
    return traced


SHARDED = {
    Op("all-gather.1", "all-gather"): 70,
    Op("fusion.31", "all-reduce-scatter fusion"): 50,
    Op("collective-permute-done.1", "collective-permute-done"): 30,
}
"""Collectives that XProf counts as computing, with their microseconds of each step of `sharded`."""
BETWEEN_SLICES_US = 20


def sharded() -> Traced:
    """Steps with collectives of every kind, of a job of several slices."""
    traced = Traced()
    for number in range(2):
        plane, at_us = traced.core(number), 100.0
        for _ in range(4):
            parts = [(CONV, 500), *SHARDED.items(), (LOOP, 60), (BETWEEN_SLICES, BETWEEN_SLICES_US), (ALL_REDUCE, 40)]
            at_us = run_step(plane, at_us, parts) + 20
    traced.host()
    return traced


def sparse() -> Traced:
    """SparseCores beside the cores."""
    traced = training()
    for number in range(2):
        plane = traced.core(number, sparse=0)
        for step in range(4):
            plane.event("Sparse Core Ops", Op("gather.1", "sparse gather", flops=5), 100 + 1700 * step + 300, 150)
            plane.event("Sparse Core Modules", "sparse", 100 + 1700 * step, 1000)
    return traced


def pallas() -> Traced:
    """Custom calls, whose FLOPs and bytes come with their events alone."""
    traced = training(cores=1)
    plane = Plane(traced.space.planes[0])
    bare = Op(CUSTOM.name, CUSTOM.category)
    for i in range(3):
        told = {"flops": 5_000_000_000, "model_flops": 4_000_000_000, "bytes_accessed": 7_000_000}
        plane.event("XLA Ops", bare, 90_000 + 100 * i, 50, **told)
    return traced


def with_input(*, marked: bool = True) -> Traced:
    """A training loop whose host reads files, prepares data and sends it; marked: whether it marks its steps."""
    traced = training()
    host = Plane(traced.space.planes[-1])
    for step in range(4):
        at_us = 100 + 1400 * step
        host.event("tf_data_1", "Iterator::Prefetch::ParallelMapV2", at_us, 300)
        host.event("tf_data_1", "Iterator::Prefetch::ParallelMapV2::TFRecord", at_us + 10, 100)
        host.event("tf_data_1", "Decode:DecodeJpeg", at_us + 150, 40)
        host.event("tf_data_2", "Iterator::BatchV2::TFRecord", at_us + 10, 50)
        host.event("tf_data_2", "Iterator::Shuffle", at_us + 100, 150)
        host.event("python", "InfeedEnqueueTuple:InfeedEnqueueTuple", at_us + 10, 50 + step)
        if marked:
            host.event("python", "step", at_us, 900)
    return traced


def with_memory() -> Traced:
    """Two memories: one with a peak in the middle, of allocations that are freed again."""
    traced = training(cores=1)
    host = Plane(traced.space.planes[-1])
    for memory, scale in ((0, 1), (1, 3)):
        heap = 0
        live: list[int] = []
        for i in range(40):
            grows = i % 20 < 10
            size = 1000 * (i % 3 + 1) * scale
            if grows:
                live.append(size)
                heap += size
            else:
                heap -= live.pop()
            stats: dict[str, object] = {
                "index_on_host": memory,
                "bytes_reserved": 5000 if 5 < i < 30 else 100,
                "bytes_allocated": heap,
                "bytes_available": 1_000_000 - heap - (5000 if 5 < i < 30 else 100),
                "fragmentation": i / 100,
                "peak_bytes_in_use": 30_000 + i,
                "addr": 1 << 63 | len(live) if grows else 1 << 63 | len(live) + 1,
            }
            if grows:
                stats |= {"requested_bytes": size, "allocation_bytes": size, "tf_op": f"op{i % 3}", "shape": "f32[8]"}
            name = "MemoryAllocation" if grows else "MemoryDeallocation"
            host.event("allocator", name, 100 + 10 * i + memory, 1, **stats)
    return traced


def on_gpus(gpus: int = 2, steps: int = 3) -> Traced:
    """A loop on GPUs: two ops that launch the same kernel, one whose second kernel runs beside it, and copies."""
    traced = Traced()
    for number in range(gpus):
        plane = traced.named(f"/device:GPU:{number}")
        plane.put(plane.plane.stats, {"device_type_string": "NVIDIA H100", "device_vendor": "Nvidia"})
        for step in range(steps):
            for stream, kernel, op, begin_us, duration_us, grid in (
                (1, "gemm", "dot.1", 0, 300 + 10 * step, 128),
                (1, "fusion", "fusion.2", 340, 100, 64),
                (1, "gemm", "dot.3", 450, 200, 128),
                (2, "nccl", "all-reduce.4", 600, 50 + 5 * number, 8),
                (2, "reduce", "dot.1", 100, 30, 8),
            ):
                details = f"regs:32 static_shared:16 dynamic_shared:1024 grid:{grid},1,1 block:256,1,1 occ_pct:50.0"
                plane.event(
                    f"Stream #{stream}(Compute)", kernel, 100 + 1000 * step + begin_us, duration_us,
                    kernel_details=Named(details), hlo_op=Named(op), hlo_module=Named("jit_step"),
                    tf_op=Named(f"jit(step)/jit(main)/{op}:"),
                )  # fmt: skip
            plane.event("Stream #3(MemcpyD2H)", "MemcpyD2H", 800 + 1000 * step, 60, memcpy_details=Named("size:4096"))
    traced.host()
    return traced


def real_trace() -> Path:
    """A trace of a real TPU; the test is skipped where it is not there."""
    require(REAL_TRACE.exists(), f"the real trace {REAL_TRACE.name}")
    return REAL_TRACE


def simulated_session(
    directory: Path, job: SimulatedJob, *, start_ns: int, stop_ns: int | None = None, host_level: int = 0
) -> list[Path]:
    """One file per worker of the same window, of a second if nothing else is said."""
    files = []
    for worker in range(job.topology.hosts):
        trace = build_trace(
            job, worker, start_ns=start_ns, stop_ns=start_ns + SECOND if stop_ns is None else stop_ns,
            epoch_unix_ns=1_700_000_000 * SECOND, options=TraceOptions(host_tracer_level=host_level),
        )  # fmt: skip
        files.append(directory / f"{job.topology.worker_name(worker)}.xplane.pb")
        files[-1].write_bytes(trace.xspace)
    return files


def saved(directory: Path, *traces: Traced) -> list[Path]:
    """One file per host of a session."""
    files = []
    for i, trace in enumerate(traces):
        if not trace.space.hostnames:
            trace.space.hostnames.append(f"host-{i}")
        files.append(directory / f"host-{i}.xplane.pb")
        files[-1].write_bytes(trace.bytes())
    return files


def capture_of(files: Sequence[Path], *names: str) -> Capture:
    """What a report of these files is made of, as far as some sections need it."""
    return captured(files, needs(names or SECTIONS))


def captured(files: Sequence[Path], wanted: Collection[Extra]) -> Capture:
    """The capture of these files, as far as it is wanted."""
    hosts = []
    for file in files:
        with file.open("rb") as opened:
            hosts.append(HostProfile(name=file.name, profile=read_profile(opened, wanted)))
    return Capture(hosts=tuple(hosts), figures=figures_of_hosts([host.profile.trace for host in hosts]))


def section(files: Sequence[Path], name: str, choice: Choice | None = None) -> dict[str, Any]:
    """A section of a report of these files, as JSON."""
    value = SECTIONS[name].build(capture_of(files, name), choice or Choice(top=1000))
    plain = json.loads(encoded(SECTIONS[name].document(value)))
    assert isinstance(plain, dict)
    return plain

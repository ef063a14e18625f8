"""Makes the pictures of the live view in docs/screens/: `.venv/bin/python scripts/screens.py [DIRECTORY [NAME...]]`.

Pictures are reproducible: simulated jobs with a fixed seed, and a fixed clock.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.segment import Segment, Segments
from rich.terminal_theme import TerminalTheme

from tpumon.analysis import Analysis
from tpumon.collection.sampler.extra_sources import ServerReading
from tpumon.collection.sampler.server_span import ServerSpan
from tpumon.collection.sources import titles
from tpumon.collection.sources.server_page import ServerPage, figures_of, page_of
from tpumon.model import (
    CoreFigures,
    DeviceFigures,
    Failure,
    Figures,
    FunctionFigures,
    Percentiles,
    RuntimeFigures,
    Sample,
    Spread,
    StepTimes,
    Target,
    Workers,
)
from tpumon.outputs.live.display import Display
from tpumon.outputs.live.view_settings import DisplaySettings
from tpumon.simulator.expected_figures import ExpectedFigures, StepInWindow, measure, window_events
from tpumon.simulator.scenario import SimulatedJob
from tpumon.simulator.serving_page import metrics_page
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace_writer import TraceOptions, build_trace
from tpumon.xspace.trace_figures import read_figures

_BEGIN_UNIX_S = 1_767_261_600.0  # 2026-01-01 10:00 UTC
_NS = 1_000_000_000
_MOST_TRACED = 8  # workers whose pictures may show operations

_THEME = TerminalTheme(
    (24, 26, 31),
    (214, 218, 224),
    [(60, 64, 72), (232, 96, 96), (130, 190, 110), (226, 183, 90), (104, 156, 230), (198, 130, 220), (92, 186, 196),
     (200, 204, 210)],
)  # fmt: skip


# Rich's own picture, but for fonts: a page that shows it fetches none.
_PICTURE = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: 20px/{line_height}px "DejaVu Sans Mono", Menlo, Consolas, monospace; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A simulated job, and what is seen of it.

    Attributes:
        topology: of the simulator.
        scenario: of the simulator.
        queries: of each worker.
        interval_s: between them.
        window_s: of each query.
        away: workers that stop answering at the end, and why.
        on_cpu: True if only what a host shows of a job without TPUs is shown.
    """

    topology: str
    scenario: str = "straggler"
    queries: int = 120
    interval_s: float = 1.0
    window_s: float = 1.0
    away: Sequence[tuple[int, str, str]] = ()
    on_cpu: bool = False

    @property
    def end_unix_s(self) -> float:
        """Time at which the picture is taken."""
        return _BEGIN_UNIX_S + self.queries * self.interval_s


@cache
def events_of(story: Story) -> Sequence[Workers | Sample | float]:
    """Events for an output, in order; a number is a time at which a picture is taken."""
    return tuple(_play(story))


def _play(story: Story) -> Iterator[Workers | Sample | float]:
    job = SimulatedJob(topology=parse_topology(story.topology), scenario=story.scenario, seed=7)
    names = [job.topology.worker_name(worker) for worker in range(job.topology.hosts)]
    targets = [
        Target(worker=name, address=f"10.0.{i // 250}.{i % 250 + 2}:8466", slice="slice-0")
        for i, name in enumerate(names)
    ]
    away = {worker: (reason, message) for worker, reason, message in story.away}
    spans, pages = [ServerSpan() for _ in targets], [ServerPage()]
    yield Workers(targets=tuple(targets))
    for query in range(story.queries):
        start_s = (query + 1) * story.interval_s
        gone = away if query >= story.queries - 8 else {}
        for worker, target in enumerate(targets):
            if worker in gone:
                yield _failed(story, target, start_s, *gone[worker])
                continue
            sample = _answered(story, job, worker, target, start_s, last=query == story.queries - 1)
            if job.serves:
                pages = [*pages[-1:], page_of(metrics_page(job, int(start_s * _NS)).encode())]
                sample = _served(story, job, worker, sample, figures_of(pages[1], pages[0], story.interval_s))
                sample = spans[worker].joined(sample, start_s, [ServerReading(start_s, sample.figures.server)])
            yield _on_cpu(sample) if story.on_cpu else sample
        yield _BEGIN_UNIX_S + start_s


def _answered(story: Story, job: SimulatedJob, worker: int, target: Target, start_s: float, *, last: bool) -> Sample:
    start_ns = int(start_s * _NS)
    events = window_events(job, worker, start_ns, start_ns + int(story.window_s * _NS))
    measured = measure(job, events)
    topology = job.topology
    used = [job.hbm_used_bytes(worker, device, start_ns) for device in range(topology.devices_per_host)]
    step, infeed = measured.step_s, measured.infeed_ratio
    named = _ops(story, job, worker, start_ns) if last and topology.hosts <= _MOST_TRACED else Figures()
    return Sample(
        worker=target.worker,
        address=target.address,
        time_unix_s=_BEGIN_UNIX_S + start_s,
        window_s=story.window_s,
        took_s=story.window_s + 0.31,
        interval_s=story.interval_s,
        traced_s=0.019 * story.interval_s,
        source="trace",
        simulated=True,
        device_type=topology.generation.device_type,
        cores=topology.cores_per_host,
        figures=Figures(
            mxu_utilization_ratio=measured.mxu_ratio,
            mxu_method="counter",
            idle_ratio=measured.idle_ratio,
            duty_cycle_ratio=None if measured.idle_ratio is None else 1 - measured.idle_ratio,
            flops_utilization_ratio=measured.flops_ratio,
            hbm_bandwidth_utilization_ratio=measured.hbm_ratio,
            step_time_s=None
            if step is None
            else StepTimes(avg=step.avg, min=step.min, max=step.max, count=measured.steps),
            step_source="steps",
            infeed_ratio=None if infeed is None else Spread(avg=infeed.avg, min=infeed.min, max=infeed.max),
            step_parts_s=_parts(events, measured) if last else None,
            step_work_s=_work_s(events),
            ops=named.ops,
            op_categories=named.op_categories,
            per_core=tuple(_core(job, core, number) for number, core in enumerate(events)) if last else (),
            hbm_used_bytes=sum(used),
            hbm_total_bytes=topology.device_hbm_bytes * topology.devices_per_host,
            devices=tuple(_devices(job, used, measured)),
            runtime=RuntimeFigures(uptime_s=273_600.0 + start_s),
        ),
    )


def _on_cpu(sample: Sample) -> Sample:
    """What a trace of the same job shows if it runs on a CPU."""
    step = sample.figures.step_time_s
    every_s = None if step is None else Percentiles(p50=step.avg, p95=step.max)
    takes_s = None if step is None else Percentiles(p50=0.7 * step.avg, p95=0.7 * step.max)
    train = FunctionFigures(name="train_step", runs=9, period_s=every_s, duration_s=takes_s, device_time_ratio=0.94)
    evaluate = FunctionFigures(name="eval_step", runs=2, duration_s=takes_s, device_time_ratio=0.06)
    figures = Figures(
        step_time_s=step,
        step_source="host",
        step_name="train_step",
        compile_ratio=0.0,
        callback_ratio=0.021,
        functions=(train, evaluate),
        absent={"input_wait_ratio": "no event of an input pipeline"},
    )
    return replace(sample, device_type="CPU", cores=0, figures=figures)


def _served(story: Story, job: SimulatedJob, worker: int, sample: Sample, of_page: Figures) -> Sample:
    """The sample with what a trace shows of a server's programs, and what its page says of its requests."""
    programs = _ops(story, job, worker, int((sample.time_unix_s - _BEGIN_UNIX_S) * _NS)).traced_programs
    return replace(sample, figures=replace(sample.figures, server=of_page.server, traced_programs=programs))


def _ops(story: Story, job: SimulatedJob, worker: int, start_ns: int) -> Figures:
    """The top operations, from a trace."""
    trace = build_trace(
        job,
        worker,
        start_ns=start_ns,
        stop_ns=start_ns + int(story.window_s * _NS),
        epoch_unix_ns=int(_BEGIN_UNIX_S) * _NS,
        options=TraceOptions(),
    )
    return read_figures(trace.xspace, 10).figures


def _work_s(events: Sequence[Sequence[StepInWindow]]) -> float | None:
    """Time of an average step that the busiest core spends in ops other than collectives."""
    steps: dict[int, list[int]] = {}
    for core in events:
        for seen in core:
            if seen.partial is None:
                steps.setdefault(seen.step.number, []).append(seen.parts.busy - seen.parts.all_reduce)
    work_ns = [max(cores) for cores in steps.values() if len(cores) == len(events)]
    return sum(work_ns) / len(work_ns) / _NS if work_ns else None


def _parts(events: Sequence[Sequence[StepInWindow]], measured: ExpectedFigures) -> dict[str, float] | None:
    """Parts of an average step, in seconds."""
    whole = [seen.parts for core in events for seen in core if seen.partial is None]
    if not whole or measured.step_s is None:
        return None
    mean = {
        name: sum(getattr(parts, name) for parts in whole) / len(whole) / _NS
        for name in ("convolution", "loop", "infeed", "outfeed", "all_reduce", "idle")
    }
    return {
        "high_flops_compute": mean["convolution"],
        "low_flops_compute": mean["loop"],
        "infeed": mean["infeed"],
        "outfeed": mean["outfeed"],
        "collective": mean["all_reduce"],
        "host_transfer": 0.0,
        "idle": mean["idle"],
    }


def _core(job: SimulatedJob, core: Sequence[StepInWindow], number: int) -> CoreFigures:
    alone = measure(job, [core])
    return CoreFigures(
        chip=number // job.topology.generation.chip.devices,
        core=number % job.topology.generation.chip.devices,
        idle_ratio=alone.idle_ratio,
        flops_utilization_ratio=alone.flops_ratio,
        infeed_ratio=None if alone.infeed_ratio is None else alone.infeed_ratio.avg,
        step_time_s=None if alone.step_s is None else alone.step_s.avg,
    )


def _devices(job: SimulatedJob, used: Sequence[int], measured: ExpectedFigures) -> Iterator[DeviceFigures]:
    for device, used_bytes in enumerate(used):
        yield DeviceFigures(
            device=str(device),
            hbm_used_bytes=used_bytes,
            hbm_total_bytes=job.topology.device_hbm_bytes,
            runtime_duty_cycle_ratio=measured.busy[device],
            runtime_hlo_queue_size=1,
        )


def _failed(story: Story, target: Target, start_s: float, reason: str, message: str) -> Sample:
    return Sample(
        worker=target.worker,
        address=target.address,
        time_unix_s=_BEGIN_UNIX_S + start_s,
        window_s=story.window_s,
        took_s=1.0,
        interval_s=story.interval_s,
        simulated=True,
        errors=(Failure(source="trace", reason=reason, message=message, address=target.address),),  # type: ignore[arg-type]
    )


def shown(story: Story, settings: DisplaySettings, keys: Iterable[str], size: tuple[int, int]) -> list[list[Segment]]:
    """The screen at the end of a story, after some keys."""
    fleet = Analysis(settings.thresholds)
    fleet.remember()
    display = Display(settings, fleet)
    for event in events_of(story):
        if isinstance(event, float):
            fleet.tick(event)
            display.refresh(event)
        else:
            display.on_update(fleet.add(event))
    for key in keys:
        display.press(key)
    return display.render(*size, story.end_unix_s)


def svg(lines: Sequence[Sequence[Segment]], width: int, name: str, title: str) -> str:
    """A screen as a picture."""
    console = Console(
        width=width,
        record=True,
        file=StringIO(),
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
        _environ={},
    )
    console.print(Segments([part for line in lines for part in (*line, Segment.line())]), end="")
    return console.export_svg(title=title, theme=_THEME, unique_id=f"tpumon-{name}", code_format=_PICTURE)


_ALONE = Story(topology="v5e-8", scenario="steady", queries=240, interval_s=10.0)
_EIGHT = Story(
    topology="v5e-32", queries=150, interval_s=10.0, away=((5, "busy", "Another profiling session active."),)
)
_SERVER = Story(topology="v5e-8", scenario="serving+buckets+pool-pressure@400", queries=60, interval_s=10.0)
_CPU = Story(topology="v5e-8", scenario="jitter", queries=60, interval_s=10.0, on_cpu=True)
_MANY = Story(
    topology="v5p-2048",
    queries=12,
    interval_s=10.0,
    window_s=0.2,
    away=((37, "unavailable", "connection refused"), (201, "busy", "Another profiling session active.")),
)

SCREENS: dict[str, tuple[str, Story, tuple[str, ...], tuple[int, int]]] = {
    "one": ("tpumon --level 2, one worker", _ALONE, (), (100, 28)),
    "eight": ("tpumon --level 2, eight workers", _EIGHT, (), (120, 28)),
    "fleet": ("tpumon --level 2, 256 workers", _MANY, (), (120, 34)),
    "why": ("tpumon --level 2, what is wrong", _EIGHT, ("w",), (120, 24)),
    "cpu": ("tpumon --level 2, a job on a CPU", _CPU, (), (100, 28)),
    "ops": ("tpumon --level 2, a worker's operations", _EIGHT, ("enter", "o"), (100, 26)),
    "server": ("tpumon --level 2, a server of models", _SERVER, ("enter",), (120, 36)),
    "worker": ("tpumon --level 2, a worker's own screen", _EIGHT, ("enter",), (120, 46)),
}
"""By file name: title, what is seen, which keys were pressed, columns and lines."""


def main(arguments: Sequence[str]) -> int:
    """Writes all pictures, or those that are named."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    directory = Path(arguments[0] if arguments else "docs/screens")
    directory.mkdir(parents=True, exist_ok=True)
    for name in arguments[1:] or SCREENS:
        title, story, keys, size = SCREENS[name]
        lines = shown(story, DisplaySettings(sources=titles()), keys, size)
        (directory / f"{name}.svg").write_text(svg(lines, size[0], name, title))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

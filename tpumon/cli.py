"""The command line: options become settings, settings and a command become what `__main__` runs.

The only place that wires things together. Commands are imported when they run, so that `--help` needs no gRPC.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpumon import __version__
from tpumon.command_line.help_pages import OUTPUT, CommandPage, GroupPage
from tpumon.command_line.options import (
    SCENARIO_HELP,
    AppearanceOptions,
    ExportOptions,
    FromOptions,
    MeasureOptions,
    StdoutOptions,
    TargetOptions,
    ThresholdOptions,
    as_given,
    check_choice,
    option,
    takes,
)
from tpumon.errors import UsageError
from tpumon.figures import SORT_KEYS
from tpumon.simulator.settings import DEFAULT_PORT, SERVERS, SimulatorSettings
from tpumon.system.console import say
from tpumon.targets.addresses import PROFILER_PORT, parse_addresses

if TYPE_CHECKING:
    from tpumon.feed import FeedSettings, Sampling
    from tpumon.fleet import Thresholds
    from tpumon.outputs import Export
    from tpumon.targets.selection import Selection

_SIMULATED_INTERVAL_S = 1.0
_MAX_DUTY_RATIO = 0.01
_ATTACHED_DUTY_RATIO = 0.02  # its own traces wait for samples
_USUAL_PROFILE_S = 1.0
_MAX_DURATION_MS = 3_600_000
_LEGACY_NUM_QUERIES = 100
_GPU_WARNING = (
    "--gpu loads CUPTI into jobs that can use a GPU, which has crashed jobs (github.com/jax-ml/jax/issues/40260)"
)
_LISTEN = "127.0.0.1:10466"

Command = Callable[[], int]
"""What a command line asks for: call it once; it returns the exit status."""

app = typer.Typer(
    name="tpumon",
    cls=GroupPage,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


class ReportFormat(StrEnum):
    """What a command that ends by itself writes to stdout."""

    text = "text"
    json = "json"


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"tpumon {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
@takes(TargetOptions, FromOptions, MeasureOptions, StdoutOptions, ExportOptions, AppearanceOptions, ThresholdOptions)
def monitor(
    context: typer.Context,
    targets: TargetOptions,
    origin: FromOptions,
    measure: MeasureOptions,
    stdout: StdoutOptions,
    exports: ExportOptions,
    appearance: AppearanceOptions,
    thresholds: ThresholdOptions,
    version: Annotated[  # noqa: ARG001 - its callback acts on it
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> Command | None:
    """Monitor TPU jobs: matrix unit utilization, idle time, step time, infeed, HBM. Or save one profile.

    Examples:
      tpumon                                     watch the jobs on this host
      tpumon --service-addr 10.0.0.2:9999        watch a worker elsewhere
      tpumon --simulate v5e-8                    try it without a TPU
      tpumon --output jsonl --num-queries 3      print three samples per worker
      tpumon --level 0 --logdir /tmp/profiles    save one profile for XProf
    """
    if context.invoked_subcommand is not None:
        if ignored := [one.opts[0] for one in context.command.params if _is_typed(context, one.name or "")]:
            say(f"ignoring {', '.join(ignored)}: options of {context.invoked_subcommand} go after its name")
        return None
    level = _level(measure)
    if origin.from_ is not None:
        _check_from(context, targets, measure)
    if level == 0:
        return _capture(context, targets, measure)
    from tpumon.commands import monitor
    from tpumon.view.display import DisplaySettings

    legacy = measure.monitoring_level is not None
    if stdout.fleet_summary and stdout.output != "jsonl":
        raise UsageError("--fleet-summary requires --output jsonl")
    judged_by = _thresholds(context, thresholds)
    source = _sampling(context, targets, measure) if origin.from_ is None else origin.from_
    feed = _feed(source, exports, level, judged_by, listen=stdout.listen)
    if any(export.where == "-" for export in feed.exports):
        raise UsageError("--export NAME=-: stdout is taken by --output; write to a file")
    return partial(
        monitor.run,
        monitor.MonitorSettings(
            feed=feed,
            display=DisplaySettings(
                level=level,
                sort=check_choice(context, "--sort", appearance.sort, SORT_KEYS),
                filter=appearance.filter or "",
                ascii=appearance.ascii,
                thresholds=judged_by,
            ),
            output=_stdout(context, stdout, legacy=legacy),
            color=appearance.color.value,
            number_samples=legacy,
        ),
    )


@app.command("serve", cls=CommandPage)
@takes(TargetOptions, MeasureOptions, ExportOptions, ThresholdOptions)
def serve_command(
    context: typer.Context,
    targets: TargetOptions,
    measure: MeasureOptions,
    exports: ExportOptions,
    thresholds: ThresholdOptions,
    listen: Annotated[
        str,
        option(
            "--listen",
            panel=OUTPUT,
            metavar="HOST:PORT",
            help="Where Prometheus scrapes; :PORT listens on all addresses of this host.",
        ),
    ] = _LISTEN,
    web_listen_address: Annotated[str | None, typer.Option("--web.listen-address", hidden=True)] = None,
    web_config_file: Annotated[str | None, typer.Option("--web.config.file", hidden=True)] = None,
) -> Command:
    """Export metrics to Prometheus, without a view.

    Pages: /metrics, /probe?target=WORKER, /-/healthy, /-/ready.

    Examples:
      tpumon serve                         metrics of the jobs on this host
      tpumon serve --listen :10466         let other hosts scrape them
      tpumon serve --tpu NAME              metrics of all workers of a TPU
    """
    from tpumon.commands import serve

    level = _level(measure)
    if level == 0:
        raise UsageError("serve requires --level 1 or 2; to take a profile: tpumon --level 0 --logdir DIR")
    return partial(
        serve.run,
        _feed(
            _sampling(context, targets, measure),
            exports,
            level,
            _thresholds(context, thresholds),
            listen=web_listen_address or listen,
            web_config_file=None if _is_typed(context, "web_config") else web_config_file,
        ),
    )


@app.command("simulate", cls=CommandPage)
def simulate_command(
    topology: Annotated[
        str, typer.Argument(metavar="TOPOLOGY", help="Such as v2-8, v3-32, v4-16, v5e-8, v5p-128 or v6e-256.")
    ],
    scenario: Annotated[str, option("--scenario", metavar="NAME", help=SCENARIO_HELP)] = "steady",
    monitor: Annotated[
        bool | None,
        option("--monitor/--no-monitor", help="Whether the Monitor RPC answers. Default: only on v2 and v3."),
    ] = None,
    seed: Annotated[int, option("--seed", metavar="N", help="The same seed makes the same job.")] = 0,
    port: Annotated[
        int,
        option("--port", min=1, max=65535, metavar="PORT", help="Port of worker 0; worker i listens on PORT + i."),
    ] = DEFAULT_PORT,
    server: Annotated[
        str, option("--server", metavar="|".join(SERVERS), help="Generation of the profiler server.")
    ] = "new",
) -> Command:
    """Run a simulated TPU until stopped.

    Each worker has a real profiler server, and a runtime metric service.

    Examples:
      tpumon simulate v5e-8
      tpumon simulate v3-32 --scenario straggler --port 9000
    """
    from tpumon.commands import simulate

    settings = SimulatorSettings(
        topology=topology, scenario=scenario, monitor=monitor, seed=seed, port=port, server=server
    )
    return partial(simulate.run, settings)


_ReportOutput = Annotated[str, option("--output", panel=OUTPUT, metavar="text|json", help="What to write to stdout.")]


@app.command("analyze", cls=CommandPage)
@takes()
def analyze_command(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR...", help="*.xplane.pb files, session directories, or log directories (newest session)."
        ),
    ],
    output: _ReportOutput = ReportFormat.text.value,
) -> Command:
    """Show the figures of saved profiles.

    For each host, and for all hosts together.

    Examples:
      tpumon analyze /tmp/profiles
      tpumon analyze host1.xplane.pb host2.xplane.pb --output json
    """
    from tpumon.commands import analyze

    return partial(analyze.run, analyze.AnalyzeSettings(paths=paths, output=_report_format(context, output).value))


@app.command("doctor", cls=CommandPage)
@takes(TargetOptions)
def doctor_command(
    context: typer.Context,
    targets: TargetOptions,
    output: _ReportOutput = ReportFormat.text.value,
) -> Command:
    """Check chips, ports and servers, and say what is wrong.

    Shows what is here, what answers, and what tpumon would use. The output is safe to paste into an issue.

    Examples:
      tpumon doctor
      tpumon doctor --service-addr 10.0.0.2:9999
    """
    from tpumon.commands import doctor

    settings = doctor.DoctorSettings(
        where=_selection(context, targets, level=2),
        output=_report_format(context, output).value,
        use_proxy=targets.use_proxy,
    )
    return partial(doctor.run, settings)


@app.command("pause", cls=CommandPage)
def pause_command(
    duration: Annotated[str, typer.Argument(metavar="DURATION", help="Such as 90s, 10m or 1.5h; 0 ends your pause.")],
) -> Command:
    """Stop all sampling on this host for a while.

    Use it before you profile the job yourself: your call fails if it meets a sample.

    Examples:
      tpumon pause 10m
      tpumon pause 0
    """
    from tpumon.commands import pause

    return partial(pause.run, pause.parse_duration(duration))


@app.command("run", cls=CommandPage, context_settings={"allow_interspersed_args": False})
def run_command(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="PROGRAM [ARGS...]", help="What to run; its own options follow it.")
    ] = None,
    port: Annotated[
        int | None,
        option(
            "--port",
            min=1,
            max=65535,
            metavar="N",
            help="Port of the profiler server. Default: 9999. If it is in use: the next free one.",
        ),
    ] = None,
    monitor: Annotated[bool, option("--monitor", help="Print the job's figures on stderr.")] = False,
    monitor_file: Annotated[
        str | None, option("--monitor-file", metavar="FILE", help="Write the job's figures into this file.")
    ] = None,
) -> Command:
    """Run a program, unchanged, with the profiler server of its framework.

    The program gets the server when it first uses JAX, TensorFlow or PyTorch/XLA, and tpumon finds it there. Its own
    traces wait for samples, so that no sample can break one. TPUMON_RUN=0 runs it without all that.

    Examples:
      tpumon run python train.py
      tpumon run --port 9001 -- python -m trainer --steps 1000
    """
    from tpumon.commands import run

    settings = run.RunSettings(program=program or (), port=port, monitor=monitor, monitor_file=monitor_file)
    return partial(run.run, settings)


# What the options mean together.


def _level(measure: MeasureOptions) -> int:
    if measure.level is not None:
        return measure.level
    if measure.monitoring_level is not None:
        return measure.monitoring_level
    return 0 if measure.logdir else 2


def _stdout(context: typer.Context, stdout: StdoutOptions, *, legacy: bool) -> str | Export:
    """What to write to stdout: "auto", "live", "text" or an output."""
    from tpumon.outputs import parse_output

    if stdout.fleet_summary:
        return parse_output("fleet-summary")
    if stdout.output in {"auto", "live", "text"}:
        # The old spelling is typed by those who read the old blocks.
        return "text" if legacy and stdout.output == "auto" else stdout.output
    return parse_output(stdout.output, as_given(context, "--output", stdout.output))


def _report_format(context: typer.Context, output: str) -> ReportFormat:
    """The format of a command that ends by itself; TPUMON_OUTPUT counts only if it is meant for such a command."""
    if output not in set(ReportFormat) and not _is_typed(context, "output"):
        return ReportFormat.text
    return ReportFormat(check_choice(context, "--output", output, tuple(ReportFormat)))


def _capture(context: typer.Context, targets: TargetOptions, measure: MeasureOptions) -> Command:
    from tpumon.commands import capture

    if measure.logdir is None:
        raise UsageError("--level 0 requires --logdir DIR to save the profile; to monitor, use --level 1 or 2")
    return partial(
        capture.run,
        capture.CaptureSettings(
            logdir=measure.logdir,
            selection=_selection(context, targets, level=0),
            window_s=_window_s(context, measure.duration_ms) or _USUAL_PROFILE_S,
            attempts=measure.num_tracing_attempts,
            host_level=measure.host_tracer_level.number,
            use_proxy=targets.use_proxy,
            **_given(max_trace_mb=measure.max_trace_mb),
        ),
    )


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given; a default stands where it is used."""
    return {name: value for name, value in options.items() if value is not None}


def _sampling(context: typer.Context, targets: TargetOptions, measure: MeasureOptions) -> Sampling:
    from tpumon.feed import Sampling
    from tpumon.logdir import open_logdir
    from tpumon.model import Query
    from tpumon.sampler import Pace
    from tpumon.sources import SourceOptions
    from tpumon.targets.listening import signs_at

    simulated = targets.simulate is not None
    interval_s = measure.interval if measure.interval is not None else (_SIMULATED_INTERVAL_S if simulated else None)
    max_duty_ratio = measure.max_duty if measure.max_duty is not None else (1.0 if simulated else _MAX_DUTY_RATIO)
    if measure.gpu:
        say(_GPU_WARNING)
    usual_queries = _LEGACY_NUM_QUERIES if measure.monitoring_level is not None else 0
    level = _level(measure)
    return Sampling(
        query=Query(level=level, window_s=_window_s(context, measure.duration_ms)),
        selection=_selection(context, targets, level=level, runtime_addr=measure.runtime_addr),
        pace=Pace(
            interval_s=interval_s,
            max_duty_ratio=max_duty_ratio,
            attached_duty_ratio=_ATTACHED_DUTY_RATIO if measure.max_duty is None else None,
            attempts=measure.num_tracing_attempts,
            num_queries=measure.num_queries if measure.num_queries is not None else usual_queries,
        ),
        sources=SourceOptions(
            host_level=measure.host_tracer_level.number,
            logdir=open_logdir(measure.logdir) if measure.logdir else None,
            runtime_metrics=level > 1 and not measure.no_runtime_metrics,
            **_given(max_trace_mb=measure.max_trace_mb),
            gpu=measure.gpu,
            signs_at=signs_at,
        ),
        use_proxy=targets.use_proxy,
    )


def _feed(
    origin: Sampling | str,
    options: ExportOptions,
    level: int,
    thresholds: Thresholds,
    *,
    listen: str | None,
    web_config_file: str | None = None,
) -> FeedSettings:
    from tpumon.feed import FeedSettings
    from tpumon.outputs import Export, OutputOptions, parse_export

    exports = [Export(name="prometheus", where=listen)] if listen else []
    exports += map(parse_export, options.export or [])
    web_config = web_config_file if web_config_file is not None else options.web_config  # typed, so it wins
    if web_config == "":
        raise UsageError("--web-config is empty; name a file, or leave the option out")
    if web_config is not None and not any(export.name == "prometheus" for export in exports):
        raise UsageError("--web-config requires a Prometheus endpoint; add --listen HOST:PORT")
    return FeedSettings(
        origin=origin,
        exports=exports,
        output_options=OutputOptions(level=level, web_config=web_config, thresholds=thresholds),
    )


def _thresholds(context: typer.Context, options: ThresholdOptions) -> Thresholds:
    from tpumon.fleet import Thresholds

    infeed = _limits(context, "--infeed-limits", options.infeed_limits)
    hbm = _limits(context, "--hbm-limits", options.hbm_limits)
    step = _limits(context, "--step-limits", options.step_limits)
    return Thresholds(
        infeed_warn_ratio=infeed[0],
        infeed_critical_ratio=infeed[1],
        hbm_warn_ratio=hbm[0],
        hbm_critical_ratio=hbm[1],
        step_warn_ratio=step[0],
        step_critical_ratio=step[1],
        idle_below_ratio=options.idle_limit,
        sustained=options.sustained,
    )


def _limits(context: typer.Context, name: str, text: str) -> tuple[float, float]:
    try:
        warn, critical = (float(part) for part in text.split(","))
    except ValueError:
        warn, critical = 1.0, 0.0
    if not 0 <= warn <= critical < float("inf"):
        raise UsageError(f"{as_given(context, name, text)}: use two numbers, the smaller first, such as 0.05,0.20")
    return warn, critical


def _is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option comes from the command line, not from its environment variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


_NAMING_WORKERS = ("service_addr", "workers_list", "tpu", "targets")


def _check_from(context: typer.Context, targets: TargetOptions, measure: MeasureOptions) -> None:
    """Refuses what --from cannot do."""
    if _level(measure) == 0:
        raise UsageError("--from shows samples and cannot take a profile; name the workers with --service-addr")
    if targets.simulate is not None or any(_is_typed(context, name) for name in _NAMING_WORKERS):
        raise UsageError("--from shows another tpumon's samples; it cannot be combined with options naming workers")
    if measure.num_queries:
        raise UsageError("--from does not query workers; it cannot be combined with --num-queries")


def _window_s(context: typer.Context, duration_ms: str) -> float | None:
    """`--duration-ms` in seconds; None for auto."""
    if duration_ms == "auto":
        return None
    if not (duration_ms.isascii() and duration_ms.isdigit() and 1 <= int(duration_ms[:9]) <= _MAX_DURATION_MS):
        given = as_given(context, "--duration-ms", duration_ms)
        raise UsageError(f"{given}: use milliseconds from 1 to {_MAX_DURATION_MS}, or auto")
    return int(duration_ms) / 1000


def _selection(
    context: typer.Context, targets: TargetOptions, *, level: int, runtime_addr: list[str] | None = None
) -> Selection:
    """The workers that the options name; if they name some in several ways, the most specific wins."""
    from tpumon.targets.runtime import parse_runtime_addresses
    from tpumon.targets.selection import Selection

    runtime_addresses = parse_runtime_addresses(runtime_addr or [])
    if targets.simulate is not None:
        if any(_is_typed(context, name) for name in _NAMING_WORKERS):
            raise UsageError("--simulate cannot be combined with options naming workers")
        simulate = SimulatorSettings(topology=targets.simulate, scenario=targets.scenario)
        return Selection(simulate=simulate, runtime_addresses=runtime_addresses)
    services = parse_addresses(targets.service_addr or [], default_port=targets.port or PROFILER_PORT)
    workers = parse_addresses(targets.workers_list or [], default_port=targets.port or PROFILER_PORT)
    tpus = tuple(name for text in targets.tpu or () for part in text.split(",") if (name := part.strip()))
    if tpus and services:
        say("ignoring --tpu: --service-addr is given, too")
    if level > 0 and services and workers:
        say("ignoring --workers-list: it is for level 0, and --service-addr is given, too")
    addresses = workers if workers and (level == 0 or not services) else services
    if targets.targets is not None and (addresses or tpus):
        raise UsageError("--targets cannot be combined with other options naming workers")
    return Selection(
        addresses=addresses,
        port=targets.port,
        tpus=() if addresses else tpus,
        zone=targets.zone,
        project=targets.project,
        targets_file=targets.targets,
        runtime_addresses=runtime_addresses,
    )

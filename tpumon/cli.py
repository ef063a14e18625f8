"""The command line: options become settings, settings and a command become what `__main__` runs.

The only place that wires things together.

Commands are imported when they run: `--help` needs no gRPC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tpumon import __version__
from tpumon.commands.console import say
from tpumon.errors import UsageError
from tpumon.options import (
    AskOptions,
    ExportOptions,
    OutputFormat,
    Scenario,
    ViewOptions,
    WhereOptions,
    option,
    takes,
)
from tpumon.simulator.settings import DEFAULT_PORT, SERVERS, SimulatorSettings
from tpumon.targets.addresses import PROFILER_PORT, parse_addresses

if TYPE_CHECKING:
    from tpumon.commands.finding import WhereSettings
    from tpumon.commands.monitor import MonitorSettings
    from tpumon.fleet import Thresholds

_SIMULATED_INTERVAL_S = 1.0
_MAX_DUTY_RATIO = 0.02
_USUAL_PROFILE_S = 1.0
_LONGEST_DURATION_MS = 3_600_000
_LEGACY_NUM_QUERIES = 100
_LISTEN = "127.0.0.1:10466"

Command = Callable[[], int]
"""What a command line asks for: to be called once, returns the exit status."""

app = typer.Typer(
    name="tpumon",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


class AnalysisFormat(StrEnum):
    """What a command that ends by itself writes to stdout."""

    text = "text"
    json = "json"


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"tpumon {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
@takes(WhereOptions, AskOptions, ViewOptions, ExportOptions)
def monitor(
    context: typer.Context,
    where: WhereOptions,
    ask: AskOptions,
    view: ViewOptions,
    exports: ExportOptions,
    version: Annotated[  # noqa: ARG001 - acted upon by its callback
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> Command | None:
    """Watch TPU jobs: matrix units, idle time, step time, infeed, HBM; or take one profile.

    Every option can also be set by an environment variable, for example TPUMON_SERVICE_ADDR.
    """
    if context.invoked_subcommand is not None:
        return None
    level = _level(ask)
    if level == 0 and view.from_ is not None:
        raise UsageError("--from shows samples; a profile is taken from the workers: give --service-addr, not --from")
    if level == 0:
        return _capture(context, where, ask)
    from tpumon.commands import monitor
    from tpumon.view.display import DisplaySettings

    legacy = ask.monitoring_level is not None
    output = view.output
    if output is OutputFormat.auto and legacy:  # whoever types this spelling reads the blocks
        output = OutputFormat.text
    if view.fleet_summary and output is not OutputFormat.jsonl:
        raise UsageError("--fleet-summary is for --output jsonl")
    if view.from_ is not None and _names_workers(context, where):
        raise UsageError("--from shows what another tpumon samples; give no workers beside it")
    if view.from_ is not None and ask.num_queries:
        raise UsageError("--from asks no queries of its own; leave --num-queries out")
    listen = [f"prometheus={view.listen}"] if view.listen else []
    settings = replace(
        _settings(context, where, ask, exports, listen),
        from_url=view.from_,
        output="fleet-summary" if view.fleet_summary else output.value,
        display=DisplaySettings(
            level=level,
            sort=view.sort.value,
            filter=view.filter or "",
            ascii=view.ascii,
            thresholds=_thresholds(view),
        ),
        color=view.color.value,
        number_samples=legacy,
    )
    if any(export.where == "-" for export in settings.exports):
        raise UsageError("--export NAME=-: stdout has an output already; give a file")
    return partial(monitor.run, _endpoint(settings))


@app.command("serve")
@takes(WhereOptions, AskOptions, ExportOptions)
def serve_command(
    context: typer.Context,
    where: WhereOptions,
    ask: AskOptions,
    exports: ExportOptions,
    listen: Annotated[
        str,
        option("--listen", metavar="HOST:PORT", help="Where to be scraped; :PORT is every address of this host."),
    ] = _LISTEN,
    web_listen_address: Annotated[str | None, typer.Option("--web.listen-address", hidden=True)] = None,
    web_config_file: Annotated[str | None, typer.Option("--web.config.file", hidden=True)] = None,
) -> Command:
    """Export to Prometheus, without a view.

    /metrics, /probe?target=, /-/healthy, /-/ready.
    """
    from tpumon.commands import serve

    if _level(ask) == 0:
        raise UsageError("serve needs --level 1 or 2; a profile is taken by tpumon --level 0 --logdir DIR")
    settings = _settings(context, where, ask, exports, [f"prometheus={web_listen_address or listen}"])
    web_config = exports.web_config if exports.web_config is not None else web_config_file
    return partial(serve.run, _endpoint(replace(settings, web_config=web_config)))


def _level(ask: AskOptions) -> int:
    if ask.level is not None:
        return ask.level
    if ask.monitoring_level is not None:
        return ask.monitoring_level
    return 0 if ask.logdir else 2


def _capture(context: typer.Context, where: WhereOptions, ask: AskOptions) -> Command:
    from tpumon.commands import capture

    if ask.logdir is None:
        raise UsageError(
            "--level 0 takes a profile and needs --logdir DIR to put it; or give --level 1 or 2 to monitor"
        )
    return partial(
        capture.run,
        capture.CaptureSettings(
            logdir=ask.logdir,
            where=_where(context, where, level=0),
            window_s=_window_s(ask.duration_ms) or _USUAL_PROFILE_S,
            attempts=ask.num_tracing_attempts,
            host_level=ask.host_tracer_level.number,
            use_proxy=where.use_proxy,
        ),
    )


def _settings(
    context: typer.Context, where: WhereOptions, ask: AskOptions, exports: ExportOptions, listen: list[str]
) -> MonitorSettings:
    """What the monitor and `serve` have in common."""
    from tpumon.commands.monitor import MonitorSettings
    from tpumon.outputs import parse_export
    from tpumon.sampler import Pace
    from tpumon.targets.runtime import parse_runtime_addresses

    simulated = where.simulate is not None
    interval_s = ask.interval if ask.interval is not None else (_SIMULATED_INTERVAL_S if simulated else None)
    max_duty_ratio = ask.max_duty if ask.max_duty is not None else (1.0 if simulated else _MAX_DUTY_RATIO)
    usual_queries = _LEGACY_NUM_QUERIES if ask.monitoring_level is not None else 0
    level = _level(ask)
    return MonitorSettings(
        level=level,
        where=replace(
            _where(context, where, level=level), runtime_addresses=parse_runtime_addresses(ask.runtime_addr or [])
        ),
        window_s=_window_s(ask.duration_ms),
        pace=Pace(
            interval_s=interval_s,
            max_duty_ratio=max_duty_ratio,
            attempts=ask.num_tracing_attempts,
            num_queries=ask.num_queries if ask.num_queries is not None else usual_queries,
        ),
        host_level=ask.host_tracer_level.number,
        runtime_metrics=not ask.no_runtime_metrics,
        logdir=ask.logdir,
        output="none",
        exports=tuple(map(parse_export, [*listen, *(exports.export or [])])),
        web_config=exports.web_config,
        use_proxy=where.use_proxy,
    )


def _endpoint(settings: MonitorSettings) -> MonitorSettings:
    """Refuses TLS and users that would guard nothing, or were meant to be given."""
    if settings.web_config == "":
        raise UsageError("--web-config is empty; give a file, or leave the option out")
    if settings.web_config is not None and not any(export.name == "prometheus" for export in settings.exports):
        raise UsageError("--web-config is for a Prometheus endpoint; give --listen HOST:PORT as well")
    return settings


def _thresholds(view: ViewOptions) -> Thresholds:
    from tpumon.fleet import Thresholds

    infeed, hbm, step = (
        _limits(name, text)
        for name, text in (
            ("--infeed-limits", view.infeed_limits),
            ("--hbm-limits", view.hbm_limits),
            ("--step-limits", view.step_limits),
        )
    )
    return Thresholds(
        infeed_warn_ratio=infeed[0],
        infeed_critical_ratio=infeed[1],
        hbm_warn_ratio=hbm[0],
        hbm_critical_ratio=hbm[1],
        step_warn_ratio=step[0],
        step_critical_ratio=step[1],
        idle_apart_ratio=view.idle_limit,
        sustained=view.sustained,
    )


def _limits(name: str, text: str) -> tuple[float, float]:
    try:
        warn, critical = (float(part) for part in text.split(","))
    except ValueError:
        warn, critical = 1.0, 0.0
    if not 0 <= warn <= critical < float("inf"):
        raise UsageError(f"{name} {text}: give two numbers, the smaller first, for example 0.05,0.20")
    return warn, critical


@app.command("simulate")
def simulate_command(
    topology: Annotated[str, typer.Argument(help="For example v2-8, v3-32, v4-16, v5e-8, v5p-128 or v6e-256.")],
    scenario: Scenario = "steady",
    monitor: Annotated[
        bool | None,
        typer.Option("--monitor/--no-monitor", help="Whether Monitor answers. Default: as in life, on v2 and v3 only."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same job.")] = 0,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Of the first worker; worker i listens on PORT + i.")
    ] = DEFAULT_PORT,
    server: Annotated[
        str, typer.Option("--server", metavar="|".join(SERVERS), help="Generation of the profiler server.")
    ] = "new",
) -> Command:
    """Run a simulated TPU until stopped.

    Real profiler servers, one per worker.
    """
    from tpumon.commands import simulate

    settings = SimulatorSettings(
        topology=topology, scenario=scenario, monitor=monitor, seed=seed, port=port, server=server
    )
    return partial(simulate.run, settings)


@app.command("analyze")
def analyze_command(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE|DIR...", help="*.xplane.pb files, sessions, or log directories: their newest."),
    ],
    output: Annotated[AnalysisFormat, typer.Option("--output", help="What stdout gets.")] = AnalysisFormat.text,
) -> Command:
    """Show the figures of profiles taken before.

    Of each host, and of all together.
    """
    from tpumon.commands import analyze

    return partial(analyze.run, analyze.AnalyzeSettings(paths=paths, output=output.value))


@app.command("doctor")
@takes(WhereOptions)
def doctor_command(
    context: typer.Context,
    where: WhereOptions,
    output: Annotated[AnalysisFormat, typer.Option("--output", help="What stdout gets.")] = AnalysisFormat.text,
) -> Command:
    """Say what is here, what answers, and what would be used.

    Chips, ports, RPCs, and what is wrong; safe to paste into an issue.
    """
    from tpumon.commands import doctor

    settings = doctor.DoctorSettings(
        where=_where(context, where, level=2),
        output="json" if output is AnalysisFormat.json else "text",
        use_proxy=where.use_proxy,
    )
    return partial(doctor.run, settings)


@app.command("pause")
def pause_command(
    duration: Annotated[str, typer.Argument(help="For example 90s, 10m or 1.5h; 0 ends your pause.")],
) -> Command:
    """Stop all sampling on this host for a while.

    For when you profile the job yourself: your call would fail if it met a sample.
    """
    from tpumon.commands import pause

    return partial(pause.run, pause.parse_duration(duration))


def _is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line, and not only by its environment variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


_NAMING_WORKERS = ("service_addr", "workers_list", "tpu", "targets")


def _names_workers(context: typer.Context, where: WhereOptions) -> bool:
    return where.simulate is not None or any(_is_typed(context, name) for name in _NAMING_WORKERS)


def _window_s(duration_ms: str) -> float | None:
    """`--duration-ms` in seconds; None for auto."""
    if duration_ms == "auto":
        return None
    if not (duration_ms.isascii() and duration_ms.isdigit() and 1 <= int(duration_ms[:9]) <= _LONGEST_DURATION_MS):
        raise UsageError(f"--duration-ms {duration_ms}: give milliseconds from 1 to {_LONGEST_DURATION_MS}, or auto")
    return int(duration_ms) / 1000


def _where(context: typer.Context, where: WhereOptions, *, level: int) -> WhereSettings:
    """Whom to talk to; where several ways are given, the most exact one."""
    from tpumon.commands.finding import WhereSettings

    if where.simulate is not None:
        if any(_is_typed(context, name) for name in _NAMING_WORKERS):
            raise UsageError("--simulate and workers exclude each other; give one of them")
        return WhereSettings(simulate=SimulatorSettings(topology=where.simulate, scenario=where.scenario))
    services = parse_addresses(where.service_addr or [], default_port=where.port or PROFILER_PORT)
    workers = parse_addresses(where.workers_list or [], default_port=where.port or PROFILER_PORT)
    tpus = tuple(name for text in where.tpu or () for part in text.split(",") if (name := part.strip()))
    if tpus and services:
        say("both --service-addr and --tpu are given; --tpu is ignored")
    if level > 0 and services and workers:
        say("--workers-list is for level 0 and is ignored: --service-addr is monitored")
    addresses = workers if workers and (level == 0 or not services) else services
    if where.targets is not None and (addresses or tpus):
        raise UsageError("--targets excludes other ways to name workers; give one of them")
    return WhereSettings(
        addresses=addresses,
        port=where.port,
        tpus=() if addresses else tpus,
        zone=where.zone,
        project=where.project,
        targets_file=where.targets,
    )

"""The command line: options become settings, settings and a command become what `__main__` runs.

The only place that wires things together.

Commands are imported when they run: `--help` needs no gRPC.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from tpumon import __version__
from tpumon.commands.console import say
from tpumon.errors import UsageError
from tpumon.simulator.scenario import SCENARIOS
from tpumon.simulator.settings import DEFAULT_PORT, SERVERS, SimulatorSettings
from tpumon.targets.addresses import PROFILER_PORT, parse_addresses

_SIMULATED_INTERVAL_S = 1.0
_MAX_DUTY_RATIO = 0.02
_USUAL_PROFILE_S = 1.0
_LONGEST_DURATION_MS = 3_600_000
_LONGEST_INTERVAL_S = 7 * 24 * 3600
_LEGACY_NUM_QUERIES = 100

Command = Callable[[], int]
"""What a command line asks for: to be called once, returns the exit status."""

app = typer.Typer(
    name="tpumon",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


class HostTracerLevel(StrEnum):
    """How much of the host a profile holds."""

    auto = "auto"
    off = "0"
    user = "1"
    info = "2"
    verbose = "3"

    @property
    def number(self) -> int | None:
        """The level; None: tpumon decides."""
        return None if self is HostTracerLevel.auto else int(self.value)


class OutputFormat(StrEnum):
    """What is written to stdout."""

    auto = "auto"
    text = "text"
    jsonl = "jsonl"


class AnalysisFormat(StrEnum):
    """What `tpumon analyze` writes to stdout."""

    text = "text"
    json = "json"


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"tpumon {__version__}")
        raise typer.Exit


def _option(name: str, **rest: Any) -> Any:
    """An option that can also be set by TPUMON_<NAME>."""
    variable = "TPUMON_" + name.removeprefix("--").upper().replace("-", "_")
    return typer.Option(name, envvar=variable, show_envvar=False, **rest)


_Simulate = Annotated[
    str | None,
    _option("--simulate", metavar="TOPOLOGY", help="Watch a simulated TPU, for example v5e-8 or v3-32."),
]
_Scenario = Annotated[
    str, _option("--scenario", metavar="NAME", help=f"What the simulated job does: {', '.join(SCENARIOS)}.")
]


@app.callback(invoke_without_command=True)
def monitor(
    context: typer.Context,
    level: Annotated[
        int | None,
        _option(
            "--level",
            min=0,
            max=2,
            help="0: one profile; 1: TPU type and matrix units; 2: also idle time, steps, infeed. "
            "Default: 0 with --logdir, else 2.",
        ),
    ] = None,
    service_addr: Annotated[
        list[str] | None,
        _option(
            "--service-addr",
            metavar="HOST:PORT[,...]",
            help="Profiler server of one or more workers; may repeat. Default: this host's usual ports.",
        ),
    ] = None,
    workers_list: Annotated[
        list[str] | None,
        _option(
            "--workers-list",
            metavar="HOST:PORT[,...]",
            help="The workers to profile; at levels 1 and 2 those to watch, unless --service-addr is given.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        _option(
            "--port",
            min=1,
            max=65535,
            metavar="N",
            help=f"For addresses that name no port (default: {PROFILER_PORT}), and where to look on this host.",
        ),
    ] = None,
    simulate: _Simulate = None,
    scenario: _Scenario = "steady",
    logdir: Annotated[
        str | None,
        _option(
            "--logdir",
            metavar="DIR|gs://...",
            help="Where a profile goes (level 0); at levels 1 and 2, where old servers may put their traces.",
        ),
    ] = None,
    duration_ms: Annotated[
        str,
        _option(
            "--duration-ms",
            metavar="N|auto",
            help="Window of one query or profile in milliseconds; auto: 1000, and about three steps where figures come "
            "from traces.",
        ),
    ] = "auto",
    interval: Annotated[
        float | None,
        _option(
            "--interval",
            min=0,
            max=_LONGEST_INTERVAL_S,
            metavar="SECONDS",
            help="From one query's start to the next. Default: 0 (back to back) where the server has the figures, "
            "10 where they come from traces, 1 with --simulate.",
        ),
    ] = None,
    max_duty: Annotated[
        float | None,
        _option(
            "--max-duty",
            min=0.0001,
            max=1,
            metavar="RATIO",
            help="Largest share of time for which a job is traced. Default: 0.02, 1 with --simulate.",
        ),
    ] = None,
    num_queries: Annotated[
        int | None,
        _option("--num-queries", min=0, metavar="N", help="Queries per worker. Default: 0, until stopped."),
    ] = None,
    num_tracing_attempts: Annotated[
        int,
        _option(
            "--num-tracing-attempts",
            min=1,
            metavar="N",
            help="Tries of one query or profile before it counts as failed.",
        ),
    ] = 3,
    host_tracer_level: Annotated[
        HostTracerLevel,
        _option(
            "--host-tracer-level",
            help="Host events; auto: where they are proved not to hang the job 2 in a profile and 1 in a sampled trace "
            "of a job without a TPU, else 0.",
        ),
    ] = HostTracerLevel.auto,
    output: Annotated[
        OutputFormat, _option("--output", help="What stdout gets at levels 1 and 2; auto: text.")
    ] = OutputFormat.auto,
    use_proxy: Annotated[
        bool, _option("--use-proxy", help="Reach workers through http_proxy, which is not obeyed otherwise.")
    ] = False,
    tpu: Annotated[str | None, _option("--tpu", hidden=True)] = None,
    zone: Annotated[str | None, _option("--zone", hidden=True)] = None,  # noqa: ARG001 - goes with --tpu
    project: Annotated[str | None, _option("--project", hidden=True)] = None,  # noqa: ARG001 - goes with --tpu
    monitoring_level: Annotated[int | None, typer.Option("--monitoring-level", hidden=True, min=0, max=2)] = None,
    version: Annotated[  # noqa: ARG001 - acted upon by its callback
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> Command | None:
    """Watch TPU jobs: matrix units, idle time, step time, infeed; or take one profile.

    Every option can also be set by an environment variable, for example TPUMON_SERVICE_ADDR.
    """
    if context.invoked_subcommand is not None:
        return None
    if level is None:
        level = monitoring_level if monitoring_level is not None else (0 if logdir else 2)
    addresses = _addresses(level, service_addr, workers_list, tpu, port)
    simulator = None
    if simulate is not None:
        if addresses and any(_is_typed(context, name) for name in ("service_addr", "workers_list")):
            raise UsageError("--simulate and addresses exclude each other; give one of them")
        addresses = ()
        simulator = SimulatorSettings(topology=simulate, scenario=scenario)
    window_s = _window_s(duration_ms)

    if level == 0:
        if logdir is None:
            raise UsageError(
                "--level 0 takes a profile and needs --logdir DIR to put it; or give --level 1 or 2 to monitor"
            )
        from tpumon.commands import capture

        return partial(
            capture.run,
            capture.CaptureSettings(
                logdir=logdir,
                addresses=addresses,
                port=port,
                simulate=simulator,
                window_s=window_s or _USUAL_PROFILE_S,
                attempts=num_tracing_attempts,
                host_level=host_tracer_level.number,
                use_proxy=use_proxy,
            ),
        )

    from tpumon.commands import monitor

    legacy = monitoring_level is not None
    return partial(
        monitor.run,
        monitor.MonitorSettings(
            level=level,
            addresses=addresses,
            port=port,
            simulate=simulator,
            window_s=window_s,
            interval_s=interval if interval is not None else (_SIMULATED_INTERVAL_S if simulator else None),
            max_duty_ratio=max_duty if max_duty is not None else (1.0 if simulator else _MAX_DUTY_RATIO),
            host_level=host_tracer_level.number,
            logdir=logdir,
            num_queries=num_queries if num_queries is not None else (_LEGACY_NUM_QUERIES if legacy else 0),
            attempts=num_tracing_attempts,
            output="text" if output is OutputFormat.auto else output.value,
            number_samples=legacy,
            use_proxy=use_proxy,
        ),
    )


@app.command("simulate")
def simulate_command(
    topology: Annotated[str, typer.Argument(help="For example v2-8, v3-32, v4-16, v5e-8, v5p-128 or v6e-256.")],
    scenario: _Scenario = "steady",
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


def _window_s(duration_ms: str) -> float | None:
    """`--duration-ms` in seconds; None for auto."""
    if duration_ms == "auto":
        return None
    if not (duration_ms.isascii() and duration_ms.isdigit() and 1 <= int(duration_ms[:9]) <= _LONGEST_DURATION_MS):
        raise UsageError(f"--duration-ms {duration_ms}: give milliseconds from 1 to {_LONGEST_DURATION_MS}, or auto")
    return int(duration_ms) / 1000


def _addresses(
    level: int, service_addr: list[str] | None, workers_list: list[str] | None, tpu: str | None, port: int | None
) -> tuple[str, ...]:
    """The workers to talk to; none: this host's."""
    services = parse_addresses(service_addr or [], default_port=port or PROFILER_PORT)
    workers = parse_addresses(workers_list or [], default_port=port or PROFILER_PORT)
    if tpu is not None and services:
        say("both --service-addr and --tpu are given; --tpu is ignored")
    elif tpu is not None and not workers:
        raise UsageError(
            f"--tpu {tpu}: looking up a TPU by its name is not built yet; give its workers' addresses: "
            "--service-addr HOST:8466[,HOST:8466...]"
        )
    if level > 0 and services and workers:
        say("--workers-list is for level 0 and is ignored: --service-addr is monitored")
    return workers if workers and (level == 0 or not services) else services

"""The command line: options become settings, settings and a command become what `process` runs.

The only place that wires things together. Commands are imported when they run, so that `--help` needs no gRPC.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tpumon import __version__
from tpumon.command_line.help_pages import OUTPUT, CommandPage, GroupPage
from tpumon.command_line.options import (
    AppearanceOptions,
    ExportOptions,
    FromOptions,
    MeasureOptions,
    StdoutOptions,
    TargetOptions,
    ThresholdOptions,
    VerdictOptions,
    check_choice,
    is_typed,
    option,
    takes,
)
from tpumon.command_line.reporting import ReportOptions, report_settings
from tpumon.command_line.scenarios import TERM_HELP, SimulatePage
from tpumon.command_line.settings import (
    ReportFormat,
    check_from,
    check_no_queries,
    expose_of,
    fail_on_of,
    feed_of,
    given,
    level_of,
    nearby_level_of,
    report_format,
    seconds_of,
    selection_of,
    source_of,
    stdout_of,
    thresholds_of,
    window_s_of,
)
from tpumon.errors import UsageError
from tpumon.figures import SORT_KEYS
from tpumon.simulator.settings import DEFAULT_PORT, SERVERS, SimulatorSettings
from tpumon.system.console import say

if TYPE_CHECKING:
    from tpumon.commands.collecting import Needs
    from tpumon.feed import FeedSettings

_USUAL_PROFILE_S = 1.0
_ONCE_INTERVAL_S = 1.0  # samples at the same moment would agree too easily
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
        if ignored := [one.opts[0] for one in context.command.params if is_typed(context, one.name or "")]:
            say(f"ignoring {', '.join(ignored)}: options of {context.invoked_subcommand} go after its name")
        return None
    level = level_of(measure)
    check_from(context, targets, origin)
    check_no_queries(origin, measure)
    if level == 0:
        return _capture(context, targets, measure)
    from tpumon.commands import monitor
    from tpumon.view.settings import DisplaySettings

    legacy = measure.monitoring_level is not None
    if stdout.fleet_summary and stdout.output != "jsonl":
        raise UsageError("--fleet-summary requires --output jsonl")
    output = stdout_of(context, stdout, legacy=legacy)
    judged_by = thresholds_of(context, thresholds)
    source = source_of(context, targets, origin, measure)
    feed = feed_of(source, exports, level, judged_by, listen=stdout.listen, nearby_level=nearby_level_of(context))
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
            output=output,
            explain=stdout.explain,
            color=appearance.color.value,
            number_samples=legacy,
        ),
    )


@app.command("serve", cls=CommandPage)
@takes(TargetOptions, FromOptions, MeasureOptions, ExportOptions, ThresholdOptions)
def serve_command(
    context: typer.Context,
    targets: TargetOptions,
    origin: FromOptions,
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
    state: Annotated[
        str | None,
        option(
            "--state",
            panel=OUTPUT,
            metavar="DIR",
            help="Keep there what verdicts rest on across restarts. Default: systemd's state directory.",
        ),
    ] = None,
    expose: Annotated[
        str,
        option(
            "--expose",
            panel=OUTPUT,
            metavar="findings|all",
            help="With --from, the metrics of the exporters' workers: findings, as Prometheus has the rest from the "
            "hosts; or all, if it scrapes this process only.",
        ),
    ] = "findings",
    web_listen_address: Annotated[str | None, typer.Option("--web.listen-address", hidden=True)] = None,
    web_config_file: Annotated[str | None, typer.Option("--web.config.file", hidden=True)] = None,
) -> Command:
    """Export metrics to Prometheus, without a view.

    Pages: /metrics, /probe?target=WORKER, /-/healthy, /-/ready.

    Examples:
      tpumon serve                         metrics of the jobs on this host
      tpumon serve --listen :10466         let other hosts scrape them
      tpumon serve --tpu NAME              metrics of all workers of a TPU
      tpumon serve --from dns:NAME:10466   judge workers of many exporters
    """
    from tpumon.commands import serve

    level = level_of(measure)
    if level == 0:
        raise UsageError("serve requires --level 1 or 2; to take a profile: tpumon --level 0 --logdir DIR")
    check_from(context, targets, origin)
    source = source_of(context, targets, origin, measure)
    if source.is_over:
        raise UsageError("serve --from takes exporters; to look at a recording: tpumon --from DIR")
    feed = feed_of(
        source.waiting_for_targets(),
        exports,
        level,
        thresholds_of(context, thresholds),
        listen=web_listen_address or listen,
        web_config_file=None if is_typed(context, "web_config") else web_config_file,
        expose=expose_of(context, origin, expose),
    )
    return partial(serve.run, replace(feed, state=state or os.environ.get("STATE_DIRECTORY") or None))


@app.command("simulate", cls=SimulatePage)
def simulate_command(
    topology: Annotated[
        str, typer.Argument(metavar="TOPOLOGY", help="Such as v2-8, v3-32, v4-16, v5e-8, v5p-128 or v6e-256.")
    ],
    scenario: Annotated[str, option("--scenario", metavar="TERM+TERM", help=TERM_HELP)] = "steady",
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
      tpumon simulate v5e-16 --scenario slow-down@300+600:by=0.1+jitter
    """
    from tpumon.commands import simulate

    settings = SimulatorSettings(
        topology=topology, scenario=scenario, monitor=monitor, seed=seed, port=port, server=server
    )
    return partial(simulate.run, settings)


_ReportOutput = Annotated[str, option("--output", panel=OUTPUT, metavar="text|json", help="What to write to stdout.")]


@app.command("once", cls=CommandPage)
@takes(TargetOptions, FromOptions, MeasureOptions, ThresholdOptions, VerdictOptions)
def once_command(
    context: typer.Context,
    targets: TargetOptions,
    origin: FromOptions,
    measure: MeasureOptions,
    thresholds: ThresholdOptions,
    verdict: VerdictOptions,
    output: _ReportOutput = ReportFormat.text.value,
) -> Command:
    """Show all workers in one table, the worst first, and exit.

    Takes as many samples of each worker as must agree (--sustained). That takes seconds if the server computes the
    figures or steps are short, and longer if --max-duty allows no more. The exit status is 1 if a worker is as bad as
    --fail-on, 3 if none answers.

    Examples:
      tpumon once
      tpumon once --from http://10.0.0.2:10466 --output json
    """
    from tpumon.commands import once

    feed, needs = _judged(context, targets, origin, measure, thresholds, verdict)
    settings = once.OnceSettings(
        feed=feed, needs=needs, output=report_format(context, output).value, fail_on=fail_on_of(context, verdict)
    )
    return partial(once.run, settings)


@app.command("why", cls=CommandPage)
@takes(TargetOptions, FromOptions, MeasureOptions, ThresholdOptions, VerdictOptions)
def why_command(
    context: typer.Context,
    targets: TargetOptions,
    origin: FromOptions,
    measure: MeasureOptions,
    thresholds: ThresholdOptions,
    verdict: VerdictOptions,
    output: _ReportOutput = ReportFormat.text.value,
    brief: Annotated[bool, option("--brief", panel=OUTPUT, help="Leave out what cannot be judged.")] = False,
) -> Command:
    """Say what is wrong, who causes it, and what to do.

    Takes as many samples of each worker as must agree (--sustained), or judges what --from names: a running exporter,
    recorded samples, or a saved profile (*.xplane.pb, as one sample). Also says what cannot be judged. The exit status
    is 1 if a worker is as bad as --fail-on, 3 if none answers.

    Examples:
      tpumon why
      tpumon why --from http://10.0.0.2:10466 --output json
      tpumon why --from /tmp/profiles
    """
    from tpumon.commands import why

    feed, needs = _judged(context, targets, origin, measure, thresholds, verdict)
    settings = why.WhySettings(
        feed=feed,
        needs=needs,
        output=report_format(context, output).value,
        fail_on=fail_on_of(context, verdict),
        brief=brief,
    )
    return partial(why.run, settings)


@app.command("mcp", cls=CommandPage)
@takes(TargetOptions, FromOptions, MeasureOptions, ThresholdOptions)
def mcp_command(
    context: typer.Context,
    targets: TargetOptions,
    origin: FromOptions,
    measure: MeasureOptions,
    thresholds: ThresholdOptions,
) -> Command:
    """Answer an agent's questions over stdio (Model Context Protocol).

    Tools: why, list_workers, figures, explain; none of them changes anything. Sampling begins with the first question
    and ends ten minutes after the last one. Needs `pip install 'tpumon[mcp]'`.

    Examples:
      tpumon mcp --from http://10.0.0.2:10466
    """
    from tpumon.commands import mcp

    level = level_of(measure)
    if level != 2 or measure.num_queries:
        raise UsageError("mcp requires --level 2, and takes no --num-queries")
    judged_by = thresholds_of(context, thresholds)
    check_from(context, targets, origin)
    source = source_of(context, targets, origin, measure)
    feed = feed_of(source, ExportOptions(), level, judged_by, listen=None, nearby_level=nearby_level_of(context))
    return partial(mcp.run, mcp.McpSettings(feed=feed, samples=judged_by.sustained))


def _judged(
    context: typer.Context,
    targets: TargetOptions,
    origin: FromOptions,
    measure: MeasureOptions,
    thresholds: ThresholdOptions,
    verdict: VerdictOptions,
) -> tuple[FeedSettings, Needs]:
    """The source of samples of one judgement, and the samples that it needs."""
    from tpumon.commands.collecting import Needs

    judged_by = thresholds_of(context, thresholds)
    check_from(context, targets, origin)
    # What a service's environment or a file says of these is meant for a monitor.
    queries = measure.num_queries if is_typed(context, "num_queries") else None
    needs = Needs(
        samples=queries or judged_by.sustained,
        all_of_them=bool(queries),
        timeout_s=seconds_of(context, "--timeout", verdict.timeout),
    )
    at_once = replace(
        measure,
        level=2,
        num_queries=0,  # all are sampled until the last one has enough, or the first would be stale by then
        interval=measure.interval if is_typed(context, "interval") else _ONCE_INTERVAL_S,
    )
    source = source_of(context, targets, origin, at_once)
    nearby_level = nearby_level_of(context)
    return feed_of(source, ExportOptions(), 2, judged_by, listen=None, nearby_level=nearby_level), needs


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

    return partial(analyze.run, analyze.AnalyzeSettings(paths=paths, output=report_format(context, output).value))


@app.command("report", cls=CommandPage)
@takes(TargetOptions, ReportOptions)
def report_command(
    context: typer.Context,
    targets: TargetOptions,
    options: ReportOptions,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|DIR]...", help="As for analyze. Without it, a profile is taken of the workers named."
        ),
    ] = None,
) -> Command:
    """Show the tables of a profile: operations, steps, where the time goes.

    XProf's pages as text, Markdown, JSON or one HTML page. Reads saved profiles, or takes one of the workers that
    --service-addr, --tpu, --targets or --simulate name; it is not kept.

    Examples:
      tpumon report /tmp/profiles
      tpumon report /tmp/profiles --section ops --top 50 --filter attention
      tpumon report --service-addr 10.0.0.2:9999 --output json
      tpumon report new/ --against old/ --fail-above 5%
    """
    from tpumon.commands import report

    return partial(report.run, report_settings(context, targets, options, paths or ()))


@app.command("export", cls=CommandPage)
def export_command(
    recording: Annotated[str, typer.Argument(metavar="DIR|FILE", help="What --record wrote.")],
    to: Annotated[
        str | None, option("--to", panel=OUTPUT, metavar="FILE.parquet", help="The file to write; required.")
    ] = None,
) -> Command:
    """Export recorded samples to a Parquet file.

    One row per query and worker, with the columns of CSV. Needs `pip install 'tpumon[parquet]'`.

    Examples:
      tpumon export recorded/ --to samples.parquet
    """
    from tpumon.commands import export

    if to is None:
        raise UsageError("export requires --to FILE.parquet")
    return partial(export.run, export.ExportSettings(recording=recording, to=to))


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
        where=selection_of(context, targets, level=2),
        output=report_format(context, output).value,
        use_proxy=targets.use_proxy,
    )
    return partial(doctor.run, settings)


@app.command("events", cls=CommandPage)
@takes(TargetOptions, FromOptions, MeasureOptions, ThresholdOptions)
def events_command(
    context: typer.Context,
    targets: TargetOptions,
    origin: FromOptions,
    measure: MeasureOptions,
    thresholds: ThresholdOptions,
    output: Annotated[
        str, option("--output", panel=OUTPUT, metavar="text|jsonl", help="What to write to stdout.")
    ] = "text",
    follow: Annotated[
        bool,
        option(
            "--follow", panel=OUTPUT, help="Where a running exporter is read: go on with new changes until stopped."
        ),
    ] = False,
) -> Command:
    """Print what changed, and when.

    Workers that become slow, stop, run again, are profiled by others, or whose job restarts. With --from, or where a
    tpumon of this host samples its jobs: what it remembers; of a recording, what was recorded.

    Examples:
      tpumon events --from http://10.0.0.2:10466
      tpumon events --from recorded/ --output jsonl
      tpumon events                        watch the jobs on this host for changes
    """
    from tpumon.commands import events

    check_from(context, targets, origin)
    check_no_queries(origin, measure)
    level = level_of(measure)
    if level == 0:
        raise UsageError("events requires --level 1 or 2")
    source = source_of(context, targets, origin, measure)
    if output not in {"text", "jsonl"} and not is_typed(context, "output"):
        output = "text"  # TPUMON_OUTPUT is meant for another command
    judged_by = thresholds_of(context, thresholds)
    settings = events.EventsSettings(
        feed=feed_of(source, ExportOptions(), level, judged_by, listen=None, nearby_level=nearby_level_of(context)),
        output="jsonl" if check_choice(context, "--output", output, ("text", "jsonl")) == "jsonl" else "text",
        follow=follow,
    )
    return partial(events.run, settings)


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
    traces wait for samples, so that no sample can break one. TPUMON_ATTACH=0 switches this off.

    Examples:
      tpumon run python train.py
      tpumon run --port 9001 -- python -m trainer --steps 1000
    """
    from tpumon.commands import run

    settings = run.RunSettings(program=program or (), port=port, monitor=monitor, monitor_file=monitor_file)
    return partial(run.run, settings)


@app.command("config", cls=CommandPage)
@takes()
def config_command(context: typer.Context) -> Command:
    """Show the options in force, and where each comes from.

    An option can stand on the command line, in the environment, or in a file: ~/.config/tpumon/config.toml, or the one
    that TPUMON_CONFIG names. The first of these wins. The output has the form of the file.

    Examples:
      tpumon config                          its output is a file to begin with
    """
    from tpumon.command_line.config_file import config_path
    from tpumon.command_line.in_force import settings_in_force
    from tpumon.commands import config

    return partial(config.run, config.ConfigSettings(path=config_path(), settings=settings_in_force(context)))


class Shell(StrEnum):
    """Shells that can complete tpumon's command lines."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@app.command("completion", cls=CommandPage)
def completion_command(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> Command:
    """Print a script that makes a shell complete commands and options.

    Examples:
      tpumon completion bash         append it to ~/.bashrc
      tpumon completion zsh          append it to ~/.zshrc
      tpumon completion fish         save it in ~/.config/fish/completions/
    """
    from typer import completion

    script = completion.get_completion_script(  # type: ignore[attr-defined]
        prog_name="tpumon", complete_var="_TPUMON_COMPLETE", shell=shell.value
    )
    return partial(_print, script)


def _print(text: str) -> int:
    typer.echo(text)
    return 0


def _capture(context: typer.Context, targets: TargetOptions, measure: MeasureOptions) -> Command:
    from tpumon.commands import capture

    if measure.logdir is None:
        raise UsageError("--level 0 requires --logdir DIR to save the profile; to monitor, use --level 1 or 2")
    return partial(
        capture.run,
        capture.CaptureSettings(
            logdir=measure.logdir,
            selection=selection_of(context, targets, level=0),
            window_s=window_s_of(context, measure.duration_ms) or _USUAL_PROFILE_S,
            attempts=measure.num_tracing_attempts,
            host_level=measure.host_tracer_level.number,
            use_proxy=targets.use_proxy,
            **given(max_trace_mb=measure.max_trace_mb),
        ),
    )

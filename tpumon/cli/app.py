"""The command line: options become settings, settings and a command become what `process` runs.

The only place that wires things together. Commands are imported when they run, so that `--help` needs no gRPC.
"""

import logging
import os
import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from msgspec.structs import replace

from tpumon import __version__
from tpumon.cli import tool_commands
from tpumon.cli.group import ENVIRONMENT, CommandGroup
from tpumon.cli.options import (
    FORMATS,
    AppearanceOptions,
    Command,
    ExportOptions,
    FollowOptions,
    FormatOption,
    StdoutOptions,
    ThresholdOptions,
    VerdictOptions,
    check_choice,
    format_option,
    is_given_beside,
    is_typed,
    option,
    with_groups,
    written,
)
from tpumon.cli.report_options import USUAL_PROFILE_S
from tpumon.cli.resolve import (
    at_moment,
    check_filter,
    check_queries,
    feed_of,
    given,
    host_level_of,
    level_of,
    max_trace_mb_of,
    read_option,
    report_format,
    selection_of,
    stdout_of,
    window_s_of,
)
from tpumon.cli.values import INTERVAL, TIMEOUT
from tpumon.errors import UsageError
from tpumon.model.figure_table import SORT_KEYS
from tpumon.untrusted_text import one_line

if TYPE_CHECKING:
    from tpumon.cli.enough_samples import Needs
    from tpumon.pipeline import FeedSettings

_log = logging.getLogger(__name__)

_ONCE_INTERVAL = "1s"  # samples at the same moment would agree too easily
_MORE_S = 30.0  # for what takes more samples than must agree
_LISTEN = "127.0.0.1:10466"

app = typer.Typer(
    name="tpumon",
    cls=CommandGroup,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], **ENVIRONMENT},
    epilog="Each option has an environment variable, such as TPUMON_INTERVAL for --interval, and can stand in a file: "
    "see tpumon config --help.",
)
command = partial(app.command, context_settings=ENVIRONMENT)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"tpumon {__version__}")
        raise typer.Exit


_Version = Annotated[
    bool,
    option(
        "--version",
        callback=_show_version,
        is_eager=True,
        expose_value=False,
        allow_from_autoenv=False,
        help="Show the version and exit.",
    ),
]


@app.callback(invoke_without_command=True)
@with_groups
def monitor(
    context: typer.Context,
    options: FollowOptions,
    stdout: StdoutOptions,
    exports: ExportOptions,
    appearance: AppearanceOptions,
    thresholds: ThresholdOptions,
    version: _Version = False,  # noqa: ARG001 - its callback acts on it
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
        typed = [one.opts[0] for one in context.command.params if is_typed(context, one.name or "")]
        if early := [name for name in typed if name != "--verbose"]:
            name = context.invoked_subcommand
            right = " ... ".join(["", *early, ""]).removeprefix(" ...").rstrip()
            raise UsageError(f"{', '.join(early)}: options of {name} go after its name: tpumon {name}{right}")
        return None
    check_queries(options)
    level = level_of(options)
    if level == 0:
        return _capture(context, options)
    from tpumon.cli.commands import monitor
    from tpumon.outputs.live.view_settings import DisplaySettings

    legacy = options.monitoring_level is not None
    if stdout.fleet_summary and stdout.output != "jsonl":
        raise UsageError("--fleet-summary requires --output jsonl")
    output = stdout_of(stdout, legacy=legacy)
    if is_given_beside(context, "filter", "explain", "fleet_summary", "output"):
        check_filter(stdout, output)
    feed = at_moment(feed_of(context, options, thresholds, exports, listen=stdout.listen), appearance.at)
    if any(export.where == "-" for export in feed.exports):
        raise UsageError("--export NAME=-: stdout is taken by --output; write to a file")
    return partial(
        monitor.run,
        monitor.MonitorSettings(
            feed=feed,
            display=DisplaySettings(
                level=level,
                sort=check_choice("--sort", appearance.sort, SORT_KEYS),
                filter=appearance.filter or "",
                ascii=appearance.ascii,
                thresholds=feed.output_settings.thresholds,
            ),
            output=output,
            explain=stdout.explain,
            color=appearance.color,
            number_samples=legacy,
        ),
    )


@command("serve")
@with_groups
def serve_command(
    context: typer.Context,
    options: FollowOptions,
    exports: ExportOptions,
    thresholds: ThresholdOptions,
    listen: Annotated[
        str, written(metavar="HOST:PORT", help="Where Prometheus scrapes; :PORT listens on all addresses of this host.")
    ] = _LISTEN,
    state: Annotated[
        str | None,
        written(
            metavar="DIR", help="Keep there what verdicts rest on across restarts. Default: systemd's state directory."
        ),
    ] = None,
    expose: Annotated[
        Literal["findings", "all"],
        written(
            help="With --from, the metrics of the exporters' workers: findings, as Prometheus has the rest from the "
            "hosts; or all, if it scrapes this process only."
        ),
    ] = "findings",
) -> Command:
    """Export metrics to Prometheus, without a view.

    Pages: /metrics, /probe?target=WORKER, /-/healthy, /-/ready.

    Examples:
      tpumon serve                         metrics of the jobs on this host
      tpumon serve --listen :10466         let other hosts scrape them
      tpumon serve --tpu NAME              metrics of all workers of a TPU
      tpumon serve --from dns:NAME:10466   judge workers of many exporters
    """
    from tpumon.cli.commands import serve

    if level_of(options) == 0:
        raise UsageError("serve requires --level 1 or 2; to take a profile: tpumon --level 0 --logdir DIR")
    feed = feed_of(context, options, thresholds, exports, listen=listen)
    if options.from_ is None and is_typed(context, "expose"):
        raise UsageError("--expose requires --from: of workers that this process samples itself, it exposes everything")
    feed = replace(
        feed,
        source=feed.source.waiting_for_targets(),
        nearby_level=None,
        output_settings=replace(feed.output_settings, expose=expose),
        state_dir=state or os.environ.get("STATE_DIRECTORY") or None,
    )
    return partial(serve.run, feed)


@command("once")
@with_groups
def once_command(
    context: typer.Context,
    options: FollowOptions,
    thresholds: ThresholdOptions,
    verdict: VerdictOptions,
    output: FormatOption = "text",
) -> Command:
    """Show all workers in one table, the worst first, and exit.

    Takes as many samples of each worker as must agree (--sustained). That takes
    seconds if the server computes the figures or steps are short, and longer if
    --max-duty allows no more. The exit status is 1 if a worker is as bad as
    --fail-on, 3 if none answers.

    Examples:
      tpumon once
      tpumon once --state ~/.cache/tpumon    by cron: also finds what hangs
      tpumon once --from http://10.0.0.2:10466 --output json
    """
    from tpumon.cli.commands import once

    feed, needs = _judged(context, options, thresholds, verdict)
    form = report_format(context, output, FORMATS)
    return partial(once.run, feed=feed, needs=needs, output=form, fail_on=verdict.fail_on)


@command("why")
@with_groups
def why_command(
    context: typer.Context,
    options: FollowOptions,
    thresholds: ThresholdOptions,
    verdict: VerdictOptions,
    output: FormatOption = "text",
    brief: Annotated[bool, written("--brief", help="Leave out what cannot be judged.")] = False,
    request: Annotated[
        str | None, written(metavar="ID", help="Say where the time of this request went, in the profile FILE|DIR.")
    ] = None,
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="FILE|DIR", help="With --request: the saved profile, as for analyze.")
    ] = None,
) -> Command:
    """Say what is wrong, who causes it, and what to do.

    Takes as many samples of each worker as must agree (--sustained), and more
    where half a minute allows; or judges what --from names: a running exporter,
    recorded samples, or a saved profile (*.xplane.pb, as one sample). Also says
    what cannot be judged, and the command that looks longer. The exit status is
    1 if a worker is as bad as --fail-on, 3 if none answers.

    Examples:
      tpumon why
      tpumon why --from http://10.0.0.2:10466 --output json
      tpumon why --from /tmp/profiles
      tpumon why --request cmpl-7 /tmp/profiles  where its time went
    """
    from tpumon.cli.commands import why

    if request is None and paths:
        judging = f"tpumon why --from {shlex.quote(one_line(paths[0]))}"
        raise UsageError(f"FILE|DIR goes with --request ID; to judge a profile: {judging}")
    if request is not None and not paths:
        raise UsageError("--request ID requires the saved profile, FILE|DIR: tpumon why --request ID FILE|DIR")
    form = report_format(context, output, FORMATS)
    if request is not None:
        return partial(why.run_request, request, paths or (), form)
    feed, needs = _judged(context, options, thresholds, verdict)
    needs = needs if needs.all_of_them else replace(needs, more_s=_MORE_S)
    return partial(why.run, feed=feed, needs=needs, output=form, fail_on=verdict.fail_on, brief=brief)


@command("mcp")
@with_groups
def mcp_command(
    context: typer.Context,
    options: FollowOptions,
    thresholds: ThresholdOptions,
) -> Command:
    r"""Answer an agent's questions over stdio (Model Context Protocol).

    Tools: why, list_workers, figures, explain; none of them changes anything.
    Sampling begins with the first question and ends ten minutes after the last
    one. Needs the extra `mcp`; where it lacks, tpumon says how to install it.

    Examples:
      tpumon mcp --from http://10.0.0.2:10466
    """
    from tpumon.cli.commands import mcp

    if level_of(options) != 2 or options.num_queries:
        raise UsageError("mcp requires --level 2, and takes no --num-queries")
    return partial(mcp.run, feed=feed_of(context, options, thresholds), samples=thresholds.sustained)


def _judged(
    context: typer.Context, options: FollowOptions, thresholds: ThresholdOptions, verdict: VerdictOptions
) -> "tuple[FeedSettings, Needs]":
    """The source of samples of one judgement, and the samples that it needs."""
    from tpumon.cli.enough_samples import Needs

    if options.interval is not None:
        read_option("--interval", INTERVAL.read, options.interval)  # wrong is wrong, also where it does not count
    if is_typed(context, "level") and options.level != 2:
        _log.warning("--level %d is not used: %s judges at level 2", options.level, context.info_name)
    # What a service's environment says of these is meant for a monitor; so is what a file says to all commands.
    queries = options.num_queries if is_typed(context, "num_queries", or_in_file=True) else None
    needs = Needs(
        samples=queries or thresholds.sustained,
        all_of_them=bool(queries),
        timeout_s=read_option("--timeout", TIMEOUT.read, verdict.timeout),
    )
    at_once = replace(
        options,
        level=2,
        num_queries=0,  # all are sampled until the last one has enough, or the first would be stale by then
        interval=options.interval if is_typed(context, "interval", or_in_file=True) else _ONCE_INTERVAL,
    )
    feed = at_moment(feed_of(context, at_once, thresholds), verdict.at)
    if feed.source.is_over and is_given_beside(context, "state", "from_"):
        raise UsageError("--state goes on from the last run, and --from a recording is over: leave out one of them")
    return replace(feed, state_dir=None if feed.source.is_over else verdict.state or None), needs


@command("events")
@with_groups
def events_command(
    context: typer.Context,
    options: FollowOptions,
    thresholds: ThresholdOptions,
    output: Annotated[str, format_option("text|jsonl")] = "text",
    follow: Annotated[
        bool, written("--follow", help="Where a running exporter is read: go on with new changes until stopped.")
    ] = False,
) -> Command:
    """Print what changed, and when.

    Workers that become slow, stop, run again, are profiled by others, or whose
    job restarts. With --from, or beside a tpumon of this host that serves
    (tpumon serve, --listen): what it remembers; of a recording, what was recorded.

    Examples:
      tpumon events --from http://10.0.0.2:10466
      tpumon events --from recorded/ --output jsonl
      tpumon events                        watch the jobs on this host for changes
    """
    from tpumon.cli.commands import events

    check_queries(options)
    if level_of(options) == 0:
        raise UsageError("events requires --level 1 or 2")
    formats: tuple[Literal["text", "jsonl"], ...] = ("text", "jsonl")
    form = report_format(context, output, formats)
    return partial(events.run, feed=feed_of(context, options, thresholds), output=form, follow=follow)


def _capture(context: typer.Context, options: FollowOptions) -> Command:
    from tpumon.cli.commands import capture

    if options.logdir is None:
        raise UsageError("--level 0 requires --logdir DIR to save the profile; to monitor, use --level 1 or 2")
    return partial(
        capture.run,
        capture.CaptureSettings(
            logdir=options.logdir,
            selection=selection_of(context, options, level=0),
            window_s=window_s_of(options.duration_ms) or USUAL_PROFILE_S,
            attempts=options.num_tracing_attempts,
            host_level=host_level_of(options),
            use_proxy=options.use_proxy,
            **given(max_trace_mb=max_trace_mb_of(options)),
        ),
    )


app.add_typer(tool_commands.app)

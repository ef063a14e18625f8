"""Settings from groups of options, which are checked against each other. Shared by the commands in `tpumon.cli.app`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from msgspec.structs import fields, replace

from tpumon.cli.contradictions import WAYS, contradiction, not_obeyed
from tpumon.cli.options import (
    Choice,
    ExportOptions,
    FollowOptions,
    Level,
    StdoutOptions,
    TargetOptions,
    ThresholdOptions,
    check_choice,
    is_given_beside,
    is_typed,
    strength_of,
)
from tpumon.cli.values import (
    HBM_LIMITS,
    IDLE_LIMIT,
    INFEED_LIMITS,
    INTERVAL,
    MAX_DUTY,
    MAX_TRACE,
    OWN_OUTPUTS,
    STEP_LIMITS,
    read_duration,
    read_kept,
)
from tpumon.discovery.addresses import PROFILER_PORT, parse_addresses
from tpumon.errors import UsageError
from tpumon.simulator.simulator_settings import SimulatorSettings
from tpumon.system.exporter_ports import host_key
from tpumon.system.ledger import USUAL_DUTY_RATIO
from tpumon.untrusted_text import one_line

if TYPE_CHECKING:
    from tpumon.analysis.findings import Thresholds
    from tpumon.collection.event_sources import ExportersSource, RecordingSource, SamplingSource
    from tpumon.discovery.selection import Selection
    from tpumon.outputs import Export
    from tpumon.pipeline import FeedSettings

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

_SIMULATED_INTERVAL_S = 1.0
_LEGACY_NUM_QUERIES = 100
_GPU_WARNING = (
    "--gpu loads CUPTI into jobs that can use a GPU, which has crashed jobs (github.com/jax-ml/jax/issues/40260)"
)


def level_of(options: FollowOptions) -> Level:
    """The level that was asked for, by whatever option."""
    if options.level is not None:
        return options.level
    if options.monitoring_level is not None:
        return options.monitoring_level
    return 0 if options.logdir else 2


def host_level_of(options: FollowOptions) -> int | None:
    """The host tracer level of a profile; None: tpumon decides."""
    return None if options.host_tracer_level == "auto" else int(options.host_tracer_level)


def stdout_of(stdout: StdoutOptions, *, legacy: bool) -> str | Export:
    """The output on stdout: "auto", "live", "text" or an exporter."""
    from tpumon.outputs import parse_output

    if stdout.explain:
        if stdout.output not in {"auto", "text"} or stdout.fleet_summary:
            raise UsageError("--explain requires --output text; JSON lines have findings without it")
        return "text"

    if stdout.fleet_summary:
        return parse_output("fleet-summary")
    if stdout.output in OWN_OUTPUTS:
        # The old spelling is typed by those who read the old blocks.
        return "text" if legacy and stdout.output == "auto" else stdout.output
    try:
        return parse_output(stdout.output)
    except UsageError as error:
        raise typer.BadParameter(str(error), param_hint="--output") from None


def check_filter(stdout: StdoutOptions, output: str | Export) -> None:
    """Refuses --filter for what is of all workers together."""
    summary = "" if isinstance(output, str) else output.name * (output.name == "fleet-summary")
    if stdout.explain or summary:
        raise UsageError(f"--filter shows some workers, {summary or '--explain'} judges all: leave out one of them")


def report_format(context: typer.Context, output: str, choices: Sequence[Choice]) -> Choice:
    """The format of a command that ends by itself; TPUMON_OUTPUT counts only if it is meant for such a command."""
    meant = is_typed(context, "output") or output in choices
    return check_choice("--output", output, choices) if meant else choices[0]


def read_option(name: str, read: Callable[[str], Value], text: str) -> Value:
    """Reads the value of the option `name` with its reader in `tpumon.cli.values`.

    Raises:
        BadParameter: it is no such quantity.
    """
    try:
        return read(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=name) from None


def max_trace_mb_of(options: FollowOptions) -> int | None:
    """`--max-trace-mb` in whole MB; None: it is not given."""
    size = options.max_trace_mb
    return None if size is None else int(read_option("--max-trace-mb", MAX_TRACE.read, size) / 1e6)


def given(**options: Any) -> dict[str, Any]:
    """The options that were given; a default stands where it is used."""
    return {name: value for name, value in options.items() if value is not None}


def _sampling_of(context: typer.Context, options: FollowOptions) -> SamplingSource:
    """The samples that this process is to take."""
    from tpumon.collection.event_sources import SamplingSource
    from tpumon.collection.sampler import Pace
    from tpumon.collection.sampler.host_traces import signs_and_hang_at
    from tpumon.collection.sources import SourceOptions
    from tpumon.discovery.host.processes import context_switches_of, cpu_s_of, state_of
    from tpumon.model import Query
    from tpumon.system.logdir import open_logdir

    simulated = options.simulate is not None
    interval_s = _SIMULATED_INTERVAL_S if simulated else None
    if options.interval is not None:
        interval_s = read_option("--interval", INTERVAL.read, options.interval)
    max_duty_ratio = 1.0 if simulated else USUAL_DUTY_RATIO
    if options.max_duty is not None:
        max_duty_ratio = read_option("--max-duty", MAX_DUTY.read, options.max_duty)
    if options.gpu:
        _log.warning("%s", _GPU_WARNING)
    usual_queries = _LEGACY_NUM_QUERIES if options.monitoring_level is not None else 0
    level = level_of(options)
    return SamplingSource(
        query=Query(level=level, window_s=window_s_of(options.duration_ms)),
        selection=selection_of(context, options, level=level, runtime_addr=options.runtime_addr),
        pace=Pace(
            interval_s=interval_s,
            max_duty_ratio=max_duty_ratio,
            attempts=options.num_tracing_attempts,
            num_queries=options.num_queries if options.num_queries is not None else usual_queries,
        ),
        sources=SourceOptions(
            host_level=host_level_of(options),
            logdir=open_logdir(options.logdir) if options.logdir else None,
            runtime_metrics=level > 1 and not options.no_runtime_metrics,
            **given(max_trace_mb=max_trace_mb_of(options)),
            gpu=options.gpu,
            signs_at=signs_and_hang_at,
            state_of=state_of,
            context_switches_of=context_switches_of,
            cpu_s_of=cpu_s_of,
        ),
        use_proxy=options.use_proxy,
    )


def feed_of(
    context: typer.Context,
    options: FollowOptions,
    thresholds: ThresholdOptions,
    outputs: ExportOptions | None = None,
    *,
    listen: str | None = None,
) -> FeedSettings:
    """The source of events, and the outputs that get them besides stdout.

    Raises:
        UsageError: options contradict each other.
    """
    from tpumon.collection.event_sources import ExportersSource
    from tpumon.outputs import Export, OutputSettings, parse_export
    from tpumon.pipeline import FeedSettings

    outputs = outputs or ExportOptions()
    judged_by = thresholds_of(thresholds)
    source = _source_of(context, options)
    exports = [Export(name="prometheus", where=listen, given="listen")] if listen else []
    exports += map(parse_export, outputs.export or [])
    if outputs.on_change is not None:
        exports.append(Export(name="on-change", where=outputs.on_change))
    if outputs.record is not None:
        exports.append(
            Export(
                name="record",
                where=outputs.record,
                options=read_option("--record-keep", read_kept, outputs.record_keep),
            )
        )
    if source.is_over and (exports or listen is not None):
        raise UsageError(
            "--from a recording takes no --listen, --export, --on-change or --record: it is over; "
            "see it: tpumon --from DIR"
        )
    if isinstance(source, ExportersSource):
        source = replace(source, keeps_apart=not exports)
    if outputs.record is None and is_typed(context, "record_keep"):
        raise UsageError("--record-keep requires --record DIR")
    if outputs.web_config is not None and not any(export.name == "prometheus" for export in exports):
        raise UsageError("--web-config requires a Prometheus endpoint; add --listen HOST:PORT")
    most_ops = outputs.with_ops or 0
    host = host_key() if source.is_of_host else None
    return FeedSettings(
        source=source.with_ops(most_ops),
        nearby_level=_nearby_level_of(context),
        exports=exports,
        output_settings=OutputSettings(
            level=level_of(options), web_config=outputs.web_config, thresholds=judged_by, ops=most_ops, host=host
        ),
    )


def at_moment(feed: FeedSettings, at: str | None) -> FeedSettings:
    """The source with `--at`, the moment of a recording.

    Raises:
        UsageError: it is not a recording.
    """
    from tpumon.collection.event_sources import RecordingSource

    if at is None:
        return feed
    if not isinstance(feed.source, RecordingSource):
        raise UsageError(f"--at is for recorded samples: --from DIR --at {one_line(at)}")
    return replace(feed, source=replace(feed.source, at=at))


_OPTIONS = {option.name for group in (FollowOptions, ExportOptions, ThresholdOptions) for option in fields(group)}
_DECIDING = {*_OPTIONS, "listen"} - {"level", "service_addr", "verbose"}


def _nearby_level_of(context: typer.Context) -> int | None:
    """The level that a tpumon of this host must have to be read instead of sampling; None: it must not be.

    An option that says what is sampled, how, or how it is judged asks for samples of this process. Addresses do not:
    samples of those workers will do, whichever tpumon takes them.
    """
    for name in _DECIDING:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            return None
    return int(context.params.get("level") or 0)


def thresholds_of(options: ThresholdOptions) -> Thresholds:
    """Limits from which on a worker is marked."""
    from tpumon.analysis.findings import Thresholds

    infeed = read_option("--infeed-limits", INFEED_LIMITS.read_pair, options.infeed_limits)
    hbm = read_option("--hbm-limits", HBM_LIMITS.read_pair, options.hbm_limits)
    step = read_option("--step-limits", STEP_LIMITS.read_pair, options.step_limits)
    return Thresholds(
        infeed_warn_ratio=infeed[0],
        infeed_critical_ratio=infeed[1],
        hbm_warn_ratio=hbm[0],
        hbm_critical_ratio=hbm[1],
        step_warn_ratio=step[0],
        step_critical_ratio=step[1],
        idle_below_ratio=read_option("--idle-limit", IDLE_LIMIT.read, options.idle_limit),
        sustained=options.sustained,
    )


def _not_obeyed(context: typer.Context) -> Collection[str]:
    """The options that others hide.

    Raises:
        UsageError: options contradict each other.
    """
    hidden = not_obeyed({name: strength for name in context.params if (strength := strength_of(context, name)) >= 0})
    if refused := [contradiction(other, option) for option, (how, other) in hidden.items() if how == "refused"]:
        raise UsageError(refused[0], others=refused[1:])
    return hidden


def check_queries(options: FollowOptions) -> None:
    """Refuses what a monitor with --from cannot do."""
    if options.from_ is None:
        return
    if level_of(options) == 0:
        raise UsageError("--from shows samples and cannot take a profile; name the workers with --service-addr")
    if options.num_queries:
        raise UsageError("--from does not query workers; it cannot be combined with --num-queries")


def _source_of(context: typer.Context, options: FollowOptions) -> SamplingSource | RecordingSource | ExportersSource:
    """The source of samples: what --from names, otherwise this process takes them.

    Raises:
        UsageError: options contradict each other.
    """
    from tpumon.collection.event_sources import ExportersSource

    if options.from_ is None:
        return _sampling_of(context, options)
    _not_obeyed(context)
    source = source_from(options.from_, options.from_auth)
    if isinstance(source, ExportersSource):
        return replace(source, job=options.job or None, slice=options.slice or None)
    return source


def source_from(where: str, auth_file: str | None = None) -> RecordingSource | ExportersSource:
    """The source that --from names: recorded samples, or exporters; HOST:PORT is an http one.

    Raises:
        UsageError: it is a recording and options of servers are given, or these are wrong.
    """
    from tpumon.collection.event_sources import ExportersSource, RecordingSource
    from tpumon.collection.recording import is_recording
    from tpumon.collection.remote import lists_exporters, sources_of

    if is_recording(where) and not lists_exporters(where):
        if auth_file is not None:
            raise UsageError("--from-auth is for a server; --from names recorded samples")
        return RecordingSource(where)
    return ExportersSource(",".join(sources_of(where, auth_file)), auth_file)


def window_s_of(duration_ms: str) -> float | None:
    """`--duration-ms` in seconds; None for auto."""
    return read_option("--duration-ms", read_duration, duration_ms)


def selection_of(
    context: typer.Context, targets: TargetOptions, *, level: int, runtime_addr: list[str] | None = None
) -> Selection:
    """The workers that the options name; if they name some in several ways, the one given most strongly wins.

    Of several that are given alike, the most specific wins.
    """
    from tpumon.discovery.host.runtime_ports import parse_runtime_addresses
    from tpumon.discovery.selection import Selection
    from tpumon.discovery.server_metrics import parse_server_metrics

    if is_typed(context, "from_auth"):
        raise UsageError("--from-auth requires --from URL")
    if targets.simulate is None and is_typed(context, "scenario"):
        raise UsageError("--scenario requires --simulate TOPOLOGY")
    if not targets.tpu and (of_tpu := [f"--{name}" for name in ("zone", "project") if is_typed(context, name)]):
        if not (targets.service_addr or targets.workers_list):
            raise UsageError(f"{of_tpu[0]} requires --tpu NAME")
        _log.info("ignoring %s: there is no --tpu NAME", " and ".join(of_tpu))
    runtime_addresses = parse_runtime_addresses(runtime_addr or [])
    server_metrics = parse_server_metrics(targets.server_metrics or [])
    hidden = _not_obeyed(context)
    if targets.simulate is not None:
        simulate = SimulatorSettings(topology=targets.simulate, scenario=targets.scenario)
        return Selection(
            simulate=simulate,
            runtime_addresses=runtime_addresses,
            server_metrics=server_metrics,
            job=targets.job,
            slice=targets.slice,
            job_kind=targets.job_kind,
        )
    targets = replace(targets, **dict.fromkeys({*WAYS} & {*hidden}))
    services = parse_addresses(targets.service_addr or [], default_port=targets.port or PROFILER_PORT)
    workers = parse_addresses(targets.workers_list or [], default_port=targets.port or PROFILER_PORT)
    tpus = tuple(name for text in targets.tpu or () for part in text.split(",") if (name := part.strip()))
    if targets.tpu and not tpus:
        raise UsageError("--tpu names no TPU; give NAME,..., or leave it out")
    if services and "tpu" in hidden and is_given_beside(context, "tpu", *WAYS):
        _log.info("ignoring --tpu: --service-addr is given, too")
    if level > 0 and services and workers:
        _log.info("ignoring --workers-list: it is for level 0, and --service-addr is given, too")
    addresses = workers if workers and (level == 0 or not services) else services
    return Selection(
        addresses=addresses,
        port=targets.port,
        tpus=() if addresses else tpus,
        zone=targets.zone,
        project=targets.project,
        targets_file=targets.targets,
        runtime_addresses=runtime_addresses,
        server_metrics=server_metrics,
        job=targets.job,
        slice=targets.slice,
        job_kind=targets.job_kind,
    )

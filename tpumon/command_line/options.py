"""Options that several commands share: groups of them, as frozen values. What they mean together is `tpumon.cli`'s."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache, partial
from typing import Annotated, Any, cast, get_type_hints

import typer

from tpumon.command_line.config_file import given_in_file
from tpumon.command_line.help_pages import APPEARANCE, MEASURE, OUTPUT, TARGETS, THRESHOLDS
from tpumon.command_line.scenarios import SCENARIO_HELP
from tpumon.errors import UsageError
from tpumon.figures import SORT_KEYS
from tpumon.model import MOST_OPS
from tpumon.targets.addresses import PROFILER_PORT

_MAX_INTERVAL_S = 7 * 24 * 3600


def option(name: str, *, panel: str | None = None, **rest: Any) -> Any:
    """An option that can also be set by TPUMON_<NAME>.

    Args:
        name: as it is typed; `--yes/--no` for a switch with two names.
        panel: the heading under which `--help` lists it.
        rest: passed to `typer.Option`.
    """
    variable = "TPUMON_" + name.partition("/")[0].removeprefix("--").upper().replace("-", "_")
    return typer.Option(name, envvar=variable, show_envvar=False, rich_help_panel=panel, **rest)


_target = partial(option, panel=TARGETS)
_measure = partial(option, panel=MEASURE)
_output = partial(option, panel=OUTPUT)
_appearance = partial(option, panel=APPEARANCE)
_threshold = partial(option, panel=THRESHOLDS)


def as_given(context: typer.Context, name: str, value: str) -> str:
    """How the user gave an option, for messages: `--sort cpu`, or `TPUMON_SORT=cpu` from the environment."""
    option = next((one for one in context.command.params if name in one.opts), None)
    source = None if option is None or option.name is None else context.get_parameter_source(option.name)
    if option is not None and source is not None and source.name == "ENVIRONMENT":
        return f"{option.envvar}={value}"
    if option is not None and source is not None and source.name == "DEFAULT_MAP":
        return f"{given_in_file(option)}: {value}"
    return f"{name} {value}"


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option comes from the command line, not from its environment variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_choice(context: typer.Context, name: str, value: str, choices: Sequence[str]) -> str:
    """Returns the value of the option `name` if it is one of the choices.

    For choices that are computed; Typer checks those that an enum lists.

    Raises:
        UsageError: it is none of them.
    """
    if value not in choices:
        raise UsageError(f"{as_given(context, name, value)}: choose one of {', '.join(choices)}")
    return value


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


class Color(StrEnum):
    """Whether the live view has colours."""

    auto = "auto"
    always = "always"
    never = "never"


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Which workers."""

    service_addr: Annotated[
        list[str] | None,
        _target(
            "--service-addr",
            metavar="HOST:PORT,...",
            help="Profiler server of each worker; repeatable. HOST:20000-20255 is a range. Default: the jobs on this "
            "host.",
        ),
    ] = None
    workers_list: Annotated[
        list[str] | None,
        _target(
            "--workers-list",
            metavar="HOST:PORT,...",
            help="Workers to profile at level 0; at levels 1 and 2, used only without --service-addr.",
        ),
    ] = None
    tpu: Annotated[
        list[str] | None,
        _target("--tpu", metavar="NAME,...", help="All workers of a TPU, by its name in the TPU API; repeatable."),
    ] = None
    zone: Annotated[
        str | None, _target("--zone", metavar="ZONE", help="Zone of --tpu. Default: this machine's zone.")
    ] = None
    project: Annotated[
        str | None,
        _target("--project", metavar="PROJECT", help="Project of --tpu. Default: this machine's project."),
    ] = None
    targets: Annotated[
        str | None,
        _target(
            "--targets",
            metavar="FILE",
            help="Workers listed in a Prometheus file_sd file (JSON or YAML); read again when it changes.",
        ),
    ] = None
    job: Annotated[
        str | None,
        _target("--job", metavar="NAME", help="Job of the workers; in Kubernetes NAMESPACE/NAME. Default: found."),
    ] = None
    slice: Annotated[
        str | None,
        _target("--slice", metavar="NAME", help="Slice of the workers: those that run the same steps. Default: found."),
    ] = None
    port: Annotated[
        int | None,
        _target(
            "--port",
            min=1,
            max=65535,
            metavar="N",
            help=f"Port of addresses given without one (default: {PROFILER_PORT}), and the only port to look at on "
            "this host.",
        ),
    ] = None
    simulate: Annotated[
        str | None,
        _target("--simulate", metavar="TOPOLOGY", help="Watch a simulated TPU, such as v5e-8 or v3-32."),
    ] = None
    scenario: Annotated[str, _target("--scenario", metavar="NAME", help=SCENARIO_HELP)] = "steady"
    use_proxy: Annotated[
        bool, _target("--use-proxy", help="Connect to workers through http_proxy, which is ignored by default.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class FromOptions:
    """Where samples come from if tpumon does not take them itself."""

    from_: Annotated[
        str | None,
        _target(
            "--from",
            metavar="SOURCE[,SOURCE...]",
            help="Show the samples of running exporters, without sampling: http://HOST:PORT, HOST:PORT, dns:NAME:PORT "
            "for all addresses of a name, a file that lists them as Prometheus' file_sd does, or several of these. Or "
            "show what --record wrote: a directory or a file. Put a URL with a password into TPUMON_FROM: ps shows "
            "command lines to everyone.",
        ),
    ] = None
    from_auth: Annotated[
        str | None,
        _target("--from-auth", metavar="FILE", help="With --from: a file with a bearer token or USER:PASSWORD."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """What to measure, and how often."""

    level: Annotated[
        int | None,
        _measure(
            "--level",
            min=0,
            max=2,
            metavar="0|1|2",
            help="0: save one profile. 1: TPU type and matrix units. 2: also idle time, step time, infeed and HBM. "
            "Default: 0 with --logdir, otherwise 2.",
        ),
    ] = None
    monitoring_level: Annotated[
        int | None, typer.Option("--monitoring-level", hidden=True, min=0, max=2, metavar="0|1|2")
    ] = None
    logdir: Annotated[
        str | None,
        _measure(
            "--logdir",
            metavar="DIR|gs://...",
            help="Where to save the profile at level 0. At levels 1 and 2: where old servers may write traces.",
        ),
    ] = None
    duration_ms: Annotated[
        str,
        _measure(
            "--duration-ms",
            metavar="N|auto",
            help="Length of one query or profile in milliseconds. auto: 1000, or 2-3 steps when sampling traces.",
        ),
    ] = "auto"
    interval: Annotated[
        float | None,
        _measure(
            "--interval",
            min=0,
            max=_MAX_INTERVAL_S,
            metavar="SECONDS",
            help="Time from the start of one query to the next. Default: 0 (back to back) if the server computes the "
            "figures, 10 when sampling traces, 1 with --simulate.",
        ),
    ] = None
    max_duty: Annotated[
        float | None,
        _measure(
            "--max-duty",
            min=0.0001,
            max=1,
            metavar="RATIO",
            help="Maximum share of time for which a job is traced, by all tpumons of this host together; one on "
            "another host counts for itself (use --from). Default: 0.01; 1 with --simulate.",
        ),
    ] = None
    num_queries: Annotated[
        int | None,
        _measure("--num-queries", min=0, metavar="N", help="Queries per worker. Default: 0, run until stopped."),
    ] = None
    num_tracing_attempts: Annotated[
        int,
        _measure(
            "--num-tracing-attempts",
            min=1,
            metavar="N",
            help="Attempts before a query or profile counts as failed. A sample that times out is not repeated: "
            "the job may have been traced.",
        ),
    ] = 3
    max_trace_mb: Annotated[
        int | None,
        _measure(
            "--max-trace-mb",
            min=1,
            max=1000,
            metavar="N",
            help="Largest trace to accept, in MB; after a larger one the next window is shorter. Default: 64, or 1000 "
            "for a profile.",
        ),
    ] = None
    host_tracer_level: Annotated[
        HostTracerLevel,
        _measure(
            "--host-tracer-level",
            metavar="LEVEL",
            help="How much of the host to trace: auto, 0, 1, 2 or 3. auto: 2 for profiles, 1 when sampling a job "
            "without a TPU (2 for PyTorch/XLA, whose steps need it), if the server is known to be safe; otherwise 0.",
        ),
    ] = HostTracerLevel.auto
    gpu: Annotated[
        bool,
        _measure(
            "--gpu",
            help="Also sample GPUs, which loads CUPTI into the jobs and may crash them. Off: only TPUs are sampled; "
            "profiles of level 0 hold all devices.",
        ),
    ] = False
    runtime_addr: Annotated[
        list[str] | None,
        _measure(
            "--runtime-addr",
            metavar="ADDRESS,...",
            help="Runtime metric service of each worker, in the same order: HOST:PORT or unix:PATH. Default: that of "
            "the job on this host; for other workers, port 8431.",
        ),
    ] = None
    no_runtime_metrics: Annotated[
        bool, _measure("--no-runtime-metrics", help="Do not query libtpu's runtime metric service (HBM, duty cycle).")
    ] = False


@dataclass(frozen=True, kw_only=True)
class StdoutOptions:
    """What stdout gets."""

    output: Annotated[
        str,
        _output(
            "--output",
            metavar="NAME",
            help="What to write to stdout at levels 1 and 2: auto, live, text, or an exporter of lines, such as jsonl, "
            "csv or fleet-summary. auto: live on a foreground terminal without --num-queries, otherwise text.",
        ),
    ] = "auto"
    explain: Annotated[
        bool,
        _output(
            "--explain",
            help="With --output text: below each block, what is wrong and what to do; once, what cannot be judged.",
        ),
    ] = False
    fleet_summary: Annotated[
        bool,
        _output(
            "--fleet-summary",
            help="With --output jsonl: write one object per interval, with the fleet and the workers that are not ok.",
        ),
    ] = False
    listen: Annotated[
        str | None,
        _output(
            "--listen",
            metavar="HOST:PORT",
            help="Also serve Prometheus metrics here; short for --export prometheus=HOST:PORT.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Further outputs."""

    export: Annotated[
        list[str] | None,
        _output(
            "--export",
            metavar="NAME=WHERE",
            help="Also write to this exporter, such as csv=FILE or prometheus=HOST:PORT; repeatable. Names: {outputs}.",
        ),
    ] = None
    on_change: Annotated[
        str | None,
        _output(
            "--on-change",
            metavar="CMD",
            help="Run this shell command at each change of a worker (slow, down, well again, restarted). It gets the "
            "change as a JSON object on stdin.",
        ),
    ] = None
    record: Annotated[
        str | None,
        _output(
            "--record",
            metavar="DIR",
            help="Also record all samples in compressed files in this directory; --from DIR shows them.",
        ),
    ] = None
    record_keep: Annotated[
        str,
        _output(
            "--record-keep",
            metavar="AGE,SIZE",
            help="How much of what was recorded last to keep: a time, a size, or both.",
        ),
    ] = "7d,1GB"
    with_ops: Annotated[
        int | None,
        _output(
            "--with-ops",
            min=1,
            max=MOST_OPS,
            metavar="N",
            help="In JSON lines, recordings and what --from shows of an exporter: the N operations of each trace that "
            "took most time, and their categories.",
        ),
    ] = None
    web_config: Annotated[
        str | None,
        _output(
            "--web-config",
            metavar="FILE",
            help="TLS, client certificates and users of the Prometheus endpoint, in exporter-toolkit's format.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AppearanceOptions:
    """What the live view looks like."""

    sort: Annotated[str, _appearance("--sort", metavar="KEY", help=f"Order of the rows: {', '.join(SORT_KEYS)}.")] = (
        "worst"
    )
    filter: Annotated[
        str | None,
        _appearance("--filter", metavar="TEXT", help="Show only workers whose name contains this text."),
    ] = None
    ascii: Annotated[bool, _appearance("--ascii", help="Use only ASCII characters.")] = False
    color: Annotated[
        Color,
        _appearance("--color", metavar="WHEN", help="auto, always or never. auto: use colours unless NO_COLOR is set."),
    ] = Color.auto


@dataclass(frozen=True, kw_only=True)
class ThresholdOptions:
    """When a worker is marked."""

    infeed_limits: Annotated[
        str,
        _threshold(
            "--infeed-limits",
            metavar="WARN,CRITICAL",
            help="Mark workers whose infeed takes more than these shares of a step, such as 0.05,0.20 or 5%,20%.",
        ),
    ] = "0.05,0.20"
    hbm_limits: Annotated[
        str,
        _threshold(
            "--hbm-limits", metavar="WARN,CRITICAL", help="Mark workers that use more than these shares of HBM."
        ),
    ] = "0.90,0.97"
    step_limits: Annotated[
        str,
        _threshold(
            "--step-limits",
            metavar="WARN,CRITICAL",
            help="Mark a worker whose own work in a step exceeds the slice median by these factors, while others wait.",
        ),
    ] = "1.03,1.25"
    idle_limit: Annotated[
        float,
        _threshold(
            "--idle-limit",
            min=0,
            max=1,
            metavar="RATIO",
            help="Minimum by which a straggler waits less than the slice median, as a share of the time.",
        ),
    ] = 0.015
    sustained: Annotated[
        int,
        _threshold(
            "--sustained",
            min=1,
            metavar="N",
            help="Consecutive samples that must agree before a finding appears.",
        ),
    ] = 3


@dataclass(frozen=True, kw_only=True)
class VerdictOptions:
    """How a verdict ends a command."""

    fail_on: Annotated[
        str,
        option(
            "--fail-on",
            panel=OUTPUT,
            metavar="info|warning|critical|never",
            help="Exit with status 1 if a worker is as bad as this; one that is down is critical.",
        ),
    ] = "critical"
    timeout: Annotated[
        str,
        option(
            "--timeout",
            panel=OUTPUT,
            metavar="TIME",
            help="Answer after this time at the latest, such as 30s or 2m, and say what is missing.",
        ),
    ] = "2m"


def takes(*groups: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Hands groups of options to a command function as values: `f(context, *values, **own options)`.

    Typer sees one function with all their options, the function's own last.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(function).parameters.values())[1 + len(groups) :]
        own_hints = get_type_hints(function, include_extras=True)
        parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        parameters += [parameter for group in groups for parameter in _parameters(cast("Hashable", group))]
        parameters += [_parameter(item.name, own_hints[item.name], item.default) for item in own]

        def command(**given: Any) -> Any:
            context = given.pop("context")
            _check_numbers(context, given)
            values = [group(**{item.name: given.pop(item.name) for item in fields(group)}) for group in groups]
            return function(context, *values, **given)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _check_numbers(context: typer.Context, given: dict[str, Any]) -> None:
    """Refuses `nan`, which no limit of the parser does."""
    for option in context.command.params:
        value = given.get(option.name or "")
        if isinstance(value, float) and value != value:  # noqa: PLR0124 - only NaN differs from itself
            raise UsageError(f"{as_given(context, option.opts[0], 'nan')}: give a number")


@cache
def _parameters(group: type[Any]) -> tuple[inspect.Parameter, ...]:
    """A group's options; once for all commands that take it, since its hints are long to read."""
    hints = get_type_hints(group, include_extras=True)
    return tuple(_parameter(item.name, hints[item.name], item.default) for item in fields(group))


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    assert default is not MISSING
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)

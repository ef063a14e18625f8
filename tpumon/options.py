"""Options that several commands share: groups of them, as frozen values. What they mean together is `tpumon.cli`'s."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import typer

from tpumon.simulator.scenario import SCENARIOS
from tpumon.targets.addresses import PROFILER_PORT

_LONGEST_INTERVAL_S = 7 * 24 * 3600


def option(name: str, **rest: Any) -> Any:
    """An option that can also be set by TPUMON_<NAME>."""
    variable = "TPUMON_" + name.removeprefix("--").upper().replace("-", "_")
    return typer.Option(name, envvar=variable, show_envvar=False, **rest)


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
    live = "live"
    text = "text"
    jsonl = "jsonl"
    csv = "csv"


class Color(StrEnum):
    """Whether the live view has colours."""

    auto = "auto"
    always = "always"
    never = "never"


class SortBy(StrEnum):
    """Order of the live view's rows."""

    worst = "worst"
    name = "name"
    mxu = "mxu"
    idle = "idle"
    step = "step"
    infeed = "infeed"
    hbm = "hbm"


Scenario = Annotated[
    str, option("--scenario", metavar="NAME", help=f"What the simulated job does: {', '.join(SCENARIOS)}.")
]


@dataclass(frozen=True, kw_only=True)
class WhereOptions:
    """Whom to talk to."""

    service_addr: Annotated[
        list[str] | None,
        option(
            "--service-addr",
            metavar="HOST:PORT[,...]",
            help="Profiler server of one or more workers; may repeat. Default: the jobs of this host.",
        ),
    ] = None
    workers_list: Annotated[
        list[str] | None,
        option(
            "--workers-list",
            metavar="HOST:PORT[,...]",
            help="The workers to profile; at levels 1 and 2 those to watch, unless --service-addr is given.",
        ),
    ] = None
    tpu: Annotated[
        list[str] | None,
        option("--tpu", metavar="NAME[,...]", help="All workers of a TPU, by its name in the TPU API; may repeat."),
    ] = None
    zone: Annotated[str | None, option("--zone", metavar="ZONE", help="Of --tpu. Default: this machine's.")] = None
    project: Annotated[
        str | None, option("--project", metavar="PROJECT", help="Of --tpu. Default: this machine's.")
    ] = None
    targets: Annotated[
        str | None,
        option(
            "--targets",
            metavar="FILE",
            help="Workers from a file in Prometheus' file_sd form, JSON or YAML; read again when it changes.",
        ),
    ] = None
    port: Annotated[
        int | None,
        option(
            "--port",
            min=1,
            max=65535,
            metavar="N",
            help=f"For addresses that name no port (default: {PROFILER_PORT}), and where to look on this host.",
        ),
    ] = None
    simulate: Annotated[
        str | None,
        option("--simulate", metavar="TOPOLOGY", help="Watch a simulated TPU, for example v5e-8 or v3-32."),
    ] = None
    scenario: Scenario = "steady"
    use_proxy: Annotated[
        bool, option("--use-proxy", help="Reach workers through http_proxy, which is not obeyed otherwise.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class AskOptions:
    """What to ask, and how often."""

    level: Annotated[
        int | None,
        option(
            "--level",
            min=0,
            max=2,
            help="0: one profile; 1: TPU type and matrix units; 2: also idle time, steps, infeed, HBM. "
            "Default: 0 with --logdir, else 2.",
        ),
    ] = None
    monitoring_level: Annotated[int | None, typer.Option("--monitoring-level", hidden=True, min=0, max=2)] = None
    logdir: Annotated[
        str | None,
        option(
            "--logdir",
            metavar="DIR|gs://...",
            help="Where a profile goes (level 0); at levels 1 and 2, where old servers may put their traces.",
        ),
    ] = None
    duration_ms: Annotated[
        str,
        option(
            "--duration-ms",
            metavar="N|auto",
            help="Window of one query or profile in milliseconds; auto: 1000, and about three steps where figures come "
            "from traces.",
        ),
    ] = "auto"
    interval: Annotated[
        float | None,
        option(
            "--interval",
            min=0,
            max=_LONGEST_INTERVAL_S,
            metavar="SECONDS",
            help="From one query's start to the next. Default: 0 (back to back) where the server has the figures, "
            "10 where they come from traces, 1 with --simulate.",
        ),
    ] = None
    max_duty: Annotated[
        float | None,
        option(
            "--max-duty",
            min=0.0001,
            max=1,
            metavar="RATIO",
            help="Largest share of time for which a job is traced. Default: 0.02, 1 with --simulate.",
        ),
    ] = None
    num_queries: Annotated[
        int | None,
        option("--num-queries", min=0, metavar="N", help="Queries per worker. Default: 0, until stopped."),
    ] = None
    num_tracing_attempts: Annotated[
        int,
        option(
            "--num-tracing-attempts",
            min=1,
            metavar="N",
            help="Tries of one query or profile before it counts as failed.",
        ),
    ] = 3
    host_tracer_level: Annotated[
        HostTracerLevel,
        option(
            "--host-tracer-level",
            help="Host events; auto: where they are proved not to hang the job 2 in a profile and 1 in a sampled trace "
            "of a job without a TPU, else 0.",
        ),
    ] = HostTracerLevel.auto
    runtime_addr: Annotated[
        list[str] | None,
        option(
            "--runtime-addr",
            metavar="HOST:PORT|unix:PATH[,...]",
            help="Runtime metric service of each worker, in their order. Default: that of the job of this host, else "
            "port 8431 beside a worker.",
        ),
    ] = None
    no_runtime_metrics: Annotated[
        bool, option("--no-runtime-metrics", help="Do not ask libtpu's runtime metric service (HBM, duty cycle).")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Further outputs."""

    export: Annotated[
        list[str] | None,
        option(
            "--export",
            metavar="NAME=WHERE",
            help="A further output; may repeat: prometheus=HOST:PORT, jsonl=FILE, csv=FILE, textfile=FILE.prom.",
        ),
    ] = None
    web_config: Annotated[
        str | None,
        option(
            "--web-config",
            metavar="FILE",
            help="TLS, client certificates and users of the Prometheus endpoint, as exporter-toolkit has them.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """How samples are shown."""

    output: Annotated[
        OutputFormat,
        option(
            "--output",
            help="What stdout gets at levels 1 and 2; auto: the live view on a foreground terminal, unless "
            "--num-queries is given, else text.",
        ),
    ] = OutputFormat.auto
    fleet_summary: Annotated[
        bool,
        option(
            "--fleet-summary",
            help="With jsonl: one object per interval, of the fleet and of the workers that are not ok.",
        ),
    ] = False
    listen: Annotated[
        str | None,
        option("--listen", metavar="HOST:PORT", help="Also a Prometheus endpoint; short for --export prometheus=..."),
    ] = None
    from_: Annotated[
        str | None,
        option("--from", metavar="URL", help="Show what a running exporter has, for example http://10.0.0.2:10466."),
    ] = None
    sort: Annotated[SortBy, option("--sort", help="Order of the live view's rows.")] = SortBy.worst
    filter: Annotated[
        str | None, option("--filter", metavar="TEXT", help="Only workers with this in their names, in the live view.")
    ] = None
    ascii: Annotated[bool, option("--ascii", help="The live view in ASCII alone.")] = False
    color: Annotated[Color, option("--color", help="Colours of the live view; auto: unless NO_COLOR is set.")] = (
        Color.auto
    )
    infeed_limits: Annotated[
        str, option("--infeed-limits", metavar="WARN,CRITICAL", help="Infeed share of a step that is marked ! and X.")
    ] = "0.05,0.20"
    hbm_limits: Annotated[
        str, option("--hbm-limits", metavar="WARN,CRITICAL", help="HBM used of total that is marked.")
    ] = "0.90,0.97"
    step_limits: Annotated[
        str,
        option(
            "--step-limits",
            metavar="WARN,CRITICAL",
            help="Step time against the slice's median that is marked.",
        ),
    ] = "1.10,1.25"
    idle_limit: Annotated[
        float,
        option(
            "--idle-limit",
            min=0,
            max=1,
            metavar="RATIO",
            help="How much less than its slice's median a worker idles to be marked !: the others wait for it.",
        ),
    ] = 0.10
    sustained: Annotated[
        int,
        option("--sustained", min=1, metavar="N", help="Samples in a row before step time counts."),
    ] = 3


def takes(*groups: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A command function that gets groups of options as values: `f(context, *values, **own options)`.

    For Typer it has all their options, the function's own last.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(function).parameters.values())[1 + len(groups) :]
        own_hints = get_type_hints(function, include_extras=True)
        parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        for group in groups:
            hints = get_type_hints(group, include_extras=True)
            parameters += [_parameter(item.name, hints[item.name], item.default) for item in fields(group)]
        parameters += [_parameter(item.name, own_hints[item.name], item.default) for item in own]

        def command(**given: Any) -> Any:
            context = given.pop("context")
            values = [group(**{item.name: given.pop(item.name) for item in fields(group)}) for group in groups]
            return function(context, *values, **given)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    assert default is not MISSING
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)

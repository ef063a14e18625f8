"""Options that several commands share: groups of them, as frozen values. `tpumon.cli.resolve` combines them."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Annotated, Any, Literal, TypeVar

import typer
from msgspec import Struct, StructMeta

from tpumon.cli import completion as completing
from tpumon.cli.values import refuse_empty
from tpumon.discovery.addresses import PROFILER_PORT
from tpumon.errors import UsageError
from tpumon.model import MOST_OPS, JobKindName
from tpumon.model.figure_table import SORT_KEYS
from tpumon.system import console


def _checked(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    refuse_empty(parameter, value)
    options = {name for one in context.command.params for name in one.opts if name.startswith("--")}
    if taken := options.intersection(value if isinstance(value, (list, tuple)) else [value]):
        raise UsageError(f"{parameter.opts[0]}: its value is missing before {min(taken)}; give {parameter.metavar}")
    return value


option = partial(typer.Option, show_envvar=False, callback=_checked)
_target = partial(option, rich_help_panel="Targets")
measured = partial(option, rich_help_panel="What to measure")
written = partial(option, rich_help_panel="Output")
_appearance = partial(option, rich_help_panel="Appearance of the live view")
_threshold = partial(option, rich_help_panel="Thresholds")


def format_option(choices: str) -> Any:
    """The option `--output` of a command that ends by itself; its values with `|` between."""
    return written(metavar=choices, autocompletion=lambda: choices.split("|"), help="What to write to stdout.")


FormatOption = Annotated[str, format_option("text|json")]
FORMATS: tuple[Literal["text", "json"], ...] = ("text", "json")
Level = Literal[0, 1, 2]
Choice = TypeVar("Choice", bound=str)
Returned = TypeVar("Returned")

Command = Callable[[], int]
"""What a command line asks for: call it once; it returns the exit status."""


def is_typed(context: typer.Context, name: str, *, or_in_file: bool = False) -> bool:
    """True if an option stands on the command line, not in the environment or, unless it may, in a file."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in {"COMMANDLINE", "DEFAULT_MAP" if or_in_file else ""}


OWN_TABLE = "tpumon.own_table"
"""Key of a context's `meta`: the options that the command's own table in the file gives."""
_WAYS = ("DEFAULT_MAP", OWN_TABLE, "ENVIRONMENT", "COMMANDLINE")


def strength(way: str) -> int:
    """The place among all of a way in which options are given; -1: it is none."""
    return _WAYS.index(way) if way in _WAYS else -1


TYPED = strength("COMMANDLINE")


def is_given_beside(context: typer.Context, name: str, *others: str) -> bool:
    """True if an option contradicts others: it is given at least as strongly as they are.

    The command line is stronger than a variable, and a variable than the file: a stronger option hides a weaker one.
    """
    mine = strength_of(context, name)
    return mine >= 0 and mine >= max(strength_of(context, one) for one in others)


def strength_of(context: typer.Context, name: str) -> int:
    """The strength of the way in which an option is given; -1: it is not, or is off."""
    source = context.get_parameter_source(name)
    way = "" if source is None else source.name
    if way == "DEFAULT_MAP" and name in context.meta.get(OWN_TABLE, ()):
        way = OWN_TABLE
    is_off = not context.params.get(name) and way != "COMMANDLINE"
    return -1 if is_off else strength(way)


def check_choice(name: str, value: str, choices: Sequence[Choice]) -> Choice:
    """Returns the value of the option `name` if it is one of the choices; for options whose type lists none.

    Raises:
        BadParameter: it is none of them.
    """
    for one in choices:
        if one == value:
            return one
    raise typer.BadParameter(f"{value}: choose one of {', '.join(choices)}", param_hint=name)


class TargetOptions(Struct, frozen=True, kw_only=True):
    """Workers, by address, by name or in a file."""

    service_addr: Annotated[
        list[str] | None,
        _target(
            metavar="HOST:PORT,...",
            help="Profiler server of each worker; repeatable. HOST:20000-20255 is a range. Default: the jobs on this "
            "host.",
        ),
    ] = None
    workers_list: Annotated[
        list[str] | None,
        _target(
            metavar="HOST:PORT,...",
            help="Workers to profile at level 0; at levels 1 and 2, used only without --service-addr.",
        ),
    ] = None
    tpu: Annotated[
        list[str] | None,
        _target(metavar="NAME,...", help="All workers of a TPU, by its name in the TPU API; repeatable."),
    ] = None
    zone: Annotated[str | None, _target(metavar="ZONE", help="Zone of --tpu. Default: this machine's zone.")] = None
    project: Annotated[
        str | None, _target(metavar="PROJECT", help="Project of --tpu. Default: this machine's project.")
    ] = None
    targets: Annotated[
        str | None,
        _target(
            metavar="FILE",
            help="Workers listed in a Prometheus file_sd file (JSON or YAML); read again when it changes.",
        ),
    ] = None
    job: Annotated[
        str | None, _target(metavar="NAME", help="Job of the workers; in Kubernetes NAMESPACE/NAME. Default: found.")
    ] = None
    slice: Annotated[
        str | None, _target(metavar="NAME", help="Slice of the workers: those that run the same steps. Default: found.")
    ] = None
    job_kind: Annotated[
        JobKindName | None,
        _target(
            metavar="KIND",
            help="training, serving, batch, mixed, interactive or unknown: some findings hold for some kinds only. "
            "Default: found.",
        ),
    ] = None
    server_metrics: Annotated[
        list[str] | None,
        _target(
            metavar="[WORKER=]URL",
            help="Metrics page of a worker's server, such as http://127.0.0.1:8000/metrics; repeatable. Default: that "
            "of a vLLM or JetStream on this host.",
        ),
    ] = None
    port: Annotated[
        int | None,
        _target(
            min=1,
            max=65535,
            metavar="N",
            help=f"Port of addresses given without one (default: {PROFILER_PORT}), and the only port to look at on "
            "this host.",
        ),
    ] = None
    simulate: Annotated[
        str | None,
        _target(
            metavar="TOPOLOGY",
            autocompletion=completing.topologies,
            help="Watch a simulated TPU, such as v5e-8 or v3-32.",
        ),
    ] = None
    scenario: Annotated[
        str,
        _target(
            metavar="NAME",
            autocompletion=completing.scenarios,
            help="What the simulated job does; 'tpumon simulate --help' lists all.",
        ),
    ] = "steady"
    use_proxy: Annotated[
        bool, _target("--use-proxy", help="Connect to workers through http_proxy, which is ignored by default.")
    ] = False


def _be_verbose(verbose: bool) -> bool:
    if verbose:
        console.be_verbose()
    return verbose


class FollowOptions(TargetOptions, frozen=True, kw_only=True):
    """Workers to follow: where their samples come from, what to measure, and how often."""

    from_: Annotated[
        str | None,
        _target(
            "--from",
            envvar="TPUMON_FROM",
            metavar="SOURCE,...",
            autocompletion=completing.recordings,
            help="Show the samples of running exporters, without sampling: http://HOST:PORT, HOST:PORT, dns:NAME:PORT "
            "for all addresses of a name, a file that lists them as Prometheus' file_sd does, or several of these. Or "
            "show what --record wrote: a directory or a file. Put a URL with a password into TPUMON_FROM: ps shows "
            "command lines to everyone.",
        ),
    ] = None
    from_auth: Annotated[
        str | None, _target(metavar="FILE", help="With --from: a file with a bearer token or USER:PASSWORD.")
    ] = None

    level: Annotated[
        Level | None,
        measured(
            help="0, without a command: save one profile. 1: TPU type and matrix units. 2: also idle time, step time, "
            "infeed and HBM. Default: 0 with --logdir, otherwise 2."
        ),
    ] = None
    monitoring_level: Annotated[Level | None, typer.Option(hidden=True, allow_from_autoenv=False)] = None
    logdir: Annotated[
        str | None,
        measured(
            metavar="DIR|gs://...",
            help="Where to save the profile at level 0. At levels 1 and 2: where old servers may write traces.",
        ),
    ] = None
    duration_ms: Annotated[
        str,
        measured(
            metavar="TIME|auto",
            help="Length of one query or profile, in milliseconds without a unit. auto: 1s, or 2-3 steps when sampling "
            "traces.",
        ),
    ] = "auto"
    interval: Annotated[
        str | None,
        measured(
            metavar="TIME",
            help="Time from the start of one query to the next, such as 30s or 5m. Default: 0 (back to back) if the "
            "server computes the figures, 10s when sampling traces, 1s with --simulate.",
        ),
    ] = None
    max_duty: Annotated[
        str | None,
        measured(
            metavar="SHARE",
            help="Maximum share of time for which a job is traced, by all tpumons of this host together; one on "
            "another host counts for itself (use --from). Default: 1%; 100% with --simulate.",
        ),
    ] = None
    num_queries: Annotated[
        int | None,
        measured(
            min=0,
            metavar="N",
            help="Queries per worker. Default: until stopped; of once and why, as many as must agree (--sustained).",
        ),
    ] = None
    num_tracing_attempts: Annotated[
        int,
        measured(
            min=1,
            metavar="N",
            help="Attempts before a query or profile counts as failed. A sample that times out is not repeated: "
            "the job may have been traced.",
        ),
    ] = 3
    max_trace_mb: Annotated[
        str | None,
        measured(
            metavar="SIZE",
            help="Largest trace to accept, in MB without a unit; after a larger one the next window is shorter. "
            "Default: 64M, or 1G for a profile.",
        ),
    ] = None
    host_tracer_level: Annotated[
        Literal["auto", "0", "1", "2", "3"],
        measured(
            help="How much of the host to trace. auto: 2 for profiles, 1 when sampling a job without a TPU (2 for "
            "PyTorch/XLA), if the server is known to be safe; else 0. 1 or more may hang jobs of jaxlib 0.5.0 to 0.8.3."
        ),
    ] = "auto"
    gpu: Annotated[
        bool,
        measured(
            "--gpu",
            help="Also sample GPUs, which loads CUPTI into the jobs and may crash them. Off: only TPUs are sampled; "
            "profiles of level 0 hold all devices.",
        ),
    ] = False
    runtime_addr: Annotated[
        list[str] | None,
        measured(
            metavar="ADDRESS,...",
            help="Runtime metric service of each worker, in the same order: HOST:PORT or unix:PATH. Default: that of "
            "the job on this host; for other workers, port 8431.",
        ),
    ] = None
    no_runtime_metrics: Annotated[
        bool, measured("--no-runtime-metrics", help="Do not query libtpu's runtime metric service (HBM, duty cycle).")
    ] = False
    verbose: Annotated[
        bool,
        option(
            "--verbose",
            "-v",
            callback=_be_verbose,
            help="Also print on stderr what is asked of servers, and how long each call takes.",
        ),
    ] = False


class StdoutOptions(Struct, frozen=True, kw_only=True):
    """The output on stdout."""

    output: Annotated[
        str,
        written(
            metavar="NAME",
            autocompletion=completing.outputs,
            help="What to write to stdout at levels 1 and 2: auto, live, text, or an exporter of lines, such as jsonl, "
            "csv or fleet-summary. auto: live on a foreground terminal without --num-queries, otherwise text.",
        ),
    ] = "auto"
    explain: Annotated[
        bool,
        written(
            "--explain",
            help="With --output text: below each block, what is wrong and what to do; once, what cannot be judged.",
        ),
    ] = False
    fleet_summary: Annotated[
        bool,
        written(
            "--fleet-summary",
            help="With --output jsonl: write one object per interval, with the fleet and the workers that are not ok.",
        ),
    ] = False
    listen: Annotated[
        str | None,
        written(
            metavar="HOST:PORT", help="Also serve Prometheus metrics here; short for --export prometheus=HOST:PORT."
        ),
    ] = None


class ExportOptions(Struct, frozen=True, kw_only=True):
    """Further outputs."""

    export: Annotated[
        list[str] | None,
        written(
            metavar="NAME=WHERE",
            autocompletion=completing.exporters,
            help="Also write to this exporter, such as csv=FILE or prometheus=HOST:PORT; repeatable.",
        ),
    ] = None
    on_change: Annotated[
        str | None,
        written(
            metavar="CMD",
            help="Run this shell command at each change of a worker (slow, down, well again, restarted). It gets the "
            "change as a JSON object on stdin.",
        ),
    ] = None
    record: Annotated[
        str | None,
        written(
            metavar="DIR", help="Also record all samples in compressed files in this directory; --from DIR shows them."
        ),
    ] = None
    record_keep: Annotated[
        str, written(metavar="AGE,SIZE", help="How much of what was recorded last to keep: a time, a size, or both.")
    ] = "7d,1GB"
    with_ops: Annotated[
        int | None,
        written(
            min=1,
            max=MOST_OPS,
            metavar="N",
            help="In JSON lines, recordings and what --from shows of an exporter: the N operations of each trace that "
            "took most time, and their categories.",
        ),
    ] = None
    web_config: Annotated[
        str | None,
        written(
            metavar="FILE",
            help="TLS, client certificates and users of the Prometheus endpoint, in exporter-toolkit's format.",
        ),
    ] = None


AtOption = Annotated[
    str | None,
    _target(
        metavar="TIME",
        help="With --from a recording: the moment to show, or to judge. 03:12 is the last such local time in it, -20m "
        "counts from its end, 2026-01-31T03:12 is a date. Default: in the live view its worst moment, otherwise its "
        "end.",
    ),
]


class AppearanceOptions(Struct, frozen=True, kw_only=True):
    """Looks of the live view."""

    sort: Annotated[
        str,
        _appearance(
            metavar="KEY", autocompletion=lambda: list(SORT_KEYS), help=f"Order of the rows: {', '.join(SORT_KEYS)}."
        ),
    ] = "worst"
    filter: Annotated[
        str | None,
        written(
            metavar="TEXT",
            help="Show only workers whose name, address or slice contains this, or in this state or with this finding, "
            "such as straggler; further outputs get all.",
        ),
    ] = None
    ascii: Annotated[bool, _appearance("--ascii", help="Use only ASCII characters.")] = False
    color: Annotated[
        Literal["auto", "always", "never"], _appearance(help="auto: use colours unless NO_COLOR is set.")
    ] = "auto"
    at: AtOption = None


class ThresholdOptions(Struct, frozen=True, kw_only=True):
    """Limits from which on a worker is marked."""

    infeed_limits: Annotated[
        str,
        _threshold(
            metavar="WARN,CRITICAL",
            help="Mark workers whose infeed takes more than these shares of a step.",
        ),
    ] = "5%,20%"
    hbm_limits: Annotated[
        str, _threshold(metavar="WARN,CRITICAL", help="Mark workers that use more than these shares of HBM.")
    ] = "90%,97%"
    step_limits: Annotated[
        str,
        _threshold(
            metavar="WARN,CRITICAL",
            help="Mark a worker whose own work in a step exceeds the slice median by these factors, while others wait.",
        ),
    ] = "1.03,1.25"
    idle_limit: Annotated[
        str,
        _threshold(
            metavar="SHARE",
            help="Minimum by which a straggler waits less than the slice median, as a share of the time.",
        ),
    ] = "1.5%"
    sustained: Annotated[
        int, _threshold(min=1, metavar="N", help="Consecutive samples that must agree before a finding appears.")
    ] = 3


class VerdictOptions(Struct, frozen=True, kw_only=True):
    """Moment of a verdict, time for it, and the exit status that it gives."""

    fail_on: Annotated[
        Literal["info", "warning", "critical", "never"],
        written(
            metavar="SEVERITY",
            help="Exit with status 1 if a worker is as bad as this: info, warning, critical, or never. One that is "
            "down is critical.",
        ),
    ] = "critical"
    timeout: Annotated[
        str,
        written(
            metavar="TIME", help="Answer after this time at the latest, such as 30s or 2m, and say what is missing."
        ),
    ] = "2m"
    at: AtOption = None
    state: Annotated[
        str | None,
        written(metavar="DIR", help="Keep there what a verdict rests on, for the next run: so cron finds what hangs."),
    ] = None


def with_groups(command: Callable[..., Returned]) -> Callable[..., Returned]:
    """Shows Typer the options of each group that a command takes: of parameters whose type is a Struct."""
    own = inspect.signature(command).parameters.values()
    groups = {one.name: one.annotation for one in own if isinstance(one.annotation, StructMeta)}
    parts = [inspect.signature(groups[one.name]).parameters.values() if one.name in groups else [one] for one in own]
    options = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in parts for one in part]

    @wraps(command)
    def with_options(**given: Any) -> Returned:
        for name, group in groups.items():
            given[name] = group(**{option: given.pop(option) for option in group.__struct_fields__})
        return command(**given)

    with_options.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return with_options

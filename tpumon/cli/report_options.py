"""The options of `tpumon report`, and what they mean together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from tpumon.cli import completion as completing
from tpumon.cli.contradictions import NAMING_WORKERS
from tpumon.cli.options import TargetOptions, check_choice, format_option, is_given_beside, is_typed, measured, written
from tpumon.cli.resolve import read_option, report_format, selection_of, window_s_of
from tpumon.cli.values import FAIL_ABOVE
from tpumon.errors import UsageError

if TYPE_CHECKING:
    from tpumon.cli.commands.capture import CaptureSettings
    from tpumon.cli.commands.report import Format, ReportSettings

USUAL_PROFILE_S = 1.0


class ReportOptions(Struct, frozen=True, kw_only=True):
    """Sections of a profile, their form, and an earlier profile to compare with."""

    against: Annotated[
        list[str] | None,
        written(
            metavar="FILE|DIR",
            help="Show what changed since this earlier profile, instead of sections; repeatable for several hosts.",
        ),
    ] = None
    fail_above: Annotated[
        str | None,
        written(
            metavar="SHARE",
            help="With --against: exit with status 1 if steps, or the time from one's start to the next one's, became "
            "longer by more than this, such as 5%.",
        ),
    ] = None
    section: Annotated[
        list[str] | None,
        written(
            metavar="NAME,...",
            autocompletion=completing.sections,
            help="overview, ops, steps, input, memory, environment, or all. Default: overview; all with --output html.",
        ),
    ] = None
    output: Annotated[str, format_option("text|markdown|json|html")] = "text"
    top: Annotated[int, written(min=1, max=100_000, metavar="N", help="The most rows of a table of ops.")] = 20
    program: Annotated[str | None, written(metavar="TEXT", help="Only ops of programs whose name contains this.")] = (
        None
    )
    filter: Annotated[
        str | None, written(metavar="TEXT", help="Only ops whose name, category, path or source contains this.")
    ] = None
    duration_ms: Annotated[str, measured(metavar="TIME", help="Length of a profile that is taken now.")] = "1s"


_REPORT_OUTPUTS: "tuple[Format, ...]" = ("text", "markdown", "json", "html")


def _sections(names: Sequence[str], *, every: bool) -> tuple[str, ...]:
    """The sections of a report, each once.

    Args:
        names: as given; several may stand in one, with commas between.
        every: whether all are shown if none is given.
    """
    from tpumon.report.sections import SECTIONS

    chosen = [name.strip() for text in names for name in text.split(",") if name.strip()]
    for name in chosen:
        check_choice("--section", name, (*SECTIONS, "all"))
    if "all" in chosen or (every and not chosen):
        return tuple(SECTIONS)
    return tuple(dict.fromkeys(chosen)) or ("overview",)


def report_settings(
    context: typer.Context, targets: TargetOptions, options: ReportOptions, paths: Sequence[str]
) -> "ReportSettings":
    """Settings of `tpumon report` from its options.

    Raises:
        UsageError: the options contradict each other, or name no profile.
    """
    from tpumon.cli.commands.report import ReportSettings
    from tpumon.report.profiles import Choice

    capture = None
    if not paths:
        capture = _capture(context, targets, options.duration_ms)
    elif any(is_typed(context, name) for name in ("simulate", *NAMING_WORKERS)):
        raise UsageError("a report is of files or of workers: leave out one of them")
    if options.fail_above is not None and not options.against:
        raise UsageError("--fail-above requires --against FILE|DIR to compare with")
    if options.against and is_given_beside(context, "section", "against"):
        raise UsageError("--against shows what changed, not sections: leave out --section")
    form = report_format(context, options.output, _REPORT_OUTPUTS)
    above = options.fail_above
    return ReportSettings(
        paths=paths,
        capture=capture,
        sections=_sections(options.section or (), every=form == "html"),
        choice=Choice(top=options.top, program=options.program, words=options.filter),
        output=form,
        against=options.against or (),
        fail_above=above if above is None else read_option("--fail-above", FAIL_ABOVE.read, above),
    )


def _capture(context: typer.Context, targets: TargetOptions, duration_ms: str) -> "CaptureSettings":
    from tpumon.cli.commands.capture import CaptureSettings

    if not any((targets.service_addr, targets.workers_list, targets.tpu, targets.targets, targets.simulate)):
        raise UsageError("report requires FILE|DIR, or workers to profile: --service-addr HOST:PORT")
    return CaptureSettings(
        logdir="",  # a temporary one, when it is taken
        selection=selection_of(context, targets, level=0),
        window_s=window_s_of(duration_ms) or USUAL_PROFILE_S,
        use_proxy=targets.use_proxy,
        all_devices=False,
    )

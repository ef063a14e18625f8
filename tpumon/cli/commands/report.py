"""`tpumon report`: the tables of a profile, from files or taken now; and of two compared."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.errors import UsageError
from tpumon.model.documents import encoded
from tpumon.report.blocks import SectionPage
from tpumon.report.comparison import NEEDED, compare
from tpumon.report.formats import utc_text
from tpumon.report.profiles import Capture, Choice, HostProfile, why_apart
from tpumon.report.render.comparison_page import page, verdict
from tpumon.report.sections import needs, report
from tpumon.system.console import show, terminal_is_utf_8
from tpumon.untrusted_text import listed, one_line
from tpumon.xspace.files import file_title, opened, trace_files, why_unread

if TYPE_CHECKING:
    from tpumon.cli.commands.capture import CaptureSettings
    from tpumon.xspace.profile.profile import Extra, Profile

_log = logging.getLogger(__name__)

Format = Literal["text", "markdown", "json", "html"]

_JUDGED = "overview"  # the section that has findings; a page has them whatever its sections
_PIPE_WIDTH = 160  # of lines, if no width is given


class ReportSettings(Struct, frozen=True, kw_only=True):
    """Settings of `tpumon report`: a profile, and what to show of it.

    Attributes:
        paths: as for `analyze`.
        capture: how to take a profile now, if there are no paths; its log directory is replaced.
        sections: in this order.
        choice: which ops.
        output: how to print it.
        against: paths of an earlier profile to compare with; the sections are not printed then.
        fail_above: how much longer steps, and the time from start to start, may have become, as a share, before that is
            a failure.
    """

    paths: Sequence[str] = ()
    capture: CaptureSettings | None = None
    sections: Sequence[str] = ("overview",)
    choice: Choice = field(default_factory=Choice)
    output: Format = "text"
    against: Sequence[str] = ()
    fail_above: float | None = None


def run(settings: ReportSettings) -> int:
    """Prints the sections, or a comparison.

    Returns:
        0; 1 if any file could not be read, any worker has no profile, or steps became longer than they may.

    Raises:
        UsageError: a path leads to no profile, or several are profiles of one host.
        TpumonError: no profile could be taken.
    """
    hosts, whole = _hosts(settings, NEEDED if settings.against else needs(settings.sections))
    if not hosts:
        return 1
    if settings.against:
        return max(_compare(settings, hosts), 0 if whole else 1)
    capture = _capture_of(hosts)
    if _JUDGED in settings.sections or settings.output == "html":
        capture = _judged(capture)
    made = report(capture, settings.sections, settings.choice)
    _print(settings, made.document, made.pages, f"Profile of {_host_names(hosts)}")
    return 0 if whole else 1


def _compare(settings: ReportSettings, hosts: tuple[HostProfile, ...]) -> int:
    """Prints what changed since the earlier profile."""
    earlier, whole = _read_files(settings.against, NEEDED, "against")
    if not earlier:
        return 1
    old, new = _capture_of(earlier), _capture_of(hosts)
    comparison = compare(old, new, settings.choice)
    before, after = _place(settings.against, old), _place(settings.paths, new)
    pages = (page(comparison, settings.choice.top, before, after),)
    _print(settings, comparison, pages, f"{after}, compared with {before}")
    if settings.fail_above is None:
        return 0 if whole else 1
    _log.warning("%s", verdict(comparison, settings.fail_above))
    # A check that cannot tell has not passed.
    return 0 if whole and comparison.exceeds(settings.fail_above) is False else 1


def _hosts(settings: ReportSettings, wanted: frozenset[Extra]) -> tuple[tuple[HostProfile, ...], bool]:
    """The hosts' profiles, and whether none is missing."""
    if settings.capture is None:
        return _read_files(settings.paths, wanted)
    from tpumon.cli.commands.capture import take  # it needs gRPC, which reading files does without

    with tempfile.TemporaryDirectory(prefix="tpumon-report-") as directory:
        workers = take(replace(settings.capture, logdir=directory))
        files = [(each.target.worker, Path(each.saved.path)) for each in workers if each.saved is not None]
        hosts = tuple(_read_all(files, wanted).values())
    return hosts, len(hosts) == len(workers)


def _read_files(
    paths: Sequence[str], wanted: frozenset[Extra], option: str = ""
) -> tuple[tuple[HostProfile, ...], bool]:
    typed = trace_files(paths, option)
    hosts = _read_all([(None, file) for file in typed], wanted)
    if words := why_apart(((file, host.profile.trace) for file, host in hosts.items()), typed):
        # One path is one profile: of its workers, one may have answered late.
        if len(set(typed.values())) > 1:
            raise UsageError(words, option=option)
        _log.warning("%s", words)
    return tuple(hosts.values()), len(hosts) == len(typed)


def _read_all(files: Sequence[tuple[str | None, Path]], wanted: frozenset[Extra]) -> dict[Path, HostProfile]:
    hosts: dict[Path, HostProfile] = {}
    for worker, file in files:
        # Whatever is wrong with a file concerns this file alone.
        try:
            profile = _profile(file, wanted)
        except Exception as error:  # noqa: BLE001 - files come from anywhere, and the others are still to be read
            _log.warning("%s: %s", worker or file, why_unread(error)[1])
            continue
        taken = {host.name for host in hosts.values()}
        hosts[file] = HostProfile(name=worker or _host_name(profile, file, taken), profile=profile)
    return hosts


def _profile(file: Path, wanted: frozenset[Extra]) -> Profile:
    from tpumon.xspace.profile.profile import read_profile

    with opened(file) as trace:
        return read_profile(trace, wanted)


def _host_name(profile: Profile, file: Path, taken: set[str]) -> str:
    """The host's name, from the trace if it has one; the file's where two have the same."""
    own, path = file_title(file), one_line(str(file))
    name = next(iter(profile.trace.hostnames), own) or own
    for candidate in (name, own, path):
        if candidate not in taken:
            return candidate
    return f"{path} ({len(taken) + 1})"


def _capture_of(hosts: tuple[HostProfile, ...]) -> Capture:
    from tpumon.xspace.trace_figures import figures_of_hosts

    return Capture(hosts=hosts, figures=figures_of_hosts([host.profile.trace for host in hosts]))


def _judged(capture: Capture) -> Capture:
    """The capture with the verdict and the findings of `tpumon why`."""
    from tpumon.analysis.findings import Thresholds
    from tpumon.analysis.fleet_verdict import verdict_on
    from tpumon.cli.commands.analyze import file_sample, judge_capture
    from tpumon.xspace.trace_figures import figures_of_hosts

    start_unix_s = capture.start_unix_s
    samples = [
        file_sample(host.name, "", start_unix_s or 0.0, figures_of_hosts([host.profile.trace]))
        for host in capture.hosts
    ]
    answer = verdict_on(judge_capture(samples, Thresholds()))
    findings = tuple(answer.findings)
    if start_unix_s is None:
        findings = tuple(replace(one, since_unix_s=None) for one in findings)
    return replace(capture, verdict=f"{answer.title}: {answer.sentence}", findings=findings)


def _print(settings: ReportSettings, document: Struct, pages: Sequence[SectionPage], title: str) -> None:
    match settings.output:
        case "json":
            show(encoded(document))
        case "text":
            from tpumon.report.render import plain_text

            shown = plain_text.render(pages, _width())
            show(shown if terminal_is_utf_8() else plain_text.as_ascii(shown))
        case "markdown":
            from tpumon.report.render.documents import markdown

            show(markdown(pages))
        case "html":
            from tpumon.report.render.documents import html

            show(html(pages, title))


def _host_names(hosts: Sequence[HostProfile]) -> str:
    return listed((host.name for host in hosts), 1)


def _place(paths: Sequence[str], capture: Capture) -> str:
    """Path of a profile, or the server of which it was taken now, and when it began."""
    where = listed(map(one_line, paths), 1) if paths else _host_names(capture.hosts)
    when = utc_text(capture.start_unix_s)
    return f"{where} ({when} UTC)" if capture.start_unix_s is not None else f"{where} (time {when})"


def _width() -> int:
    return shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns if sys.stdout.isatty() else _PIPE_WIDTH

"""The text of `tpumon doctor`, at most 80 wide unless a name is longer."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tpumon.cli.commands.doctor.diagnosis import Diagnosis, ExtraSourceReports, ServerDiagnosis
from tpumon.collection.sources.doctor_reports import ExtraSourceReport
from tpumon.discovery.host.pci_chips import Chip
from tpumon.model import SIMULATED_MARK
from tpumon.untrusted_text import listed

_WIDTH = 80
_ADDRESS_WIDTH = 17
_MOST = 10  # entries that are alike
_OWN_TRACES = (
    "run `tpumon pause 10m`. If a sample is being taken at the moment of your start_trace (1 % of the time by default, "
    "--max-duty), your stop_trace raises ALREADY_EXISTS. Uncaught, that ends the training; caught, this process still "
    "cannot trace itself again until it is restarted, or calls `jax._src.profiler._profile_state.reset()`, which is "
    "private."
)
_ATTACHED = "yes     its own traces wait for samples, so no sample can break one"
_COMMAND = re.compile(r"`[^`]*`")  # keeps what people copy on one line
_HARD_SPACE = "\0"

_STATES = {"ok": "yes", "absent": "no", "busy": "busy", "failed": "FAILED", "not asked": "-"}


def render(diagnosis: Diagnosis) -> Iterator[str]:
    """The lines of the text."""
    yield from _wrapped(", ".join(f"{name} {version}" for name, version in diagnosis.versions.items()), "")
    if any(server.source == "trace" and not server.attached for server in diagnosis.servers):
        yield from _section("Before you profile the job yourself", _wrapped(_OWN_TRACES, "  "))
    if diagnosis.local or diagnosis.chips:
        yield from _section("Chips of this host", _chips(diagnosis))
    yield from _section("Profiler servers", _servers(diagnosis.servers))
    for row in diagnosis.extra_sources:
        yield from _section(row.kind.about.title, _extra_sources(row, local=diagnosis.local))
    if diagnosis.local:
        yield from _section("Other ports of this host", _ports(diagnosis))
    yield from _section("What tpumon would use", _use(diagnosis))
    yield from _section("What is wrong", _problems(diagnosis))


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", title)
    yield from lines


def _wrapped(text: str, indent: str, rest: str | None = None) -> list[str]:
    """Lines of a text, the first after `indent`, the others after `rest` or blanks as wide."""
    rest = " " * len(indent) if rest is None else rest
    whole = _COMMAND.sub(lambda command: command[0].replace(" ", _HARD_SPACE), text)
    lines = textwrap.wrap(
        whole, _WIDTH, initial_indent=indent, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_HARD_SPACE, " ") for line in lines]


def _process(program: str | None, pid: int | None) -> str:
    return "" if pid is None else f"{program or 'process'} ({pid})"


def _chips(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.chips and not diagnosis.chip_remarks:
        yield "  none: no PCI device of this host is a TPU"
    for name, count in Counter(chip.name for chip in diagnosis.chips).items():
        yield f"  {count} x {name}"
    for chip in diagnosis.chips:
        yield from _wrapped(_chip(chip), f"    {chip.pci}  ")
    for remark in diagnosis.chip_remarks:
        yield from _wrapped(remark, "  ")


def _chip(chip: Chip) -> str:
    nodes = " ".join([*chip.nodes, *(f"{node} (missing)" for node in chip.missing)]) or "no file in /dev"
    holders = ", ".join(_process(one.program, one.pid) for one in chip.holders)
    return f"{nodes}  {'held by ' + holders if holders else 'no known user'}"


def _servers(servers: Sequence[ServerDiagnosis]) -> Iterator[str]:
    """Groups servers that answer alike: a slice of 64 hosts is one entry."""
    if not servers:
        yield "  none"
    alike: dict[tuple[object, ...], list[ServerDiagnosis]] = {}
    for server in servers:
        alike.setdefault((server.answers, server.generation, server.simulated, server.attached), []).append(server)
    for group in alike.values():
        first = group[0]
        for server in group[:_MOST]:
            yield f"  {_server_title(server)}"
        yield from _more(len(group) - _MOST)
        for answer in first.answers:
            yield from _wrapped(f"{_STATES[answer.state]:<7} {answer.words}", f"    {answer.rpc:<12} ", " " * 25)
        if first.generation:
            yield from _wrapped(first.generation, f"    {'age':<12} {'':<8}")
        if first.attached:
            yield from _wrapped(_ATTACHED, f"    {'attached':<12} ", " " * 25)
        if first.simulated:
            yield f"    {SIMULATED_MARK}"


def _server_title(server: ServerDiagnosis) -> str:
    process = _process(server.program, server.pid)
    name = "" if server.worker == server.address else f"{server.worker} "
    return f"{name}{server.address}{'  ' + process if process else ''}"


def _more(count: int) -> Iterator[str]:
    if count > 0:
        yield f"  and {count} more (--output json has all)"


def _extra_sources(row: ExtraSourceReports, *, local: bool) -> Iterator[str]:
    if not row.reports:
        yield f"  {row.kind.about.nowhere if local else 'none'}"
    for report in row.reports[:_MOST]:
        yield from _wrapped(report.line, f"  {report.address:<{_ADDRESS_WIDTH}}  ")
    yield from _more(len(row.reports) - _MOST)
    if any(report.simulated for report in row.reports):
        yield f"    {SIMULATED_MARK}"
    yield from _offered(row.reports)


def _offered(reports: Sequence[ExtraSourceReport]) -> Iterator[str]:
    """Metrics that the service offers and tpumon does not show."""
    offered = {metric.name: metric for report in reports for metric in report.offered or ()}
    hidden = [metric for metric in offered.values() if not metric.shown]
    if not offered:
        return
    yield f"  {len(offered)} metrics are offered; not shown by tpumon yet: {len(hidden) or 'none'}"
    for metric in hidden:
        yield from _wrapped(f"{metric.name} {metric.kind} {metric.unit}".strip(), "    ")


def _ports(diagnosis: Diagnosis) -> Iterator[str]:
    """Groups ports by outcome, then by process: there may be hundreds."""
    if not diagnosis.ports:
        yield "  none"
    groups: dict[str, dict[str, list[str]]] = {}
    for port in diagnosis.ports:
        by_process = groups.setdefault(port.words, {})
        process = _process(port.program, port.pid) or "?"
        by_process.setdefault(process, []).append(port.address.removeprefix("127.0.0.1:"))
    for words, by_process in groups.items():
        yield from _wrapped(words, "  ")
        for process, ports in list(by_process.items())[:_MOST]:
            yield from _wrapped(listed(ports, _MOST), f"    {process}: ")
        yield from _more(len(by_process) - _MOST)


def _use(diagnosis: Diagnosis) -> Iterator[str]:
    """The number of servers and extra sources that would be used, by what they give."""
    servers = Counter(server.gives for server in diagnosis.servers if server.source is not None)
    for gives, count in servers.items():
        yield from _wrapped(f"{count} server{'s' if count > 1 else ''}, {gives}", "  ", "    ")
    for row in diagnosis.extra_sources:
        if count := sum(report.state == "ok" for report in row.reports):
            about = row.kind.about
            yield from _wrapped(f"{count} {about.gives if count == 1 else about.several or about.gives}", "  ", "    ")
    if not diagnosis.usable:
        yield "  nothing: no figure is available"
    elif diagnosis.local:
        yield f"  to watch it: tpumon{'' if diagnosis.port is None else f' --port {diagnosis.port}'}"


def _problems(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.problems:
        yield "  nothing that can be seen from here"
    for number, (what, remedy) in enumerate(_alike(diagnosis), 1):
        yield from _wrapped(what, f"  {number}. ")
        if remedy:
            yield from _wrapped(remedy, "     -> ")


def _alike(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """Problems and what to do; the same one of several servers is one entry."""
    servers = {server.address for server in diagnosis.servers}
    addresses: dict[tuple[str, str], list[str]] = {}
    for problem in diagnosis.problems:
        address, _, words = problem.what.partition(": ")
        at_server = address in servers
        addresses.setdefault((words if at_server else problem.what, problem.remedy), []).extend([address] * at_server)
    for (words, remedy), at in addresses.items():
        yield f"{listed(at, _MOST)}{': ' if at else ''}{words}", remedy

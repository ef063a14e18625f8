"""`tpumon doctor`: what is here, what answers, what would be used, and why not.

Safe to paste into an issue: no environment, no tokens, no names of users.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tpumon.commands.diagnosis import Diagnosis, Runtime, Server, diagnose
from tpumon.commands.finding import WhereSettings
from tpumon.commands.remedies import problems_of
from tpumon.errors import NoTargetError
from tpumon.model import SIMULATED_MARK
from tpumon.targets.chips import Chip
from tpumon.targets.local import RUNTIME_PORTS

_SCHEMA_VERSION = 1
_WIDTH = 80
_ADDRESS_WIDTH = 17
_MOST = 10  # entries that are alike
_GIB = 1 << 30
_COMMAND = re.compile(r"`[^`]*`")  # what is to be copied stays on one line
_HARD_SPACE = "\0"

_STATES = {"ok": "yes", "absent": "no", "busy": "busy", "failed": "FAILED", "not asked": "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSettings:
    """Attributes:
    where: the workers to look at; nothing given: this host.
    output: what stdout gets.
    use_proxy: obey http_proxy.
    """

    where: WhereSettings = field(default_factory=WhereSettings)
    output: Literal["text", "json"] = "text"
    use_proxy: bool = False


def run(settings: DoctorSettings) -> int:
    """Looks around for a few seconds and prints what it found.

    Returns:
        0; 3 where no figure is to be had.
    """
    found = asyncio.run(diagnose(settings.where, use_proxy=settings.use_proxy))
    found = replace(found, problems=(*found.problems, *problems_of(found)))
    if settings.output == "json":
        print(json.dumps({"schema": _SCHEMA_VERSION, **dataclasses.asdict(found)}, allow_nan=False), flush=True)
    else:
        print("\n".join(render(found)), flush=True)
    return 0 if found.usable else NoTargetError.exit_status


def render(found: Diagnosis) -> Iterator[str]:
    """The lines of the text, at most 80 wide unless a name is longer."""
    yield from _wrapped(", ".join(f"{name} {version}" for name, version in found.versions.items()), "")
    if found.local or found.chips:
        yield from _section("Chips of this host", _chips(found))
    yield from _section("Profiler servers", _servers(found.servers))
    yield from _section("Runtime metrics (libtpu)", _runtimes(found))
    if found.local:
        yield from _section("Other ports of this host", _ports(found))
    yield from _section("What tpumon would use", _use(found))
    yield from _section("What is wrong", _problems(found))


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


def _chips(found: Diagnosis) -> Iterator[str]:
    if not found.chips and not found.chip_remarks:
        yield "  none: no PCI device here is a TPU"
    for name, count in Counter(chip.name for chip in found.chips).items():
        yield f"  {count} x {name}"
    for chip in found.chips:
        yield from _wrapped(_chip(chip), f"    {chip.pci}  ")
    for remark in found.chip_remarks:
        yield from _wrapped(remark, "  ")


def _chip(chip: Chip) -> str:
    nodes = " ".join([*chip.nodes, *(f"{node} (missing)" for node in chip.missing)]) or "no file in /dev"
    holders = ", ".join(_process(one.program, one.pid) for one in chip.holders)
    return f"{nodes}  {'held by ' + holders if holders else 'not known to be in use'}"


def _servers(servers: Sequence[Server]) -> Iterator[str]:
    """Servers that answer alike stand together: a slice of 64 hosts is one entry."""
    if not servers:
        yield "  none"
    alike: dict[tuple[object, ...], list[Server]] = {}
    for server in servers:
        alike.setdefault((server.answers, server.generation, server.simulated), []).append(server)
    for group in alike.values():
        first = group[0]
        for server in group[:_MOST]:
            yield f"  {_server_title(server)}"
        yield from _more(len(group) - _MOST)
        for answer in first.answers:
            yield from _wrapped(f"{_STATES[answer.state]:<7} {answer.words}", f"    {answer.rpc:<12} ", " " * 25)
        if first.generation:
            yield from _wrapped(first.generation, f"    {'age':<12} {'':<8}")
        if first.simulated:
            yield f"    {SIMULATED_MARK}"


def _server_title(server: Server) -> str:
    process = _process(server.program, server.pid)
    name = "" if server.worker == server.address else f"{server.worker} "
    return f"{name}{server.address}{'  ' + process if process else ''}"


def _more(count: int) -> Iterator[str]:
    if count > 0:
        yield f"  and {count} more (--output json has all)"


def _runtimes(found: Diagnosis) -> Iterator[str]:
    if not found.runtimes:
        ports = f": nobody listens on ports {RUNTIME_PORTS[0]}-{RUNTIME_PORTS[-1]}, as usual without a TPU job"
        yield f"  none{ports if found.local else ''}"
    for runtime in found.runtimes[:_MOST]:
        yield from _wrapped(_figures(runtime), f"  {runtime.address:<{_ADDRESS_WIDTH}}  ")
    yield from _more(len(found.runtimes) - _MOST)
    if any(runtime.simulated for runtime in found.runtimes):
        yield f"    {SIMULATED_MARK}"
    yield from _offered(found.runtimes)


def _figures(runtime: Runtime) -> str:
    parts = [runtime.words]
    if runtime.hbm_used_bytes is not None and runtime.hbm_total_bytes is not None:
        parts.append(f"HBM {runtime.hbm_used_bytes / _GIB:.1f} of {runtime.hbm_total_bytes / _GIB:.1f} GiB")
    if runtime.duty_cycle_ratio is not None:
        parts.append(f"duty cycle {100 * runtime.duty_cycle_ratio:.0f} %")
    return ", ".join(parts)


def _offered(runtimes: Sequence[Runtime]) -> Iterator[str]:
    """What this libtpu has and tpumon does not show yet."""
    offered = {metric.name: metric for runtime in runtimes for metric in runtime.offered or ()}
    hidden = [metric for metric in offered.values() if not metric.shown]
    if not offered:
        return
    yield f"  {len(offered)} metrics are offered; not shown by tpumon yet: {len(hidden) or 'none'}"
    for metric in hidden:
        yield from _wrapped(f"{metric.name} {metric.kind} {metric.unit}".strip(), "    ")


def _ports(found: Diagnosis) -> Iterator[str]:
    """By what came of them, then by process: there may be hundreds."""
    if not found.ports:
        yield "  none"
    groups: dict[str, dict[str, list[str]]] = {}
    for port in found.ports:
        by_process = groups.setdefault(port.words, {})
        process = _process(port.program, port.pid) or "?"
        by_process.setdefault(process, []).append(port.address.removeprefix("127.0.0.1:"))
    for words, by_process in groups.items():
        yield from _wrapped(words, "  ")
        for process, ports in list(by_process.items())[:_MOST]:
            more = f" and {len(ports) - _MOST} more" if len(ports) > _MOST else ""
            yield from _wrapped(", ".join(ports[:_MOST]) + more, f"    {process}: ")
        yield from _more(len(by_process) - _MOST)


def _use(found: Diagnosis) -> Iterator[str]:
    traced = [server for server in found.servers if server.source == "trace"]
    without = sum(server.device_planes is False for server in traced)
    uses = (
        (
            sum(server.source == "monitor" for server in found.servers),
            "server, by Monitor: MXU, idle and step time, infeed; free for the job",
        ),
        (
            len(traced) - without,
            "server, by short traces: MXU, idle and step time; the job is traced for 2 % of the time at most",
        ),
        (without, "server without a TPU, by short traces: step time; traced for 2 % of the time at most"),
        (
            sum(runtime.state == "ok" for runtime in found.runtimes),
            "service of runtime metrics: HBM, duty cycle; free for the job",
        ),
    )
    for count, words in uses:
        if count:
            several = words.replace("server", "servers", 1).replace("service", "services", 1)
            yield from _wrapped(f"{count} {words if count == 1 else several}", "  ", "    ")
    if not found.usable:
        yield "  nothing: there is no figure to be had"
    elif found.local:
        yield "  to watch it: tpumon --level 2"


def _problems(found: Diagnosis) -> Iterator[str]:
    if not found.problems:
        yield "  nothing that can be seen from here"
    for number, problem in enumerate(found.problems, 1):
        yield from _wrapped(problem.what, f"  {number}. ")
        if problem.remedy:
            yield from _wrapped(problem.remedy, "     -> ")

"""What `tpumon doctor` makes of what it found: what is wrong, and what to do about it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tpumon.commands.diagnosis import Diagnosis, Problem, Runtime, Server
from tpumon.errors import Reason
from tpumon.targets.local import LINE_FOR_A_JOB, RUNTIME_PORTS, USUAL_PORTS

_ADD_LINE = f"add `{LINE_FOR_A_JOB}` to the job"

_REMEDIES: dict[Reason, str] = {
    "unavailable": f"is the job running? If it is: {_ADD_LINE}, and give that port",
    "deadline": "is its host alive, and the port open in the firewall between here and there?",
    "resolve": "check the name, or give the IP address",
    "not-a-profiler": "give the port that the job passes to start_server",
    "busy": "wait: tpumon stands back until they are done, and goes on by itself",
    "empty-trace": "wait for the job to begin its first step",
}
_USUAL_REMEDY = "see the job's own log"


def problems_of(found: Diagnosis) -> tuple[Problem, ...]:
    """What is wrong, the most important first."""
    return tuple(_problems(found))


def _problems(found: Diagnosis) -> Iterator[Problem]:
    if found.paused_until_unix_s is not None:
        until = time.strftime("%H:%M:%S", time.localtime(found.paused_until_unix_s))
        remedy = "wait, or `tpumon pause 0` as the user who paused it"
        yield Problem(what=f"sampling on this host is paused until {until}", remedy=remedy)
    for server in found.servers:
        yield from _of_server(server)
    if found.local and not found.servers:
        yield _nobody(found)
    for runtime in found.runtimes:
        if not any(answer.words == runtime.words for server in found.servers for answer in server.answers):
            yield from _of_runtime(runtime)  # else the host is the trouble, and named already
    has_devices = any(server.device_planes for server in found.servers)
    if has_devices and all(runtime.state == "absent" for runtime in found.runtimes):
        yield Problem(
            what="no runtime metrics: HBM in use and the runtime's duty cycle are not to be had",
            remedy=f"libtpu serves them on port {RUNTIME_PORTS[0]} while a job runs, unless "
            "TPU_RUNTIME_METRICS_PORTS or _ADDRESS in the job's environment says else",
        )
    if any(chip.missing for chip in found.chips):
        yield Problem(
            what="some chips have no file in /dev",
            remedy="give them to this container or virtual machine; nothing is wrong where another one uses them",
        )


def _of_server(server: Server) -> Iterator[Problem]:
    if server.reason is not None:
        remedy = _REMEDIES.get(server.reason, _USUAL_REMEDY)
        yield Problem(what=f"{server.address}: {server.answers[-1].words}", remedy=remedy)
    elif server.writes_only:
        yield Problem(
            what=f"{server.address}: this old server cannot return traces",
            remedy="tpumon reads what it writes to this host's disk"
            if server.source
            else "give --logdir DIR that both see (a shared directory or gs://)",
        )
    elif server.host_events_safe is False and not server.device_planes:
        yield Problem(
            what=f"{server.address}: without a TPU only host events tell the step time, and here they may hang the job",
            remedy="update the job to jaxlib 0.9 or newer",
        )


def _nobody(found: Diagnosis) -> Problem:
    """Why there is no profiler server on this host, as far as can be seen."""
    if found.port is not None:
        return Problem(what=f"no profiler server on port {found.port} of this host", remedy=_ADD_LINE)
    if any(runtime.state == "ok" for runtime in found.runtimes):
        return Problem(
            what="a job uses the TPU, but has no profiler server: no matrix units, idle or step time", remedy=_ADD_LINE
        )
    holders = sorted({f"{one.program or 'process'} ({one.pid})" for chip in found.chips for one in chip.holders})
    if holders:
        what = f"{', '.join(holders)} holds the chips, but no profiler server is to be found"
        return Problem(what=what, remedy=_ADD_LINE)
    return Problem(
        what="no profiler server on this host, neither on the usual ports "
        f"({', '.join(map(str, USUAL_PORTS))}) nor on another of a job's",
        remedy=f"start the job; {_ADD_LINE}; or give --service-addr HOST:PORT. To look around: "
        "tpumon --level 2 --simulate v5e-8",
    )


def _of_runtime(runtime: Runtime) -> Iterator[Problem]:
    if runtime.state == "failed":
        remedy = "only memory and duty cycle are missing for it; is the job alive?"
        yield Problem(what=f"{runtime.address}: runtime metrics: {runtime.words}", remedy=remedy)
    for warning in runtime.warnings:
        yield Problem(what=f"{runtime.address}: {warning}", remedy="see the job's own log")

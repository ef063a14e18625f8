"""The problems that `tpumon doctor` sees in its diagnosis, and what to do about them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from tpumon.cli.commands.doctor.diagnosis import Diagnosis, ExtraSourceReports, Problem, ServerDiagnosis
from tpumon.discovery.host.jobs import HostJob
from tpumon.discovery.host.port_survey import HIDDEN, USUAL_PORTS, line_for, of_others
from tpumon.errors import MEANING, remedy
from tpumon.model import Address, Framework
from tpumon.untrusted_text import listed

_MOST_NAMED = 3


def problems_of(diagnosis: Diagnosis) -> Iterator[Problem]:
    """Yields the problems of a diagnosis, the most important first."""
    if diagnosis.paused_until_unix_s is not None:
        until = time.strftime("%H:%M:%S", time.localtime(diagnosis.paused_until_unix_s))
        yield Problem(what=f"sampling on this host is paused until {until}", remedy=MEANING["paused"].remedy)
    for server in diagnosis.servers:
        alike = [one.address for one in diagnosis.servers if one.reason == server.reason]
        yield from _of_server(server, alike)
    hidden = _hidden_ports(diagnosis)
    if diagnosis.local and not diagnosis.servers:
        problem = _no_server(diagnosis, hidden)
        hidden = None if hidden is None or hidden.what in problem.what else hidden
        yield problem
    elif diagnosis.job is not None:
        yield _job_without_server(diagnosis.job)
    for port in diagnosis.ports:
        if port.reason == "not-a-profiler" and Address.parse(port.address).port in {*USUAL_PORTS, diagnosis.port}:
            holder = f" ({port.program} {port.pid})" if port.program else ""
            yield Problem(what=f"{port.address}{holder}: {port.words}", remedy="give the job's profiler another port")
    known = {answer.words for server in diagnosis.servers for answer in server.answers}
    has_devices = any(server.device_planes for server in diagnosis.servers)
    for row in diagnosis.extra_sources:
        yield from _of_extra_sources(row, known, has_devices=has_devices)
    if any(chip.missing for chip in diagnosis.chips):
        yield Problem(
            what="some chips have no file in /dev",
            remedy="give them to this container or virtual machine, unless another one uses them",
        )
    if hidden is not None:
        yield hidden


def _of_server(server: ServerDiagnosis, alike: Sequence[str]) -> Iterator[Problem]:
    """Problems of a server; `alike` are the addresses that have the same reason, for they get one remedy."""
    if server.reason is not None:
        words = server.answers[-1].words
        advice = server.elsewhere or remedy(server.reason, server.detail, addresses=alike)
        yield Problem(what=f"{server.address}: {words}", remedy=advice)
    elif server.writes_only and not server.source:
        yield Problem(
            what=f"{server.address}: this old server cannot return traces, and what it writes is not seen here",
            remedy="give a --logdir DIR that both can see (a shared directory or gs://)",
        )
    if server.reason is None and server.host_events_safe is False and not server.device_planes:
        yield Problem(
            what=f"{server.address}: without a TPU only a trace of the host shows the step time, and here that may "
            "hang the job (jaxlib 0.5.0 to 0.8.3 without TensorFlow imported)",
            remedy="if it is a JAX job, update it to jaxlib 0.9 or newer; if it is TensorFlow or PyTorch/XLA, give "
            "--host-tracer-level 1",
        )


def _hidden_ports(diagnosis: Diagnosis) -> Problem | None:
    """The problem that jobs of other users may have a profiler server, unless one port was asked for."""
    hidden = [Address.parse(port.address).port for port in diagnosis.ports if port.words == HIDDEN]
    if not hidden or diagnosis.port is not None:
        return None
    whose, advice = of_others(hidden)
    return Problem(what=f"{whose} could not be looked at", remedy=advice)


def _no_server(diagnosis: Diagnosis, hidden: Problem | None) -> Problem:
    """The problem that there is no profiler server on this host, with its cause as far as that can be seen."""
    job = diagnosis.job
    add_line = _add_line(diagnosis.framework if job is None else job.framework, diagnosis.port)
    if job is not None and job.stopped:
        return _job_without_server(job)
    if diagnosis.port is not None:
        what = f"no profiler server on port {diagnosis.port} of this host"
        return Problem(what=what, remedy=diagnosis.elsewhere or add_line)
    if job is not None and job.not_yet(time.time()) is not None:
        return _job_without_server(job)
    holders = sorted({f"{one.program or 'process'} ({one.pid})" for chip in diagnosis.chips for one in chip.holders})
    if hidden is not None and job is None and not holders:
        return Problem(
            what=f"no profiler server found, but {hidden.what}",
            remedy=f"{hidden.remedy}; if the job is yours, start it with `tpumon run`",
        )
    showing_job = (row for row in diagnosis.extra_sources if row.kind.about.shows_job)
    if any(report.state == "ok" for row in showing_job for report in row.reports):
        return Problem(
            what="a job uses the TPU, but has no profiler server: no matrix units, idle or step time", remedy=add_line
        )
    if job is not None:
        return _job_without_server(job)
    if holders:
        return Problem(what=f"{', '.join(holders)} holds the chips, but has no profiler server", remedy=add_line)
    if silent := [port.address for port in diagnosis.ports if port.reason == "deadline"]:
        return Problem(
            what=f"no profiler server answers on this host, but {listed(silent, _MOST_NAMED)} took the call",
            remedy=f"if that is a job's, the job is stopped or hangs: look at its process; otherwise {add_line}",
        )
    return Problem(
        what=f"no profiler server on this host, neither on the usual ports ({', '.join(map(str, USUAL_PORTS))}) nor on "
        "another port of a job",
        remedy=f"{add_line}; or give --service-addr HOST:PORT. To look around: tpumon --simulate v5e-8",
    )


def _job_without_server(job: HostJob) -> Problem:
    """The problem that a job has no profiler server, or none yet."""
    if (words := job.not_yet(time.time())) is not None:
        return Problem(what=words[0], remedy=words[1])
    return Problem(what=job.lack, remedy=_add_line(job.framework))


def _add_line(framework: Framework | None, port: int | None = None) -> str:
    return f"start the job with `tpumon run`, or add `{line_for(framework, port)}` to it"


def _of_extra_sources(row: ExtraSourceReports, known: set[str], *, has_devices: bool) -> Iterator[Problem]:
    """Problems of extra sources, without problems already named for the same host."""
    about = row.kind.about
    for report in row.reports:
        if report.state == "failed" and report.words not in known:
            title = about.title.partition(" (")[0].lower()
            yield Problem(what=f"{report.address}: {title}: {report.words}", remedy=about.failed_remedy)
        for warning in report.warnings:
            yield Problem(what=f"{report.address}: {warning}", remedy="see the job's own log")
    if about.absent and has_devices and all(report.state == "absent" for report in row.reports):
        yield Problem(what=about.absent, remedy=about.absent_remedy)

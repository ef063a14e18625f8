"""What `tpumon doctor` finds and says, against servers on real ports; this host's own are replaced by a list."""

from __future__ import annotations

import errno
import getpass
import json
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import grpc
import pytest
from msgspec.structs import replace

from fakes.runtime_node import DUTY, MEGASCALE, RuntimeNode, detected, metrics_of, supported
from fakes.tpu_node import BUSY_STEP, EMPTY_RESULT, Answer, Fail, Figures, TpuNode, WrongServer, closed_port
from support import wait_until
from tpumon.cli.commands.doctor import command, diagnosis, problems
from tpumon.cli.commands.doctor.command import run
from tpumon.cli.commands.doctor.problems import problems_of
from tpumon.collection.sampler import host_traces
from tpumon.collection.sources.doctor_reports import ExtraSourceReport
from tpumon.collection.sources.runtime_metrics import RuntimeMetrics
from tpumon.collection.sources.traces.source import TraceSource
from tpumon.discovery.host import port_survey
from tpumon.discovery.host.jobs import HostJob
from tpumon.discovery.host.listening import Owner
from tpumon.discovery.host.pci_chips import Chip, ChipHolder, Chips
from tpumon.discovery.host.port_survey import HIDDEN, SurveyedPort
from tpumon.discovery.host.processes import is_stopped
from tpumon.discovery.selection import Selection
from tpumon.errors import SourceError
from tpumon.model import Address, JobSigns, Process, Target
from tpumon.simulator.simulator_settings import SimulatorSettings


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """A host without chips, pauses and listeners; `paused.txt` in its own directory pauses it."""
    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    monkeypatch.setattr(diagnosis, "find_chips", lambda: Chips(chips=(), remarks=()))
    monkeypatch.setattr(diagnosis, "find_job", lambda but_for: None)
    listeners(monkeypatch)


def listeners(monkeypatch, *seen):
    async def survey(port=None):
        return [
            one
            if port in {None, one.port}
            else replace(one, is_profiler=False, not_approached=one.not_approached or f"only port {port} was asked for")
            for one in seen
        ]

    monkeypatch.setattr(diagnosis, "survey", survey)
    monkeypatch.setattr(port_survey, "survey", survey)


@pytest.fixture
def doctor(capsys, monkeypatch):
    """Runs it and returns exit status and what it printed; given addresses are workers, each with its runtime's."""

    def call(*addresses, output="text", simulate=None, runtime=(), port=None):
        targets = [Target(worker=f"w{i}", address=address, runtime_addresses=tuple(runtime) or (NOWHERE,))
                   for i, address in enumerate(addresses)]  # fmt: skip
        if addresses:

            async def find_now(*_args):
                return targets

            monkeypatch.setattr(command, "find_now", find_now)
        simulated = simulate and SimulatorSettings(topology=simulate)
        where = Selection(addresses=addresses, port=port, simulate=simulated)
        status = run(where=where, output=output)
        printed = capsys.readouterr()
        assert printed.err == ""
        if output == "json":
            return status, json.loads(printed.out)
        assert max(len(line) for line in printed.out.splitlines()) <= 80
        return status, printed.out

    return call


NOWHERE = f"127.0.0.1:{closed_port()}"
DEAD = f"127.0.0.1:{closed_port()}"


def one_line(text):
    """The text as if it had not been wrapped."""
    return re.sub(r"\s+", " ", text)


def test_a_tpu_vm_is_watched_by_traces_and_runtime_metrics(doctor):
    """RPC by RPC, with what it would use, and where the figures come from."""
    status, text = doctor(simulate="v5e-8")

    assert status == 0
    assert re.search(r"Monitor +no +not offered, as on every TPU VM; traces tell more", text)
    assert re.search(r"Profile +yes +returns traces, with device planes", text)
    assert re.search(r"GetSnapshot +yes", text)
    assert re.search(r"8 devices, HBM [\d.]+ of 125.0 GiB, duty cycle \d+ %", one_line(text))
    assert "1 server, by short traces" in text
    assert "nothing that can be seen from here" in text
    assert text.count("Simulated by tpumon") == 2


@pytest.mark.parametrize("attached", [True, False])
def test_an_attached_job_is_said_to_be_one(doctor, monkeypatch, attached):
    """Its own traces wait for samples: nobody needs to be warned of them."""
    with TpuNode(device=True) as node:
        port = Address.parse(node.address).port
        listeners(monkeypatch, SurveyedPort(address=node.address, port=port, is_profiler=True, attached=attached))
        status, text = doctor()
        found = doctor(output="json")[1]["servers"][0]

    assert status == 0
    assert found["attached"] is attached
    assert ("its own traces wait for samples" in one_line(text)) is attached
    assert ("Before you profile the job yourself" in text) is not attached


def test_a_tpu_node_is_asked_for_monitor_only():
    """It has the figures; nothing is traced, not for a millisecond."""
    with TpuNode(Answer(figures=Figures(), text="TPU type: TPU v2\n")) as node:
        found_there = examined(node.address)
        calls = [call.method for call in node.calls]

    assert calls == ["Monitor"]
    assert found_there.source == "monitor"
    assert found_there.answers[0].words.endswith("TPU v2")


def examined(address):
    import asyncio

    look = diagnosis._Look(diagnosis.Client)
    return asyncio.run(look._server(Target(worker="w", address=address)))


@pytest.mark.parametrize(
    ("generation", "calls", "age", "snapshot"),
    [
        ("new", ["Monitor", "Profile", "GetSnapshot"], "jaxlib 0.9 or newer", "yes"),
        ("2025", ["Monitor", "Profile", "GetSnapshot"], "jaxlib 0.7 and 0.8", "no"),
        ("old", ["Monitor", "Profile", "GetSnapshot"], "jaxlib 0.6 or older", "no"),
    ],
)
def test_the_age_of_a_server_is_known_by_its_answers(doctor, generation, calls, age, snapshot):
    """Each RPC gets the one harmless call, of a millisecond."""
    with TpuNode(generation=generation, device=True) as node:
        status, text = doctor(node.address)

    assert status == 0
    assert [call.method for call in node.calls] == calls
    assert [call.fields["duration_ms"] for call in node.calls[:2]] == [1, 1]
    assert node.captures == []
    assert age in text
    assert re.search(rf"GetSnapshot +{snapshot} ", text)


def test_an_old_server_elsewhere_is_no_use_without_a_common_directory(doctor, monkeypatch):
    """It writes to a disk that is not to be seen from here."""
    monkeypatch.setattr(Address, "is_this_host", False)
    with TpuNode(generation="old") as node:
        status, text = doctor(node.address)

    assert status == 3
    assert "give a --logdir DIR that both can see" in one_line(text)


def test_host_events_that_may_hang_a_job_without_a_tpu(doctor):
    """Only they tell its step time: what helps is a newer jaxlib."""
    with TpuNode(generation="2025", device=False) as node:
        status, text = doctor(node.address)

    assert status == 3
    assert "if it is a JAX job, update it to jaxlib 0.9 or newer" in one_line(text)
    assert "step time" not in text.partition("What tpumon would use")[2].partition("What is wrong")[0]


@pytest.mark.parametrize(
    ("server", "gives"),
    [
        ({"device": True}, "by short traces: MXU, idle and step time"),
        ({"device": False}, "by short traces: step time; no TPU is seen"),
        ({"generation": "old"}, "by short traces: no figures unless the job uses a TPU; none is seen"),
        ({"continuous": True}, "by short traces: not yet seen which figures"),
    ],
)
def test_it_promises_only_what_it_has_seen(doctor, server, gives):
    """A busy server, or one that can only write files, has shown nothing yet."""
    with TpuNode(**server) as node:
        _, text = doctor(node.address)

    assert f"1 server, {gives}; the job is traced for 1 % of the time by default" in one_line(text)
    assert "of your start_trace (1 % of the time by default, --max-duty), your" in one_line(text)


def test_what_the_owner_must_know_comes_first(doctor):
    """What a sample does to their own trace, what avoids it, and what heals the process."""
    with TpuNode(device=True) as node:
        _, text = doctor(node.address)

    first = one_line(text.split("\n\n")[1])
    for words in ("tpumon pause 10m", "stop_trace raises ALREADY_EXISTS", "_profile_state.reset()"):
        assert words in first


def test_a_busy_server_is_usable_later(doctor):
    """Somebody profiles: no reason to fail, and nothing to repair."""
    with TpuNode(continuous=True) as node:
        status, text = doctor(node.address)

    assert status == 0
    assert re.search(r"Profile +busy ", text)
    assert "tpumon stands back until the other session is over" in one_line(text)


def test_while_paused_nothing_is_traced(doctor, tmp_path, monkeypatch):
    """The owner profiles; Monitor harms nobody. Who paused is not told."""
    from tpumon.system import pausing

    monkeypatch.setattr(pausing, "_pause_of", lambda _uid, until_s: pausing.Pause(until_unix_s=until_s, who="alice"))
    pausing.pause_for(600)
    with TpuNode(device=True) as node:
        status, text = doctor(node.address)

    assert status == 0
    assert [call.method for call in node.calls] == ["Monitor"]
    assert re.search(r"Profile +- +sampling on this host is paused", text)
    assert "`tpumon pause 0`" in text
    assert "alice" not in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [("HTTP", "give the port that the job passes to start_server"), ("silent", "check that its host is alive")],
)
def test_something_else_on_the_port(doctor, kind, words, monkeypatch):
    """It gets a single call, and a remedy stands beside it."""
    monkeypatch.setattr(diagnosis, "_SERVER_S", 0.5)
    with WrongServer(kind) as server:
        status, text = doctor(server.address)
        connections = server.connections

    assert status == 3
    assert connections == 1
    assert re.search(r"Monitor +FAILED ", text)
    assert words in one_line(text)


def test_it_ends_within_seconds_however_many_there_are(doctor, monkeypatch):
    """Who has not been asked by then is named, and not asked."""
    monkeypatch.setattr(diagnosis, "_ALL_S", -1.0)
    with TpuNode(device=True) as node, RuntimeNode(metrics_of("v6e")) as runtime:
        status, text = doctor(node.address, runtime=[runtime.address])

        assert (status, node.calls, runtime.calls) == (3, [], [])
    assert text.count("no time was left to ask") == 2


def test_what_is_wrong_at_many_servers_alike_is_one_problem(doctor):
    """As they are one entry among the servers; what is wrong at another is another."""
    dead = [f"127.0.0.1:{closed_port()}" for _ in range(12)]
    with WrongServer("HTTP") as other:
        _, text = doctor(dead[0], other.address, *dead[1:])
        _, told = doctor(dead[0], other.address, *dead[1:], output="json")

    wrong = one_line(text.partition("What is wrong")[2])
    assert wrong.startswith(f" 1. {', '.join(dead[:10])} and 2 more: connection refused; no profiler server is ")
    assert re.findall(r" (\d+)\. ", wrong) == ["1", "2"]
    assert f" 2. {other.address}: " in wrong
    assert wrong.count(" -> ") == 2
    assert len(told["problems"]) == 13


def test_another_grpc_server_gets_one_call(doctor):
    """What is no profiler server is not asked for more."""
    with TpuNode(profiler=False) as node:
        status, text = doctor(node.address)

    assert status == 3
    assert "a gRPC server, but not a profiler's" in one_line(text)


def test_nobody_there(doctor):
    """With the line that a job needs, whole and to be copied."""
    status, text = doctor(DEAD)

    assert status == 3
    assert "connection refused" in text
    assert f"`server = jax.profiler.start_server({DEAD.rpartition(':')[2]})`" in text
    assert "nothing: no figure is available" in text
    _, text = doctor(port=9998)
    assert "`server = jax.profiler.start_server(9998)`" in text


def test_a_host_to_which_no_way_leads(doctor):
    """What listens there is unknown, and a line in the job would not help."""
    with socket.socket() as beyond:
        beyond.settimeout(1)
        if beyond.connect_ex(("10.9.9.9", 9999)) not in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
            pytest.skip("the network of this host has a way to 10.9.9.9")

    status, text = doctor("10.9.9.9:9999", runtime=["10.9.9.9:8431"])

    assert status == 3
    _, runtime, wrong = re.split("Runtime metrics|What is wrong", one_line(text))
    assert "10.9.9.9:8431 this host cannot be reached: network unreachable The" in runtime
    assert wrong.strip() == (
        "1. 10.9.9.9:9999: this host cannot be reached: network unreachable -> check the address, that its host is "
        "up, and the routes and firewalls between here and there"
    )


def test_a_busy_tpu_node(doctor):
    """Monitor may be refused for it, too."""
    with TpuNode(BUSY_STEP) as node:
        status, text = doctor(node.address)

    assert status == 0
    assert re.search(r"Monitor +busy ", text)
    assert "1 server, by Monitor" in text


def told_of(server, extra_sources=()):
    return diagnosis.Diagnosis(
        versions={}, local=False, port=None, chips=(), chip_remarks=(), paused_until_unix_s=None, ports=(), problems=(),
        servers=(server,), extra_sources=extra_sources, usable=False, took_s=0.1,
    )  # fmt: skip


def test_a_host_without_an_address_is_one_problem():
    """Not another for its runtime metrics."""
    words = "this name has no address"
    answers = (diagnosis.RpcAnswer(rpc="Monitor", state="failed", words=words),)
    reports = (ExtraSourceReport(address="w:8431", state="failed", words=words),)
    told = told_of(
        diagnosis.ServerDiagnosis(worker="w", address="w:9999", reason="resolve", answers=answers),
        (diagnosis.ExtraSourceReports(kind=RuntimeMetrics, reports=reports),),
    )

    assert [problem.what for problem in problems_of(told)] == [f"w:9999: {words}"]


@pytest.mark.parametrize(("source", "problems"), [("trace", 0), (None, 1)])
def test_a_server_that_only_writes_is_wrong_only_where_nothing_is_seen_of_it(source, problems):
    old = diagnosis.ServerDiagnosis(worker="w", address="w:9999", writes_only=True, source=source)
    assert len(list(problems_of(told_of(old)))) == problems


def test_a_tpu_node_without_a_job(doctor):
    """Monitor answers with nothing in it."""
    with TpuNode(Answer(figures=Figures(), response_type=EMPTY_RESULT, text="")) as node:
        status, text = doctor(node.address)

    assert status == 0
    assert re.search(r"Monitor +yes +Monitor answered without figures", text)
    assert "wait for the job to begin a step" in one_line(text)


def test_what_a_libtpu_offers_and_is_not_shown(doctor):
    """By name, with kind and unit where it says so."""
    listed = [supported(DUTY), supported("hlo.execution.timing.distribution.microseconds", "us", 3)]
    with TpuNode(device=True) as node, RuntimeNode(metrics_of("v6e"), listed=listed) as runtime:
        _, text = doctor(node.address, runtime=[runtime.address])

    assert "2 metrics are offered; not shown by tpumon yet: 1" in text
    assert "    hlo.execution.timing.distribution.microseconds distribution us\n" in text
    assert DUTY not in text


def test_errors_that_the_runtime_detects_are_problems(doctor):
    """In its own words, which cannot drive a terminal."""
    told = metrics_of("v4") | {MEGASCALE: [detected(1, error_type="HANG_DETECTED", error_message="\x1b[2Jslice 3")]}
    with TpuNode(device=True) as node, RuntimeNode(told) as runtime:
        _, text = doctor(node.address, runtime=[runtime.address])

    assert "HANG_DETECTED: slice 3" in one_line(text)
    assert "\x1b" not in text


def test_a_runtime_port_given_for_a_profiler_s_is_called_as_what_it_is(doctor, monkeypatch):
    """And by nothing else."""
    with RuntimeNode(metrics_of("v6e")) as runtime:
        port = int(runtime.address.rpartition(":")[2])
        monkeypatch.setattr(diagnosis, "RUNTIME_PORTS", range(port, port + 1))
        status, text = doctor(runtime.address)

    assert status == 0
    assert "4 devices" in text
    assert "Monitor" not in text


def test_a_tpu_without_runtime_metrics(doctor):
    """What is missing, and where it might be."""
    with TpuNode(device=True) as node:
        _, text = doctor(node.address)

    assert "TPU_RUNTIME_METRICS_PORTS" in text


def seen(address, **rest):
    return SurveyedPort(address=address, port=int(address.rpartition(":")[2]), **rest)


def test_this_host_port_by_port(doctor, monkeypatch):
    """Profiler servers with the process that has them; the others with what they answered, or why they got no call."""
    refusal = SourceError("not-a-profiler", "not gRPC", address="127.0.0.1:8080")
    with TpuNode(device=True) as node, WrongServer("SSH") as foreign:
        listeners(
            monkeypatch,
            seen(
                node.address,
                is_profiler=True,
                owner=Owner(pid=4711, program="python3.11", process=Process(pid=4711, command="python3.11 train.py")),
            ),
            seen(foreign.address, not_approached="no JAX, TensorFlow or PyTorch/XLA process listens there"),
            seen("127.0.0.1:8080", answer=refusal, owner=Owner(pid=12, program="nginx")),
        )
        status, text = doctor()
        connections = foreign.connections

    assert status == 0
    assert connections == 0
    assert f"  {node.address}  python3.11 train.py (4711)\n" in text
    assert "  not gRPC\n    nginx (12): 8080\n" in text
    port = foreign.address.rpartition(":")[2]
    assert f"  no JAX, TensorFlow or PyTorch/XLA process listens there\n    ?: {port}\n" in text
    assert "to watch it: tpumon\n" in text


def test_hundreds_of_ports_are_few_lines(doctor, monkeypatch):
    """By what came of them and by process, some of each; those of other addresses with these."""
    reason, owner = "no JAX, TensorFlow or PyTorch/XLA process listens there", Owner(pid=7, program="envoy")
    ports = [seen(f"127.0.0.1:{20000 + i}", owner=owner, not_approached=reason) for i in range(300)]
    listeners(monkeypatch, seen("10.0.0.5:443", not_approached=reason), *ports)
    _, text = doctor()

    assert "    ?: 10.0.0.5:443\n" in text
    assert "20000, 20001" in text
    assert "and 290 more" in text
    assert len(text.splitlines()) < 40


def test_a_job_without_a_profiler_server(doctor, monkeypatch):
    """Its memory and duty cycle are to be had; the line for the rest stands there."""
    with RuntimeNode(metrics_of("v6e")) as runtime:
        port = int(runtime.address.rpartition(":")[2])
        monkeypatch.setattr(diagnosis, "RUNTIME_PORTS", range(port, port + 1))
        listeners(monkeypatch, seen(runtime.address, owner=Owner(pid=4711, program="python3.11", runs_xla=True)))
        status, text = doctor()

    assert status == 0
    assert "a job uses the TPU, but has no profiler server" in one_line(text)
    assert "`server = jax.profiler.start_server(9999)`" in text


@pytest.mark.parametrize(
    ("ports", "what", "port"),
    [((40001, 40002), "ports of other users (40001, 40002)", "N"), ((40001,), "port 40001 of another user", "40001")],
)
def test_ports_of_other_users_may_be_a_profiler_servers(doctor, monkeypatch, ports, what, port):
    """That there is none is not said then, also where the job's runtime metrics answer."""
    with RuntimeNode(metrics_of("v6e")) as runtime:
        number = int(runtime.address.rpartition(":")[2])
        monkeypatch.setattr(diagnosis, "RUNTIME_PORTS", range(number, number + 1))
        hidden = [seen(f"127.0.0.1:{one}", not_approached=HIDDEN) for one in ports]
        listeners(monkeypatch, seen(runtime.address), *hidden)
        _, text = doctor()

    assert f"no profiler server found, but {what} could not be looked at" in one_line(text)
    assert f"run tpumon as the job's user, or give --port {port};" in one_line(text)
    assert "has no profiler server" not in one_line(text)


def test_ports_of_other_users_are_a_problem_beside_a_server_of_ones_own(doctor, monkeypatch):
    """A job of theirs may be what is looked for. Not if one port was asked for: it was looked at."""
    with TpuNode(device=True) as node:
        own = SurveyedPort(address=node.address, port=Address.parse(node.address).port, is_profiler=True)
        listeners(monkeypatch, own, seen("127.0.0.1:40001", not_approached=HIDDEN))
        status, text = doctor()
        _, asked = doctor(port=own.port)
        assert f"to watch it: tpumon --port {own.port}\n" in asked

    assert status == 0
    what, _, remedy = one_line(text).partition("port 40001 of another user could not be looked at -> ")
    assert "What is wrong" in what
    assert remedy.startswith("run tpumon as the job's user, or give --port 40001")
    assert "could not be looked at" not in asked


def test_a_port_that_takes_the_call_and_never_answers_may_be_a_job_that_is_stopped(doctor, monkeypatch):
    """Of another user, whose process cannot be seen: not `no profiler server on this host`."""
    silence = SourceError("deadline", "no answer within 5 s", address="127.0.0.1:9999")
    listeners(monkeypatch, seen("127.0.0.1:9999", answer=silence))
    _, text = doctor()
    assert "no profiler server answers on this host, but 127.0.0.1:9999 took the call" in one_line(text)
    assert "the job is stopped or hangs" in one_line(text)


def test_a_job_and_ports_of_other_users_are_two_problems(doctor, monkeypatch):
    monkeypatch.setattr(diagnosis, "find_job", lambda but_for: HostJob(pid=42, name="train.py", framework="JAX"))
    listeners(monkeypatch, seen("127.0.0.1:40001", not_approached=HIDDEN))
    _, text = doctor()

    assert "1. pid 42 `train.py` runs JAX but has no profiler server" in one_line(text)
    assert "2. port 40001 of another user could not be looked at" in one_line(text)


def test_what_to_do_about_a_name_without_an_address_stands_there_once(doctor):
    _, text = doctor("no-such-host.invalid:8466", runtime=["no-such-host.invalid:8431"])

    assert "no-such-host.invalid:8431 this name has no IP address" in one_line(text)
    assert one_line(text).count("give the IP address") == 1


def test_a_job_without_a_profiler_server_is_named_with_what_to_do(doctor, monkeypatch):
    """And so is what else has the port that it would have."""
    monkeypatch.setattr(diagnosis, "find_job", lambda but_for: HostJob(pid=42, name="train.py", framework="JAX"))
    with WrongServer("HTTP") as foreign:
        port = Address.parse(foreign.address).port
        monkeypatch.setattr(problems, "USUAL_PORTS", (port,))
        answer = SourceError("not-a-profiler", "what listens there does not speak gRPC")
        listeners(monkeypatch, seen(foreign.address, owner=Owner(pid=12, program="nginx"), answer=answer))
        status, text = doctor()

    assert status == 3
    assert "pid 42 `train.py` runs JAX but has no profiler server" in one_line(text)
    assert "start the job with `tpumon run`, or add `server = jax.profiler.start_server(9999)`" in one_line(text)
    assert f"2. {foreign.address} (nginx 12): what listens there does not speak gRPC" in one_line(text)


def test_a_job_without_a_profiler_server_is_named_beside_one_that_has_one(doctor, monkeypatch):
    owner = Owner(pid=41, program="python3.11", runs_xla=True)
    left_out = []

    def find_job(but_for):
        left_out.extend(but_for)
        return HostJob(pid=42, name="train.py", framework="JAX")

    monkeypatch.setattr(diagnosis, "find_job", find_job)
    with TpuNode(device=True) as node:
        listeners(monkeypatch, seen(node.address, is_profiler=True, owner=owner))
        status, text = doctor()
    assert left_out == [owner]
    assert status == 0
    assert "pid 42 `train.py` runs JAX but has no profiler server" in one_line(text)


@pytest.mark.parametrize(
    ("attached", "what"),
    [(False, "began less than a minute ago and has no profiler server yet"), (True, "was started by `tpumon run` and")],
)
@pytest.mark.parametrize("metrics", [True, False])
def test_a_job_whose_profiler_server_is_still_to_come(doctor, monkeypatch, attached, what, metrics):
    """No line to add is named, whether it has runtime metrics already or not."""
    job = HostJob(pid=42, name="train.py", framework="JAX", started_unix_s=time.time() - 5, attached=attached)
    monkeypatch.setattr(diagnosis, "find_job", lambda but_for: job)
    with RuntimeNode(metrics_of("v6e")) as runtime:
        port = int(runtime.address.rpartition(":")[2])
        monkeypatch.setattr(diagnosis, "RUNTIME_PORTS", range(port, port + 1))
        owner = Owner(pid=42, program="python3.11", runs_xla=True)
        listeners(monkeypatch, *([seen(runtime.address, owner=owner)] if metrics else ()))
        _, text = doctor()
    assert f"pid 42 `train.py` {what}" in one_line(text)
    assert "start_server" not in text


def test_a_stranger_on_a_runtime_port_gets_no_call(doctor, monkeypatch):
    """Whoever listens there is no job."""
    with WrongServer("HTTP") as foreign:
        port = int(foreign.address.rpartition(":")[2])
        monkeypatch.setattr(diagnosis, "RUNTIME_PORTS", range(port, port + 1))
        owner = Owner(pid=12, program="nginx")
        listeners(monkeypatch, seen(foreign.address, owner=owner, not_approached="it is the runtime metric service's"))
        status, _ = doctor()

        assert (status, foreign.connections) == (3, 0)


def test_where_proc_cannot_be_read_the_usual_ports_are_tried(doctor, monkeypatch):
    """With the reason, and without those where nobody is."""

    async def forbidden(_port):
        raise PermissionError(13, "Permission denied")

    with TpuNode(device=True) as node:
        monkeypatch.setattr(diagnosis, "survey", forbidden)
        port = int(node.address.rpartition(":")[2])
        monkeypatch.setattr(diagnosis, "USUAL_PORTS", (closed_port(), port))
        monkeypatch.setattr(diagnosis, "RUNTIME_PORTS", range(closed_port(), 65536))
        status, text = doctor()

    assert status == 0
    assert "cannot read what listens here: Permission denied" in one_line(text)
    assert text.count("Monitor ") == 1
    assert node.address in text


def test_a_wrong_port_of_this_host_names_the_right_one(doctor, monkeypatch):
    right = SurveyedPort(address="127.0.0.1:9999", port=9999, is_profiler=True, owner=Owner(pid=42, program="python3"))
    listeners(monkeypatch, right)
    words = "a profiler server answers at 127.0.0.1:9999 (pid 42, python3): `tpumon --service-addr 127.0.0.1:9999`"
    status, text = doctor(DEAD)
    assert (status, one_line(text).count(words)) == (3, 1)
    assert "start_server" not in text
    _, text = doctor(DEAD, "127.0.0.1:9999")
    assert words not in one_line(text)
    status, text = doctor(port=9998)
    assert (status, one_line(text).count(words)) == (3, 1)
    assert "no profiler server on port 9998 of this host" in one_line(text)
    assert "start_server" not in text


def test_chips_with_their_files_and_holders(doctor, monkeypatch):
    """Kind by kind, then chip by chip; and a job that has them but no profiler server is named."""
    chip = Chip(name="TPU v6e", pci="0000:00:04", functions=1, nodes=("/dev/vfio/0",), missing=(),
                holders=(ChipHolder(pid=4711, program="python3.11"),))  # fmt: skip
    other = Chip(name="TPU (1ae0:0099)", pci="0000:00:05", functions=1, nodes=(), missing=("/dev/vfio/1",), holders=())
    monkeypatch.setattr(diagnosis, "find_chips", lambda: Chips(chips=(chip, chip, other), remarks=("a remark",)))
    status, text = doctor()

    assert status == 3
    assert "  2 x TPU v6e\n  1 x TPU (1ae0:0099)\n" in text
    assert "    0000:00:04  /dev/vfio/0  held by python3.11 (4711)\n" in text
    assert "/dev/vfio/1 (missing)" in text
    assert "  a remark\n" in text
    assert "python3.11 (4711) holds the chips, but has no profiler server" in one_line(text)


def test_servers_that_answer_alike_stand_together(doctor):
    """Ten of them by name; JSON has all."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(TpuNode(device=True)).address for _ in range(12)]
        _, text = doctor(*addresses)
        _, told = doctor(*addresses, output="json")

    assert text.count("    Monitor ") == 1
    assert "  w9 " in text
    assert "  w10 " not in text
    assert "  and 2 more (--output json has all)" in text
    assert [server["worker"] for server in told["servers"]] == [f"w{i}" for i in range(12)]


def test_json_says_the_same(doctor):
    """One object, for programs; the exit status is the same."""
    with TpuNode(device=True) as node:
        status, told = doctor(node.address, output="json")
    server = told["servers"][0]

    assert (status, told["schema"], told["usable"], told["local"]) == (0, 1, True, False)
    assert [answer["rpc"] for answer in server["answers"]] == ["Monitor", "Profile", "GetSnapshot"]
    assert server["source"] == "trace"
    assert told["problems"][0]["remedy"]

    status, told = doctor(DEAD, output="json")
    assert (status, told["usable"], told["servers"][0]["reason"]) == (3, False, "unavailable")


def test_what_it_prints_may_be_pasted_anywhere(doctor, monkeypatch):
    """Neither the environment, nor the user's or this machine's name."""
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    monkeypatch.setenv("TPUMON_TOKEN", "hunter2")

    async def find_now(*_args):
        return [Target(worker=f"{socket.gethostname()}:1", address=DEAD)]

    monkeypatch.setattr(command, "find_now", find_now)
    for output in ("text", "json"):
        _, said = doctor(simulate="v5e-8", output=output)
        said = json.dumps(said)
        words = set(re.findall(r"[\w-]+", said))
        assert not {"hunter2", getpass.getuser(), socket.gethostname()} & words


def test_a_finder_that_fails_is_a_problem(doctor, monkeypatch):
    """What cannot be found is said, with the exit status of nothing usable."""

    async def find_now(*_args):
        raise SourceError("resolve", "the TPU my-tpu is not to be found in zone us-east5-a")

    monkeypatch.setattr(command, "find_now", find_now)
    status, text = doctor(simulate="v5e-8")

    assert status == 3
    assert "my-tpu is not to be found" in one_line(text)


def test_a_status_in_a_server_s_own_words(doctor):
    """Its text is cut to a line and cannot drive a terminal."""
    with TpuNode(Fail(code=grpc.StatusCode.INTERNAL, details="\x1b[31mout of\nmemory")) as node:
        status, text = doctor(node.address)

    assert status == 3
    assert "out of memory" in text
    assert "\x1b" not in text
    assert "see the job's own log" in text


def test_a_bug_in_a_source_costs_no_other_worker_its_report(doctor, monkeypatch):
    """It is that server's failure, and named."""
    real = TraceSource.examine

    async def examine(source):
        if source._target.worker == "w0":
            raise ZeroDivisionError("of no\nuse")
        return await real(source)

    monkeypatch.setattr(TraceSource, "examine", examine)
    with TpuNode(device=True) as broken, TpuNode(device=True) as healthy:
        status, text = doctor(broken.address, healthy.address)
    assert status == 0
    assert "a bug in tpumon: ZeroDivisionError: of no use" in one_line(text)
    assert "MXU, idle and step time" in text


def test_two_names_of_one_server_cost_it_two_probes(doctor, tmp_path, monkeypatch):
    """Both are in the ledger of duty."""
    monkeypatch.setattr(TraceSource, "current_traced_s", 0.5)
    with TpuNode(device=True) as node:
        doctor(node.address, node.address.replace("127.0.0.1", "localhost"))
    (file,) = tmp_path.glob("tpumon-duty-*")
    ((_, _, traced_s, *_),) = json.loads(file.read_text())["servers"].values()
    assert traced_s == 1.0


def test_a_server_whose_process_a_signal_has_stopped_is_told_as_that(doctor, monkeypatch):
    """By its address, too; not as a host that is away, or as a port that is another service's."""
    monkeypatch.setattr(diagnosis, "_SERVER_S", 0.5)
    asleep = [sys.executable, "-c", "input()"]
    with subprocess.Popen(asleep, stdin=subprocess.PIPE) as process, WrongServer("silent") as server:
        monkeypatch.setattr(host_traces, "signs_at", lambda _address: JobSigns(pid=process.pid))
        _, running = doctor(server.address)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(process.pid), 10, "it is not stopped")
        status, text = doctor(server.address)
        process.kill()

    assert "SIGSTOP" not in running
    assert status == 3
    words = f"its process is stopped by a signal (SIGSTOP): `kill -CONT {process.pid}` lets it go on"
    assert f"{words} -> let it go on, unless somebody has stopped it on purpose" in one_line(text)


def test_a_server_whose_process_is_just_ending_is_told_as_that(doctor, monkeypatch):
    """Nothing is said to be done about it, as of what hung it."""
    monkeypatch.setattr(diagnosis, "_SERVER_S", 0.5)
    monkeypatch.setattr(host_traces, "signs_at", lambda _address: JobSigns(pid=4321))
    monkeypatch.setattr(host_traces, "state_of", lambda _pid: "ended")
    with WrongServer("silent") as server:
        _, text = doctor(server.address)
    assert "its process (4321) has just ended -> check that the job runs" in one_line(text)


def test_a_stopped_job_of_another_user_is_told_by_its_address_too(doctor, monkeypatch):
    monkeypatch.setattr(diagnosis, "_SERVER_S", 0.5)
    job = HostJob(pid=42, name="train.py", framework=None, stopped=True, user="ada")
    monkeypatch.setattr(host_traces, "stopped_at", lambda _address: job)
    monkeypatch.setattr(host_traces, "signs_at", lambda _address: None)
    with WrongServer("silent") as server:
        _, text = doctor(server.address)
    words = (
        "pid 42 `train.py` of ada is stopped by a signal (SIGSTOP), and may be the job: `kill -CONT 42` lets it go on"
    )
    assert f"{words} -> let it go on, unless somebody has stopped it on purpose" in one_line(text)


@pytest.mark.parametrize("port", [None, 9333])
def test_a_job_that_a_signal_has_stopped_needs_no_server(doctor, monkeypatch, port):
    """It may have one: also where its port was asked for, which answers nobody."""
    job = HostJob(pid=42, name="train.py", framework="JAX", stopped=True)
    monkeypatch.setattr(diagnosis, "find_job", lambda but_for: job)
    _, text = doctor(port=port)

    assert "1. pid 42 `train.py` is stopped by a signal (SIGSTOP) -> `kill -CONT 42` lets it go on" in one_line(text)

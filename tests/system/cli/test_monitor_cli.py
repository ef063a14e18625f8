"""`tpumon` at levels 1 and 2, as its users run it, against a fake TPU node."""

import json
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest

from fakes.run import CONTROL, Tpumon, each, environment, tpumon
from fakes.tpu_node import (
    GARBAGE,
    LEVEL_2,
    NO_MONITOR,
    OLDER_LEVEL_2,
    Answer,
    Fail,
    Figures,
    Hang,
    Raw,
    TpuNode,
    WrongServer,
    closed_port,
)

FULL = Answer(text=LEVEL_2, figures=Figures())
QUICK = ("--duration-ms", "50")
ONCE = (*QUICK, "--num-queries", "1")

FIELDS = {
    "schema", "worker", "address", "time_unix_s", "window_s", "took_s", "interval_s", "source", "simulated",
    "device_type", "cores", "mxu_utilization_ratio", "mxu_method", "idle_ratio", "duty_cycle_ratio",
    "flops_utilization_ratio", "hbm_bandwidth_utilization_ratio", "step_time_s", "step_source", "infeed_ratio",
    "step_parts_s", "per_core", "hbm_used_bytes", "hbm_total_bytes", "devices", "errors",
}  # fmt: skip


def about(result, address):
    """The lines on stderr that tell what is wrong with one target; the last one, a summary, is not one of them."""
    return [line for line in result.messages if address in line and "never answered" not in line]


def reasons(sample):
    return [error["reason"] for error in sample["errors"]]


# --- what a node was told is what is printed


def test_level_2_as_json_lines_has_the_figures_that_the_node_was_told():
    """Percent become ratios, milliseconds seconds; type and cores are the text's; nothing is rounded."""
    began = time.time()
    with TpuNode(FULL) as node:
        result = tpumon("--level", "2", "--service-addr", node.address, *ONCE, "--output", "jsonl").ended(0)
        (call,) = node.of("Monitor")
    (sample,) = result.samples
    assert set(sample) >= FIELDS
    assert {
        name: sample[name] for name in ("schema", "address", "source", "simulated", "device_type", "cores", "errors")
    } == {
        "schema": 1,
        "address": node.address,
        "source": "monitor",
        "simulated": False,
        "device_type": "TPU v2",
        "cores": 8,
        "errors": [],
    }
    assert began - 1 < sample["time_unix_s"] < time.time()
    assert sample["window_s"] == 0.05
    assert 0.05 <= sample["took_s"] < 30
    assert sample["mxu_utilization_ratio"] == pytest.approx(0.4253125, rel=1e-12)
    assert sample["idle_ratio"] == pytest.approx(0.081236, rel=1e-12)
    step = sample["step_time_s"]
    assert [step["avg"], step["min"], step["max"]] == pytest.approx([0.0908125, 0.08977, 0.09224], rel=1e-12)
    assert sample["infeed_ratio"] == pytest.approx({"avg": 0.155, "min": 0.1526, "max": 0.16}, rel=1e-12)
    assert (sample["mxu_method"], sample["step_source"]) == ("server", "server")
    for name in (
        "flops_utilization_ratio",
        "hbm_bandwidth_utilization_ratio",
        "step_parts_s",
        "hbm_used_bytes",
        "hbm_total_bytes",
    ):
        assert sample[name] is None, name
    assert call.fields == {"duration_ms": 50, "monitoring_level": 2, "timestamp": True}
    assert 8 < call.time_remaining < 300


def test_text_is_printed_as_the_node_sent_it():
    """Both spellings of the old tool pass through untouched, an empty line after each; text is what a pipe gets."""
    script = [Answer(text=LEVEL_2.rstrip("\n"), figures=Figures()), Answer(text=OLDER_LEVEL_2)]
    with TpuNode(script) as node:
        result = tpumon("--service-addr", node.address, *QUICK, "--num-queries", "2").ended(0)
    assert result.out == f"{LEVEL_2}\n{OLDER_LEVEL_2}\n"


# --- hostile answers


def test_nothing_that_a_node_sends_controls_the_terminal():
    """Escape sequences, C1 controls, carriage returns and bells are gone from text, JSON and error messages."""
    evil = LEVEL_2.replace("TPU v2", "TPU\x1b[2J\x1b]0;owned\x07 v2\x9b31m\x08\x00\r")
    broken = Fail(code=grpc.StatusCode.INTERNAL, details="\x1b[31mred\x9bm\nsecond line\r\x07")
    with TpuNode(Answer(text=evil)) as node, TpuNode(broken) as failing:
        addresses = f"{node.address},{failing.address}"
        text, lines = each(
            [
                ["--service-addr", addresses, *ONCE, "--num-tracing-attempts", "1", "--output", output]
                for output in ("text", "jsonl")
            ]
        )
    assert "Number of TPU cores: 8" in text.ended(0).out
    assert "TPU type: TPU" in text.out
    (line,) = [line for line in text.messages if "red" in line]
    assert "second line" in line
    answered = next(s for s in lines.ended(0).samples if s["source"])
    assert not CONTROL.search(json.dumps(answered, ensure_ascii=False))
    assert answered["cores"] == 8
    assert answered["mxu_utilization_ratio"] == pytest.approx(0.107)


def test_a_reply_that_is_no_message_is_malformed():
    """Random bytes, a message cut short, text that is no UTF-8: one reason, one line, and nobody answered."""
    cut = Raw(reply=Answer(figures=Figures()).reply(2)[:-3])
    with TpuNode(GARBAGE) as garbage, TpuNode(cut) as short, TpuNode(Answer(text=b"TPU type: \xff\xfe")) as latin:
        addresses = [garbage.address, short.address, latin.address]
        lines, text = each(
            [
                ["--service-addr", ",".join(addresses), *ONCE, "--num-tracing-attempts", "1", "--output", output]
                for output in ("jsonl", "text")
            ]
        )
    assert [reasons(s) for s in lines.ended(3).samples] == [["malformed"]] * 3
    assert {s["source"] for s in lines.samples} == {None}
    assert text.ended(3).out == ""
    for address in addresses:
        assert len(about(text, address)) == 1, text


def test_an_answer_of_monitor_is_four_megabytes_at_most():
    """What is larger is no answer to trust; up to there the figures are those beside the text."""
    for size, rc in ((3_000_000, 0), (5_000_000, 3)):
        with TpuNode(Answer(text=LEVEL_2 + "x" * size, figures=Figures())) as node:
            (sample,) = tpumon("--service-addr", node.address, *ONCE, "--output", "jsonl").ended(rc).samples
        if rc:
            assert sample["errors"][0]["reason"] == "too-large"
        else:
            assert sample["mxu_utilization_ratio"] == pytest.approx(0.4253125)


def test_what_is_no_grpc_server_is_named_in_one_line():
    """An HTTP server, an SSH server, one that hangs up: unavailable or not a profiler, never a crash."""
    with WrongServer("HTTP") as web, WrongServer("SSH") as ssh, WrongServer("close") as closing:
        servers = (web, ssh, closing)
        command = ["--service-addr", ",".join(s.address for s in servers), *ONCE, "--num-tracing-attempts", "1"]
        lines, text = each([[*command, "--output", output] for output in ("jsonl", "text")])
        assert all(server.connections for server in servers)
    assert len(lines.ended(3).samples) == 3
    assert all(reasons(s)[0] in ("unavailable", "not-a-profiler") for s in lines.samples)
    assert text.ended(3).out == ""
    for server in servers:
        assert len(about(text, server.address)) == 1, text


# --- servers without Monitor


def test_a_server_that_is_no_profiler_is_told_and_left_alone():
    """A run ends at once, after one call; one line says what it is not."""
    with TpuNode(profiler=False) as other:
        query = ["--service-addr", other.address, *QUICK, "--num-queries", "50", "--output"]
        text, lines = each([[*query, "text"], [*query, "jsonl"]])
    assert {reasons(s)[0] for s in lines.ended(3).samples} == {"not-a-profiler"}
    (line,) = about(text.ended(3), other.address)
    assert "not a profiler" in line
    assert text.out == ""


def test_without_monitor_figures_come_from_traces():
    """A profiler that has no Monitor is asked for traces, and that is said; what they do not hold is null."""
    with TpuNode(NO_MONITOR) as jax:
        result = tpumon("--service-addr", jax.address, *ONCE, "--output", "jsonl").ended(0)
        assert len(jax.of("Monitor")) == 1
        probe, trace = jax.of("Profile")
    assert (probe.fields["repository_root"], trace.fields["repository_root"]) == ("/dev/null", "/dev/null")
    assert 8 < (probe.time_remaining or 0) < 300
    assert (trace.time_remaining or 0) > 30
    assert [s["source"] for s in result.samples] == ["trace"]
    assert result.samples[0]["mxu_utilization_ratio"] is None
    (line,) = result.messages
    assert "short traces of the job (its profiler has no Monitor RPC)" in line


# --- pace, retries, recovery


def test_a_node_that_goes_and_returns_is_monitored_again():
    """Without a number of queries failures end nothing: figures return when the node does, and Ctrl-C ends it."""
    with TpuNode(FULL) as node:
        port = node.port
        command = ["--service-addr", node.address, *QUICK, "--num-tracing-attempts", "1", "--output", "jsonl"]
        monitor = Tpumon(*command)
        with monitor:
            monitor.wait_for(lambda: '"source":"monitor"' in monitor.out)
            node.stop()
            monitor.wait_for(lambda: '"unavailable"' in monitor.out)
            seen = len(monitor.out)
            with TpuNode(Answer(figures=Figures(mxu=77.0)), port=port) as back:
                monitor.wait_for(lambda: "0.77" in monitor.out[seen:])
                assert back.of("Monitor")
            result = monitor.signal(signal.SIGINT).end()
    assert result.rc == 130


def test_one_worker_down_and_one_slow_leave_the_others_alone():
    """The good one has all its answers before the slow one's first; the dead one's queries count; some answered: 0."""
    gate = threading.Event()
    down = f"127.0.0.1:{closed_port()}"
    command = [*QUICK, "--num-queries", "3", "--num-tracing-attempts", "1", "--output", "jsonl"]
    with TpuNode(FULL) as good, TpuNode(Answer(text=OLDER_LEVEL_2, when=gate)) as slow:
        command += ["--service-addr", f"{down},{slow.address}", "--service-addr", good.address]
        with Tpumon(*command) as monitor:
            monitor.wait_for(lambda: monitor.out.count('"TPU v2"') == 3)
            assert "TPU v3" not in monitor.out
            gate.set()
            result = monitor.end().ended(0)
    by_address = {}
    for sample in result.samples:
        by_address.setdefault(sample["address"], []).append(sample)
    assert {address: len(s) for address, s in by_address.items()} == {down: 3, slow.address: 3, good.address: 3}
    for sample in by_address[down]:
        assert reasons(sample) == ["unavailable"]
        assert (sample["source"], sample["mxu_utilization_ratio"], sample["idle_ratio"]) == (None, None, None)
    assert [s["device_type"] for s in by_address[slow.address]] == ["TPU v3"] * 3
    assert len({s["worker"] for s in result.samples}) == 3


def test_nobody_answers_is_exit_status_3_with_a_line_for_each():
    """Closed ports: the address, that it cannot be reached, and 3."""
    addresses = [f"127.0.0.1:{closed_port()}" for _ in range(2)]
    command = ["--service-addr", ",".join(addresses), *ONCE, "--num-tracing-attempts", "1", "--output", "text"]
    result = tpumon(*command).ended(3)
    assert result.out == ""
    for address in addresses:
        assert len(about(result, address)) == 1, result
    assert len(result.messages) <= 3


# --- the end


@pytest.mark.parametrize(
    ("number", "rc"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda v: str(int(v))
)
def test_a_signal_ends_it_with_the_shells_status(number, rc):
    """At once, also while a node does not answer, without a traceback; what was printed stays whole."""
    with TpuNode([FULL, Hang()]) as node, Tpumon("--service-addr", node.address, *QUICK) as monitor:
        monitor.wait_for(lambda: monitor.out == LEVEL_2 + "\n")
        node.wait_for(lambda: len(node.of("Monitor")) == 2)
        result = monitor.signal(number).end(timeout_s=20)
    assert result.rc == rc, result
    assert result.out == LEVEL_2 + "\n"


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_a_reader_that_goes_away_ends_it_with_0(output):
    """`tpumon | head -1`."""
    with TpuNode(FULL) as node, Tpumon("--service-addr", node.address, *QUICK, "--output", output, head=1) as monitor:
        result = monitor.end(timeout_s=20).ended(0)
    assert result.out
    assert result.messages == []


def test_a_reader_of_the_help_that_goes_away_ends_it_with_0():
    with Tpumon("--help", head=1) as helping:
        result = helping.end(timeout_s=20)
    assert (result.rc, result.messages) == (0, [])


def test_an_interrupt_while_it_is_still_loading_is_as_quiet(tmp_path):
    """Ctrl-C in the first tenths of a second, before the libraries are loaded: 130 and no traceback."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_IMPORT)
    result = tpumon("--service-addr", f"127.0.0.1:{closed_port()}", *ONCE, env={"PYTHONPATH": str(tmp_path)})
    assert (result.rc, result.said) == (130, "")


INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


def test_without_a_stdout_it_ends_like_anyone(tmp_path):
    """`tpumon >&-`, as some service managers start programs: no traceback."""
    with TpuNode(FULL) as node:
        command = f"{sys.executable} -m tpumon --service-addr {node.address} {' '.join(ONCE)} >&-"
        ended = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False
        )
    assert ended.returncode in (0, 1)
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) <= 1


# --- where to look


def test_a_proxy_in_the_environment_is_for_the_web_unless_asked_for():
    """http_proxy and its kin are ignored; with --use-proxy the call goes through the proxy."""
    with TpuNode(FULL) as node, WrongServer("HTTP") as proxy:
        env = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY"), f"http://{proxy.address}")
        tpumon("--service-addr", node.address, *ONCE, env=env).ended(0)
        assert proxy.connections == 0
        command = ["--service-addr", node.address, *ONCE, "--num-tracing-attempts", "1", "--use-proxy"]
        tpumon(*command, env=env).ended(3)
        assert f"CONNECT {node.address}".encode() in proxy.received


def test_without_a_target_this_host_is_searched():
    """Nothing there: with a number of queries 3, else waiting; both with the line to add. Then a job comes up."""
    port = closed_port()
    here = ("--level", "2", "--port", str(port))  # at the usual ports others' jobs may run
    hints = (f"jax.profiler.start_server({port})", "tpumon --simulate v5e-8")
    result = tpumon(*here, *ONCE).ended(3)
    assert result.out == ""
    for hint in hints:
        assert hint in result.err
    with Tpumon(*here, *QUICK, "--output", "text") as monitor:
        monitor.wait_for(lambda: all(hint in monitor.err for hint in ("WAITING", hints[0])))
        assert monitor.running
        with TpuNode(FULL, port=port) as node:
            found = tpumon(*here, *ONCE).ended(0)
            assert LEVEL_2 in found.out
            monitor.wait_for(lambda: LEVEL_2 in monitor.out)
            assert {call.fields["duration_ms"] for call in node.of("Monitor")} <= {0, 1, 50}
        result = monitor.signal(signal.SIGINT).end()
    assert result.rc == 130


# --- options


# --- old command lines


def test_an_old_command_line_does_what_it_did():
    """The old header with its counter from 0, a blank line and the text, as often as asked."""
    with TpuNode(FULL) as node:
        result = tpumon(
            "--monitoring_level=2", f"--service_addr={node.address}", "--num_queries=2", "--duration_ms=40"
        ).ended(0)
        asked = [(c.fields["monitoring_level"], c.fields["duration_ms"]) for c in node.of("Monitor")]
    assert asked == [(2, 40), (2, 40)]
    headers = [f"Cloud TPU Monitoring Results (Sample {i}):" for i in range(2)]
    assert result.out == "".join(f"{header}\n\n{LEVEL_2}\n" for header in headers)


def test_deprecated_flags_are_accepted_with_a_note():
    """With one dash, too; a note on stderr for each that does nothing any more."""
    with TpuNode(FULL) as node:
        base = ["-monitoring_level=2", f"-service_addr={node.address}", "-num_queries", "1", "-duration_ms=40"]
        nothing = ["--include_dataset_ops=false", "--nodisplay_timestamp"]
        result = tpumon(*base, *nothing, "--tpu=my-tpu", "--tpu_zone=us-central1-b", "--gcp_project=mine").ended(0)
    assert LEVEL_2 in result.out
    for flag in ("include_dataset_ops", "display_timestamp"):
        assert [line for line in result.messages if flag in line], result
    (line,) = [line for line in result.messages if "--tpu" in line.replace("_zone", "")]
    assert "service" in line


def test_a_list_of_workers_is_asked_worker_by_worker():
    """--workers_list, with the spaces of its help text, asks every worker itself."""
    with TpuNode(FULL) as first, TpuNode(FULL) as second:
        workers = f"{first.address}, {second.address}"
        result = tpumon("--level", "2", "--workers_list", workers, *ONCE, "--output", "jsonl").ended(0)
        assert (len(first.of("Monitor")), len(second.of("Monitor"))) == (1, 1)
    assert {s["address"] for s in result.samples} == {first.address, second.address}

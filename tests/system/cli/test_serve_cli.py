"""`tpumon serve`, `--listen`, `--export` and `--from`, as their users run them, against a fake TPU node."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from fakes.run import Tpumon, environment, tpumon
from fakes.tpu_node import LEVEL_2, Answer, Figures, TpuNode
from support import free_port, wait_until
from support.deploy import manifest

FULL = Answer(text=LEVEL_2, figures=Figures())
QUICK = ("--duration-ms", "50", "--interval", "0.1")
LISTEN = ("--listen", "127.0.0.1:0")


def get(url):
    """Status and body of a page."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def base_of(command):
    """Where a running tpumon is to be scraped, as it says itself."""
    command.wait_for(lambda: "listening on" in command.err)
    return re.search(r"listening on (http://\S+)/metrics", command.err)[1]


def series(page):
    """The samples of a page, by name and labels."""
    return dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))


@pytest.fixture
def node():
    with TpuNode(FULL) as node:
        yield node


def test_serve_exports_what_the_node_says_and_ends_as_services_do(node):
    """Figures are on the page under the worker's name, stdout stays empty, SIGTERM ends it with 0."""
    with Tpumon("serve", "--service-addr", node.address, *LISTEN, *QUICK) as command:
        base = base_of(command)
        wait_until(lambda: get(f"{base}/-/ready")[0] == 200, 60, "ready")
        shown = series(get(f"{base}/metrics")[1])
        mxu = next(value for name, value in shown.items() if name.startswith("tpu_mxu_utilization_ratio"))
        assert float(mxu) == pytest.approx(Figures().mxu / 100)
        assert any(name.startswith("tpumon_target_up") and value == "1.0" for name, value in shown.items())
        result = command.signal(signal.SIGTERM).end(10).ended(0)
    assert result.out == ""


def test_a_port_that_is_taken_is_one_line_that_names_it(node):
    """Exit status 2, before anything is asked of the worker."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = tpumon("serve", "--service-addr", node.address, "--listen", address).ended(2)
    (message,) = result.messages
    assert address in message
    assert node.calls == []


def test_several_outputs_at_once(node, tmp_path):
    """Text on stdout, an endpoint, and files beside them, all of the same samples."""
    lines, table = tmp_path / "samples.jsonl", tmp_path / "samples.csv"
    exports = ("--export", f"jsonl={lines}", "--export", f"csv={table}")
    with Tpumon("--service-addr", node.address, *LISTEN, *exports, *QUICK, "--output", "text") as command:
        base = base_of(command)
        wait_until(lambda: "tpu_mxu_utilization_ratio{" in get(f"{base}/metrics")[1], 60, "figures")
        command.wait_for(lambda: command.out.count("Timestamp") >= 2)
        command.signal(signal.SIGINT).end(10).ended(130)
    assert all(json.loads(line)["source"] == "monitor" for line in lines.read_text().splitlines())
    header, first, *_ = table.read_text().splitlines()
    assert len(header.split(",")) == len(first.split(","))


def test_a_disk_that_is_full_costs_no_other_output(node):
    """One line says so; stdout goes on."""
    with Tpumon("--service-addr", node.address, "--export", "jsonl=/dev/full", *QUICK, "--output", "jsonl") as command:
        command.wait_for(lambda: command.out.count("\n") >= 5)
        result = command.signal(signal.SIGINT).end(10).ended(130)
    assert len([line for line in result.messages if "jsonl: cannot write" in line]) == 1


def test_a_second_watcher_puts_no_second_sampler_on_the_job(node):
    """`--from` shows the samples of a running exporter and asks the worker nothing."""
    with Tpumon("serve", "--service-addr", node.address, *LISTEN, *QUICK) as exporter:
        base = base_of(exporter)
        with Tpumon("--from", base, "--output", "jsonl") as watcher:
            watcher.wait_for(lambda: watcher.out.count("\n") >= 3)
            samples = watcher.signal(signal.SIGINT).end(10).ended(130).samples
        exporter.signal(signal.SIGTERM).end(10).ended(0)
    assert {sample["address"] for sample in samples} == {node.address}
    assert samples[-1]["mxu_utilization_ratio"] == pytest.approx(Figures().mxu / 100)
    assert samples[-1]["source"] == "monitor"


def test_a_node_without_a_job_has_no_worker_that_is_down():
    """The DaemonSet's command line on an idle node waits for a job."""
    (container,) = manifest("daemonset")["spec"]["template"]["spec"]["containers"]
    port = str(free_port())
    arguments = " ".join(container["args"]).replace("0.0.0.0:10466", "127.0.0.1:0").replace("9999", port).split()
    with Tpumon(*arguments) as command:
        base = base_of(command)

        def shown():
            return series(get(f"{base}/metrics")[1])

        wait_until(
            lambda: {"tpumon_waiting", "tpumon_target_up"} & {name.split("{")[0] for name in shown()}, 30, "a look"
        )
        assert shown()["tpumon_waiting"] == "1.0"
        assert not [name for name in shown() if name.startswith("tpumon_target")]


def test_a_stdout_that_nobody_reads_stops_no_exporter(node, tmp_path):
    """`tpumon --listen ... | less`: the pipe is full, and the endpoint goes on."""
    for folder in ("home", "run"):
        (tmp_path / folder).mkdir()
    command = [sys.executable, "-m", "tpumon", "--service-addr", node.address, *LISTEN, *QUICK, "--output", "jsonl"]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as stuck:
        fcntl.fcntl(stuck.stdout, fcntl.F_SETPIPE_SZ, 4096)
        base = re.search(r"listening on (http://\S+)/metrics", stuck.stderr.readline())[1]

        def answered():
            shown = series(get(f"{base}/metrics")[1])
            return next((float(v) for name, v in shown.items() if name.startswith("tpumon_samples_total")), 0)

        wait_until(lambda: answered() > 30, 60, "more samples exported than a pipe of 4096 bytes holds")
        stuck.send_signal(signal.SIGTERM)
        assert stuck.wait(60) == 143

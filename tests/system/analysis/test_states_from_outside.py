"""What a view says of states, since when, and before: seen on a terminal, on stdout and in exit statuses only."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import sys
import time
import urllib.request
from contextlib import ExitStack

import pytest

from fakes.run import Tpumon, each, environment, tpumon
from fakes.tpu_node import BUSY_STEP, LEVEL_2, Answer, Figures, TpuNode, Trace, closed_port
from support import require, wait_until
from support.terminal import Tmux

pytestmark = pytest.mark.real

QUICK = ("--duration-ms", "100", "--interval", "0.3", "--no-runtime-metrics")
LONG = "gke-cluster-of-some-team-us-central2-b-nodepool-of-the-training-job-w-{:03}"


def told(*, infeed=0.0, mxu=42.5):
    """A node's answer, in percent, at once."""
    return Answer(text=LEVEL_2, figures=Figures(infeed=(infeed,) * 3, mxu=mxu), after_s=0)


@pytest.fixture
def node():
    """Starts a node that follows a script."""
    with ExitStack() as stack:
        yield lambda *steps, **more: stack.enter_context(TpuNode(*([steps] if steps else []), **more))


@pytest.fixture
def view(tmp_path):
    """Starts tpumon in tmux."""
    require(shutil.which("tmux"), "tmux")
    for name in ("home", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    variables = environment(tmp_path) | {"TZ": "UTC"}
    with ExitStack() as stack:

        def start(*arguments, columns=100, lines=40):
            command = [sys.executable, "-m", "tpumon", *arguments]
            size = {"columns": columns, "lines": lines}
            return stack.enter_context(Tmux(command, environment=variables, cwd=tmp_path, **size))

        yield start


def row_of(window, node):
    """A worker's line on the list: its mark comes first. One worker of this host has the host's name alone."""
    names = (f":{node.port} ", f" {socket.gethostname()} ")
    lines = (line for name in names for line in window.lines if name in line and "·" not in line)
    return next(lines, "").lstrip(" ▌▸>")


def since(window, word):
    """The time after `WORD since` on the screen; None if it is not there."""
    found = re.search(rf"\b{word}\b[^\n:]*? since (\d\d:\d\d:\d\d)", window.text)
    return found and found[1]


def seconds(begin_unix_s, end_unix_s):
    """All times between, as views write them."""
    return {time.strftime("%H:%M:%S", time.gmtime(second)) for second in range(int(begin_unix_s), int(end_unix_s) + 1)}


def asked(node, times):
    """Waits until a node was asked so often."""
    node.wait_for(lambda: len(node.of("Monitor")) >= times)


def listed(directory, workers, slice_name="s"):
    """A targets file of addresses by name."""
    path = directory / "targets.json"
    groups = [{"targets": [a], "labels": {"worker": name, "slice": slice_name}} for name, a in workers.items()]
    path.write_text(json.dumps(groups))
    return str(path)


def test_a_view_that_attaches_late_is_right_at_once_and_when_the_exporter_goes(node, view):
    """Since when somebody is critical or down, and graphs, are the exporter's; its end is nobody's end."""
    sick, dying = node(told(infeed=50)), node(told())
    begun_s = time.time()
    workers = ("--service-addr", f"{sick.address},{dying.address}", "--num-tracing-attempts", "1")
    with Tpumon("serve", *workers, "--listen", "127.0.0.1:0", *QUICK) as exporter:
        exporter.wait_for(lambda: "listening on" in exporter.err)
        asked(dying, 5)
        dying.stop()
        died_s = time.time()
        asked(sick, len(sick.of("Monitor")) + 16)

        window = view("--from", re.search(r"listening on (http://\S+)/metrics", exporter.err)[1])
        window.wait_for(lambda: since(window, "DOWN") and row_of(window, sick)[:1] == "X")
        right = {
            "down since": since(window, "DOWN") in seconds(died_s - 1, died_s + 2),
            "graph of one that is down": "MXU  42.5% – 42.5%" in window.text,
            "it had figures": "no figures now" in window.text,
        }
        window.send("Down", "Down").wait_for(lambda: since(window, "critical"))
        right["critical since"] = since(window, "critical") in seconds(begun_s, died_s + 2)
        exporter.signal(signal.SIGTERM).end().ended(0)
    window.wait_for("EXPORTER DOWN")
    right["exporter gone"] = "STALE" in row_of(window, sick)
    assert all(right.values()), right


def test_who_answers_without_activity_is_neither_down_nor_never_answered(node, view):
    """Long steps, compile pauses: the trace holds no event."""
    idle = node(device=True, captures=Trace(empty=True))
    target = ("--service-addr", idle.address, "--no-runtime-metrics", "--duration-ms", "50")
    result = tpumon(*target, "--num-queries", "1", "--output", "text").ended(0)
    assert "never answered" not in result.err
    window = view(*target, "--interval", "0.3", "--max-duty", "1").wait_for("the trace holds no event")
    window.wait_for("NO ACTIVITY")
    assert "DOWN" not in window.text


def test_a_host_that_is_paused_did_not_fail_to_answer(node, tmp_path):
    """`--num-queries 1` during `tpumon pause`."""
    here = {"XDG_RUNTIME_DIR": str(tmp_path), "TPUMON_PAUSE_DIR": str(tmp_path)}
    tpumon("pause", "60", env=here).ended(0)
    result = tpumon("--service-addr", node(told()).address, "--num-queries", "1", *QUICK, env=here).ended(0)
    assert "paused by" in result.err
    assert "never answered" not in result.err


def test_an_idle_tpu_looks_idle(view):
    """Its runtime metrics are there; no profiler's figure is."""
    window = view("--simulate", "v5e-4", "--scenario", "idle", "--duration-ms", "200")
    window.wait_for(lambda: "the trace holds no event" in window.text and re.search(r"HBM +0", window.text))
    picture = window.text
    assert re.search(r"NO ACTIVITY.*\n(.*\n)* N NO ACTIVITY .*since", picture), picture
    assert re.search(r"TPU idle +n/a  nothing ran", picture)


def test_since_when_counts_through_a_capture_and_to_critical(node, view):
    """A gap is no new beginning, nor is another severity; both changes are listed."""
    worker = node(*[told(infeed=10)] * 9, BUSY_STEP, *[told(infeed=10)] * 6, told(infeed=50))
    window = view("--service-addr", worker.address, *QUICK)
    window.wait_for(lambda: since(window, "warning"))
    first, gone_s = since(window, "warning"), time.time()
    window.wait_for("BUSY").wait_for(lambda: since(window, "warning") and time.time() > gone_s + 2)
    wrong = {"after a capture": since(window, "warning") == first}
    window.wait_for(lambda: since(window, "critical"))
    wrong["when critical"] = f"since {first}" in window.text
    window.send("e")
    changes = r"critical, was warning.*(\n.*)*capture ended.*(\n.*)*capture began.*(\n.*)*warning, was ok"
    with contextlib.suppress(pytest.fail.Exception):
        window.wait_for(lambda: re.search(changes, window.text), 5)
    wrong["changes"] = bool(re.search(changes, window.text))
    assert all(wrong.values()), wrong


def test_one_sample_makes_nobody_ok():
    """Three must agree before a straggler is one."""
    simulated = ("--simulate", "v5e-16", "--scenario", "straggler", "--duration-ms", "200")
    (line,) = tpumon(*simulated, "--num-queries", "1", "--fleet-summary", "--output", "jsonl").ended(0).samples
    assert "ok" not in json.dumps(line)


def test_who_cannot_keep_up_says_so_and_calls_nobody_stale():
    """16 workers at intervals that no machine keeps."""
    hurry = ("--simulate", "v5e-64", "--duration-ms", "20", "--interval", "0.001")
    with Tpumon("serve", *hurry, "--listen", "127.0.0.1:0") as exporter:
        exporter.wait_for(lambda: "listening on" in exporter.err)
        url = re.search(r"listening on (http://\S+/metrics)", exporter.err)[1]

        def page():
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read().decode()

        wait_until(lambda: page().count("\ntpumon_samples_total{") == 16, 30, "a sample of each")
        exporter.wait_for(lambda: "cannot keep up: raise --interval" in exporter.err, 20)
        wait_until(lambda: page().count("\ntpu_worker_info{") == 16, 10, "current figures of each")


@pytest.mark.parametrize("samples", [400, 700])
def test_a_graph_holds_all_samples_of_its_span_and_says_their_range(node, view, samples):
    """The first one was the least: no column rounds it away, no later one displaces it."""
    worker = node(told(mxu=5), *[told(mxu=mxu) for _ in range(samples) for mxu in (60, 30)])
    window = view("--service-addr", worker.address, *QUICK, "--duration-ms", "5", "--interval", "0.005")
    asked(worker, samples)
    (said,) = re.findall(r"  MXU  (\S+ – \S+%),", window.text)
    assert said == "5.0% – 60.0%"


def test_mistakes_on_the_command_line_are_named():
    """With what was meant."""
    simulated = ("--simulate", "v5e-4", "--num-queries", "1", "--duration-ms", "50")
    said = {
        ("--level",): "'--level' requires an argument (see tpumon --help)",
        ("--infeed-limits", "5,20", *simulated): "for percent, write 5%,20%",
        ("10.0.0.2:9999",): "to watch a worker: tpumon --service-addr 10.0.0.2:9999",
    }
    results = each(list(said))
    wrong = {result.command: result.said for result, words in zip(results, said.values(), strict=True)
             if result.rc != 2 or words not in result.err}  # fmt: skip
    assert not wrong


def test_an_exporter_needs_no_scheme():
    """`--from HOST:PORT` is http."""
    with Tpumon("--from", f"127.0.0.1:{closed_port()}", "--output", "jsonl") as command:
        command.wait_for(lambda: "WAITING" in command.err)


def test_a_list_of_the_equally_bad_stays_and_has_room_for_figures(node, view, tmp_path):
    """Rows stay by name however their figures change places; names give way; slow and dead have marks of their own."""
    nodes = [node(*[told(infeed=40 + number / 5)] * 8, told(infeed=41 - number / 5)) for number in range(4)]
    workers = {LONG.format(number): made.address for number, made in enumerate(nodes)}
    dead = {LONG.format(9): f"127.0.0.1:{closed_port()}"}
    window = view("--targets", listed(tmp_path, workers | dead), *QUICK, columns=200)

    def rows():
        return re.findall(r"^ *[▌▸>]? *(\S) +\S*00(\d) ", "\n".join(window.lines[2:7]), re.MULTILINE)

    window.wait_for(lambda: [mark for mark, _ in rows()][1:] == ["X"] * 4)
    seen = []
    for number in range(8, 32):
        asked(nodes[0], number)
        seen.append(rows())
    orders = {"".join(name for _, name in shown) for shown in seen if [mark for mark, _ in shown][1:] == ["X"] * 4}
    wrong = {"order": len(orders) == 1, "room": window.lines[1].index("MXU") < 40, "mark": seen[-1][0][0] == "D"}
    assert all(wrong.values()), f"{wrong} {orders}"


def test_words_have_one_meaning_and_messages_leave_the_keys(node, view):
    """At 80x24, within the first ten seconds."""
    window = view("--service-addr", node(device=True).address, "--no-runtime-metrics", columns=80, lines=24)
    window.wait_for(lambda: "A step:" in window.text and "no Monitor RPC" in window.text)
    lines = window.lines
    (parts,) = (line for line in lines if "A step:" in line)
    wrong = {
        "keys": "q quit" in lines[-1],
        "time": re.search(r"LIVE +last \d\d:\d\d:\d\d", lines[0]),
        "idle": "idle" not in parts,
        "freeze": "p freeze" in lines[-1],
    }
    window.send("p").wait_for(lambda: "LIVE" not in window.lines[0])
    wrong["frozen"] = "FROZEN" in window.lines[0]
    assert all(wrong.values()), f"{wrong}\n{window.text}"

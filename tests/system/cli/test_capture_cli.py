"""`tpumon --level 0` and `tpumon --logdir`, as its users run it, against a fake profiler server."""

import itertools
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.protobuf import decode, plane, xspace
from fakes.run import Tpumon, each, environment, tpumon
from fakes.tpu_node import BUSY_STEP, Fail, Raw, TpuNode, Trace, closed_port

EVENTS = [("jit_train", i * 10**9, 10**9) for i in range(5)]
TRACE = xspace(plane("/device:TPU:0", [("XLA Ops", EVENTS)]), plane("/host:CPU", [("python", EVENTS)]))
WINDOW = ("--duration-ms", "60")
ONE_TRY = ("--num-tracing-attempts", "1")


def files(logdir):
    """Everything in a log directory that is no directory."""
    return sorted(str(path.relative_to(logdir)) for path in Path(logdir).rglob("*") if not path.is_dir())


def profile_name(node):
    return node.address.replace(":", "_") + ".xplane.pb"


def the_line(result, words):
    """The one line on stderr with these words."""
    lines = [line for line in result.messages if words in line]
    assert len(lines) == 1, (words, result)
    return lines[0]


# --- a profile


def test_a_trace_is_saved_as_it_came_where_tensorboard_looks(tmp_path):
    """Byte for byte at LOGDIR/plugins/profile/SESSION/HOST_PORT.xplane.pb; the end says where and how to open it."""
    with TpuNode(captures=Trace(xspace=TRACE), device=True) as node:
        result = tpumon("--level", "0", "--service-addr", node.address, "--logdir", str(tmp_path), *WINDOW).ended(0)
        profiles = node.of("Profile")
        assert len(node.of("GetSnapshot")) <= 1
    (saved,) = files(tmp_path)
    assert re.fullmatch(rf"plugins/profile/\d{{4}}(_\d\d){{5}}/{re.escape(profile_name(node))}", saved)
    assert (tmp_path / saved).read_bytes() == TRACE
    assert all(part in result.out for part in saved.rsplit("/", 1)), "directory and file"
    assert re.search(rf"(xprof|tensorboard).*{re.escape(str(tmp_path))}", result.out)
    assert "Starting to trace for 60 ms. Remaining attempt(s): 2" in result.said

    probe, capture = (call.fields for call in profiles)
    assert (probe["repository_root"], probe["emit_xspace"], probe["opts"]["duration_ms"]) == ("/dev/null", True, 1)
    assert (probe["opts"]["host_tracer_level"], probe["opts"]["python_tracer_level"]) == (0, 0)
    assert (capture["duration_ms"], capture["opts"]["duration_ms"]) == (60, 60)
    assert capture["emit_xspace"]
    assert capture["opts"]["enable_hlo_proto"]
    assert capture["opts"]["device_tracer_level"] == 1
    assert capture["opts"]["version"] > 0  # 0 would make the server choose
    assert capture["repository_root"]
    assert probe["session_id"] != capture["session_id"]
    assert probe["session_id"]
    assert capture["session_id"]
    assert all(8 < call.time_remaining < 300 for call in profiles)


def test_host_events_are_asked_for_where_they_are_safe(tmp_path):
    """Newest servers: level 2. Others, which may hang: none, and a line says what is missing and how to have it."""
    with TpuNode() as new, TpuNode(generation="2025") as unproved, TpuNode(generation="2025") as overridden:
        base = ["--logdir", str(tmp_path), *WINDOW, *ONE_TRY, "--service-addr"]
        safe, unsafe, asked = each(
            [
                [*base, new.address],
                [*base, unproved.address],
                [*base, overridden.address, "--host-tracer-level", "3"],
            ]
        )
        levels = [[c.fields["opts"]["host_tracer_level"] for c in n.captures] for n in (new, unproved, overridden)]
        probed = [c.fields["opts"]["host_tracer_level"] for n in (unproved, overridden) for c in n.of("Profile")[:1]]
    assert levels == [[2], [0], [3]]
    assert probed == [0, 0]
    safe.ended(0)
    asked.ended(0)
    assert "--host-tracer-level" in unsafe.ended(1).err  # nothing but host events was there to be traced
    assert "--host-tracer-level" not in safe.err
    assert {Path(name).name for name in files(tmp_path)} == {profile_name(new), profile_name(overridden)}


def test_an_old_server_writes_the_file_itself(tmp_path):
    """It refuses the probe; with a directory that both see the profile is there, otherwise one line says why not."""
    with (
        TpuNode(generation="old", device=True) as node,
        TpuNode(generation="old", device=True, captures=Trace(writes=False)) as elsewhere,
    ):
        shared, apart = tmp_path / "shared", tmp_path / "apart"
        worked, missed = each(
            [
                ["--service-addr", node.address, "--logdir", str(shared), *WINDOW, *ONE_TRY],
                ["--service-addr", elsewhere.address, "--logdir", str(apart), *WINDOW, *ONE_TRY],
            ]
        )
        captures = [*node.captures, *elsewhere.captures]
    worked.ended(0)
    (saved,) = files(shared)
    assert re.fullmatch(rf"plugins/profile/[^/]+/{re.escape(profile_name(node))}", saved)
    assert b"/device:TPU:0" in decode((shared / saved).read_bytes())[1][0]
    assert all(part in worked.out for part in saved.rsplit("/", 1)), "directory and file"
    assert len(captures) == 2
    assert all(str(tmp_path) in call.fields["repository_root"] for call in captures)
    line = the_line(missed.ended(1), "--logdir")
    assert elsewhere.address in line
    assert files(apart) == []


def test_workers_begin_at_the_same_moment(tmp_path):
    """Two that answer share start time and session; the third is down: 1, its name, and the others' files stay."""
    down = f"127.0.0.1:{closed_port()}"
    with TpuNode(device=True) as first, TpuNode(device=True) as second:
        addresses = f"{first.address},{down},{second.address}"
        result = tpumon("--service-addr", addresses, "--logdir", str(tmp_path), *WINDOW, *ONE_TRY).ended(1)
        requests = [call.fields for node in (first, second) for call in node.captures]
    assert len(requests) == 2
    starts = {request["opts"]["start_timestamp_ns"] for request in requests}
    assert len(starts) == 1
    assert starts.pop() > 1.6e18
    saved = [Path(name) for name in files(tmp_path)]
    assert {path.name for path in saved} == {profile_name(first), profile_name(second)}
    assert len({path.parent for path in saved}) == 1
    assert down in result.err
    assert first.address not in result.err


def test_an_old_command_line_takes_a_profile_of_each_worker(tmp_path):
    """Old spellings, no level; --workers_list without a master; a duration of 0 is a second."""
    with TpuNode(device=True) as first, TpuNode(device=True) as second:
        result = tpumon(
            f"--workers_list={first.address},{second.address}",
            f"--logdir={tmp_path}",
            "--duration_ms=0",
            "--num_tracing_attempts=2",
            "--host_tracer_level=2",
            "--include_dataset_ops=true",
        ).ended(0)
        opts = [call.fields["opts"] for node in (first, second) for call in node.captures]
    assert [(o["duration_ms"], o["host_tracer_level"]) for o in opts] == [(1000, 2)] * 2
    assert len(files(tmp_path)) == 2
    assert "Starting to trace for 1000 ms. Remaining attempt(s): 1" in result.said


# --- trying again


def test_an_empty_trace_is_tried_again_in_the_words_that_users_know(tmp_path):
    """Two of two empty: 1, no file, the tip. One of three empty: the second is saved."""
    empty = Trace(empty=True)
    with TpuNode(captures=empty, device=True) as never, TpuNode(captures=[empty, Trace()], device=True) as later:
        failed, worked = each(
            [
                [
                    "--service-addr",
                    never.address,
                    "--logdir",
                    str(tmp_path / "a"),
                    *WINDOW,
                    "--num-tracing-attempts",
                    "2",
                ],
                ["--service-addr", later.address, "--logdir", str(tmp_path / "b"), *WINDOW],
            ]
        )
        assert (len(never.captures), len(later.captures)) == (2, 2)
        ids = [call.fields["session_id"] for call in later.of("Profile")]
    assert len(set(ids)) == len(ids)
    said = " ".join(failed.ended(1).said.split())
    at = -1
    for words in (
        "Starting to trace for 60 ms. Remaining attempt(s): 1",
        "No trace event is collected. Automatically retrying.",
        "Starting to trace for 60 ms. Remaining attempt(s): 0",
        "No trace event is collected after 2 attempt(s). Perhaps, you want to try again (with more attempts?).",
        "Tip: increase number of attempts with --num_tracing_attempts.",
    ):
        assert said.find(words) > at, (words, failed)
        at = said.find(words)
    assert files(tmp_path / "a") == []
    assert worked.ended(0).said.count("No trace event is collected. Automatically retrying.") == 1
    assert [Path(name).name for name in files(tmp_path / "b")] == [profile_name(later)]


def test_a_busy_profiler_is_yielded_to(tmp_path):
    """Someone else's session: pauses that grow, then the profile; if it never ends, a line that says so, and 1."""
    script = [BUSY_STEP, BUSY_STEP, Trace()]
    with TpuNode(captures=script, device=True) as node, TpuNode(continuous=True, device=True) as taken:
        worked, failed = each(
            [
                ["--service-addr", node.address, "--logdir", str(tmp_path / "a"), *WINDOW],
                [
                    "--service-addr",
                    taken.address,
                    "--logdir",
                    str(tmp_path / "b"),
                    *WINDOW,
                    "--num-tracing-attempts",
                    "2",
                ],
            ]
        )
        at = [call.at for call in node.captures]
        assert not taken.of("Terminate")
    worked.ended(0)
    pauses = [after - before for before, after in itertools.pairwise(at)]
    assert len(pauses) == 2
    assert pauses[0] > 0.1
    assert pauses[1] > 1.25 * pauses[0]
    assert "busy" in failed.ended(1).err
    assert taken.address in failed.err
    assert files(tmp_path / "b") == []


def test_a_node_that_comes_back_is_tried_again(tmp_path):
    """UNAVAILABLE once: the next try saves the profile."""
    with TpuNode(captures=[Fail(), Trace()], device=True) as node:
        tpumon("--service-addr", node.address, "--logdir", str(tmp_path), *WINDOW).ended(0)
        assert len(node.captures) == 2
    assert len(files(tmp_path)) == 1


# --- what goes wrong


def test_an_answer_that_is_no_trace_is_not_saved(tmp_path):
    """Cut short, random bytes, a reply that is no message, another gRPC server: one line each, 1, no file."""
    scripts = [Trace(xspace=TRACE[:-20]), Trace(xspace=b"\xff" * 100), Raw(reply=b"\x42\xff\xff\xff\x7fno")]
    with (
        TpuNode(captures=scripts[0], device=True) as cut,
        TpuNode(captures=scripts[1], device=True) as noise,
        TpuNode(captures=scripts[2], device=True) as garbage,
        TpuNode(profiler=False) as other,
    ):
        nodes = (cut, noise, garbage, other)
        results = each(
            [["--service-addr", node.address, "--logdir", str(tmp_path), *WINDOW, *ONE_TRY] for node in nodes]
        )
    for result in results:
        result.ended(1)
        the_line(result, "no profile of")
    assert other.address in the_line(results[3], "not a profiler")
    assert files(tmp_path) == []


def test_a_log_directory_that_cannot_be_written_is_one_line(tmp_path):
    """A file, a directory that nobody can make, a bucket without TensorFlow; no job is troubled for nothing."""
    file = tmp_path / "file"
    file.write_text("mine")
    stub = tmp_path / "stub"
    stub.mkdir()
    (stub / "tensorflow.py").write_text("raise ImportError('not installed here')\n")
    with TpuNode(device=True) as node:
        base = ["--service-addr", node.address, *WINDOW, "--logdir"]
        is_file, nowhere, bucket = each(
            [[*base, str(file)], [*base, "/proc/nowhere"], [*base, "gs://bucket/dir"]], env={"PYTHONPATH": str(stub)}
        )
        assert node.captures == []
    for result, where in ((is_file, str(file)), (nowhere, "/proc/nowhere")):
        assert where in the_line(result.ended(1), "cannot write")
    assert bucket.rc in (1, 2), bucket
    assert "gs://" in the_line(bucket, "[tensorflow]")
    assert file.read_text() == "mine"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB."""
    where = tmp_path / "disk"
    where.mkdir()
    mounted = (
        os.getuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", where], capture_output=True, check=False
        ).returncode
    )
    if not mounted:
        pytest.skip("only root may mount a small file system")
    yield where
    subprocess.run(["umount", where], check=True)


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, small_disk):
    """No space: which path, why, 1, and no part of a file."""
    large = xspace(plane("/host:CPU", [("python", [("step" + "x" * 200_000, 0, 1)])]))
    with TpuNode(captures=Trace(xspace=large), device=True) as node:
        result = tpumon("--service-addr", node.address, "--logdir", str(small_disk), *WINDOW, *ONE_TRY).ended(1)
    assert str(small_disk) in the_line(result, "No space left")
    assert files(small_disk) == []


def test_an_interrupt_while_tracing_leaves_nothing_behind(tmp_path):
    """Ctrl-C: 130 at once, no file, and the server's session is over as well."""
    with (
        TpuNode(device=True) as node,
        Tpumon("--service-addr", node.address, "--logdir", str(tmp_path), "--duration-ms", "30000") as capture,
    ):
        node.wait_for(lambda: bool(node.captures))
        assert capture.signal(signal.SIGINT).end(timeout_s=20).rc == 130
        node.wait_for(lambda: node.captures[0].ended is not None, timeout_s=10)
    assert files(tmp_path) == []


def test_progress_is_drawn_on_a_terminal(tmp_path):
    """With a terminal as stderr a bar is drawn and erased; in a pipe, as in all other tests here, stderr is plain."""
    home = tmp_path / "home"
    home.mkdir()
    controller, terminal = pty.openpty()
    with TpuNode(device=True) as node:
        command = ["--service-addr", node.address, "--logdir", str(tmp_path / "logs"), "--duration-ms", "500"]
        process = subprocess.Popen(
            [sys.executable, "-m", "tpumon", *command],
            cwd=home,
            env=environment(tmp_path) | {"COLUMNS": "80"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
        )
        os.close(terminal)
        drawn = b""
        try:
            while data := os.read(controller, 4096):
                drawn += data
        except OSError:  # how Linux says that the terminal's other side is closed
            pass
        out, _ = process.communicate(timeout=30)
    os.close(controller)
    assert process.returncode == 0, drawn
    assert b"\x1b[" in drawn
    assert b"tracing" in drawn
    assert b"\x1b" not in out

"""The command as a process: signals, streams, environment."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.run import environment
from support import wait_until

SIMULATED = ["--level", "2", "--simulate", "v3-8", "--duration-ms", "50", "--interval", "0"]


@pytest.fixture
def run(tmp_path):
    """Runs tpumon to its end; more environment by name."""

    def run(*arguments, timeout_s=60, **variables):
        return subprocess.run(
            [sys.executable, "-m", "tpumon", *arguments],
            capture_output=True, text=True, timeout=timeout_s, cwd=tmp_path, env=environment(tmp_path) | variables,
        )  # fmt: skip

    (tmp_path / "home").mkdir()
    return run


def test_nohup_is_respected(tmp_path):
    """A SIGHUP that the process was started to ignore stays ignored; SIGTERM ends it."""
    (tmp_path / "home").mkdir()
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            ["nohup", sys.executable, "-m", "tpumon", *SIMULATED],
            stdout=file, stdin=subprocess.DEVNULL, cwd=tmp_path, env=environment(tmp_path),
        )  # fmt: skip
    try:
        wait_until(lambda: log.read_text().count("Timestamp"), 60, "no sample")
        process.send_signal(signal.SIGHUP)
        before = log.read_text().count("Timestamp")
        wait_until(lambda: log.read_text().count("Timestamp") > before + 2, 60, "it stopped")
        process.terminate()
        assert process.wait(60) == 143
    finally:
        process.kill()
        process.wait()


def test_why_that_timeout_ends_answers_and_has_the_status_of_the_signal(tmp_path):
    """What it knows by then."""
    (tmp_path / "home").mkdir()
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tpumon", "why", "--simulate", "v5e-8", "--num-queries", "99"],
            stdout=subprocess.PIPE, stderr=file, text=True, cwd=tmp_path, env=environment(tmp_path),
        )  # fmt: skip
    try:
        wait_until(lambda: re.search(r"[1-9]\d* of 99 samples", log.read_text()), 60, "no sample")
        process.terminate()
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 143
    assert re.match(r"(ok|unknown): Nothing ", out)


@pytest.fixture
def why_that_nobody_reads(tmp_path):
    """Starts `tpumon why` with a full pipe as stdout; returns the process and its stderr, once it has a sample.

    `code` runs before it.
    """
    (tmp_path / "home").mkdir()
    with contextlib.ExitStack() as stack:

        def start(code=""):
            log, (reading, writing) = tmp_path / "log", os.pipe()
            stack.callback(os.close, reading)
            os.set_blocking(writing, False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writing, bytes(4096))
            os.set_blocking(writing, True)
            run = f"{code}\nfrom tpumon.cli.process import main\nmain()"
            with log.open("w") as file:
                process = subprocess.Popen(
                    [sys.executable, "-c", run, "why", "--simulate", "v5e-8", "--num-queries", "99"],
                    stdout=writing, stderr=file, cwd=tmp_path, env=environment(tmp_path),
                )  # fmt: skip
            os.close(writing)
            stack.callback(process.wait)
            stack.callback(process.kill)
            wait_until(lambda: re.search(r"[1-9]\d* of 99 samples", log.read_text()), 60, "no sample")
            return process, log

        yield start


def test_why_that_timeout_ends_ends_though_nobody_reads_its_answer(why_that_nobody_reads):
    """The pipe is full."""
    process, _ = why_that_nobody_reads()
    process.terminate()
    assert process.wait(timeout=30) == 143


def test_a_second_sigterm_ends_why_at_once(why_that_nobody_reads):
    """However long it would wait for who reads its answer."""
    process, log = why_that_nobody_reads("from tpumon.cli import enough_samples\nenough_samples._PRINTED_IN_S = 600.0")
    process.terminate()
    wait_until(lambda: "this is what is known" in log.read_text(), 60, "it does not answer")
    process.terminate()
    assert process.wait(timeout=30) == 143


def test_a_full_disk_is_told_and_is_a_failure_in_the_end(tmp_path):
    """Not one sample could be written: one line, and exit status 1."""
    (tmp_path / "home").mkdir()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tpumon", *SIMULATED, "--num-queries", "3"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, cwd=tmp_path, env=environment(tmp_path),
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("cannot write samples: No space left on device") == 1
    assert "Traceback" not in done.stderr


def test_the_help_that_cannot_be_written_is_one_line(tmp_path):
    """An error of the system is told in its own words, not as a bug."""
    (tmp_path / "home").mkdir()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tpumon", "--help"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, cwd=tmp_path, env=environment(tmp_path),
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "tpumon: No space left on device\n"


def test_the_address_that_kubernetes_puts_there_is_no_port(run):
    """A service called tpumon makes TPUMON_PORT=tcp://...; that is not ours."""
    assert run("pause", "0", TPUMON_PORT="tcp://10.0.0.1:8466").returncode == 0


def test_what_is_typed_beats_the_environment(run):
    """--simulate wins over addresses that only the environment gives, and excludes typed ones."""
    options = [*SIMULATED, "--num-queries", "1"]
    assert run(*options, TPUMON_SERVICE_ADDR="10.0.0.1:1").returncode == 0
    assert run(*options, "--service-addr", "10.0.0.1:1").returncode == 2


def test_a_directory_that_cannot_be_used_is_told_before_anything_else(run):
    """At level 2, too, a bad --logdir is one line, and no server is asked."""
    done = run("--level", "2", "--service-addr", "127.0.0.1:1", "--logdir", "/proc/nowhere")
    assert done.returncode == 1
    assert "cannot write /proc/nowhere" in done.stderr


def test_ctrl_c_does_not_wait_for_a_thread_that_is_busy(tmp_path):
    """A trace that takes long to read, or a disk that does not answer, does not hold up the way out."""
    (tmp_path / "home").mkdir()
    program = (
        "import threading, time, sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from tpumon import __main__\n"
        "ThreadPoolExecutor(1).submit(time.sleep, 60)\n"
        f"sys.argv = ['tpumon', *{SIMULATED!r}]\n"
        "__main__.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment(tmp_path)
    ) as process:
        try:
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(60) == 130
        finally:
            process.kill()


def test_a_profile_taken_is_a_profile_analyzed(run, tmp_path):
    """`analyze` reads what level 0 saved: each worker, and all together; an unreadable file fails and hides nothing."""
    logdir = tmp_path / "log"
    assert run("--level", "0", "--simulate", "v5e-16", "--logdir", str(logdir), "--duration-ms", "300").returncode == 0
    done = run("analyze", str(logdir))
    assert done.returncode == 0
    assert done.stdout.count("TPU type: TPU v5 Lite") == 5
    assert "Worker: all 4 hosts" in done.stdout
    assert done.stdout.count("Simulated by tpumon") == 5

    (logdir / "broken.xplane.pb").write_bytes(b"no trace")
    session = next((logdir / "plugins" / "profile").iterdir())
    mixed = run("analyze", str(session), str(logdir / "broken.xplane.pb"), "--output", "json")
    assert mixed.returncode == 1
    assert [host["source"] for host in json.loads(mixed.stdout)["hosts"]] == ["file"] * 4 + [None]
    assert mixed.stderr.count("\n") == 1
    assert run("analyze", str(tmp_path / "nowhere")).returncode == 2


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("--output=", "text"), ("--output=jso", "jsonl"), ("--level=2 --output=te", "text"), ("--outp", "--output")],
)
@pytest.mark.parametrize("program", ["tpumon", "capture_tpu_profile"])
def test_bash_completes_options_with_an_equals_sign_and_by_the_old_name(program, typed, completed, tmp_path):
    """As bash parts what is typed, by the script that `completion bash` prints."""
    for name in ("tpumon", "capture_tpu_profile"):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m tpumon "$@"\n')
        (tmp_path / name).chmod(0o755)
    words = " ".join([program, *typed.replace("=", " = ").split()])
    script = (
        f'eval "$(tpumon completion bash)"; set -- $(complete -p {program}); COMP_WORDS=({words}); '
        'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "${@: -2:1}" "${COMP_WORDS[0]}"; echo "${COMPREPLY[*]}"'
    )
    places = environment(tmp_path) | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    found = subprocess.run(["bash", "--norc", "-c", script], env=places, capture_output=True, text=True, check=True)
    assert completed in found.stdout.split()

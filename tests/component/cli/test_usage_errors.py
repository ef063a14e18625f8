"""Command lines that cannot be obeyed: one line that says what could be, and exit status 2."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tpumon.cli import process
from tpumon.system import console

ADDRESS = "--service-addr 127.0.0.1:1"
EXPORTER = "--from http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (f"--level 0 {ADDRESS}", "--logdir"),
        (f"serve --level 0 {ADDRESS}", "--logdir"),
        (f"--monitoring_level=3 {ADDRESS}", "--monitoring-level"),
        ("--level 0 --logdir ~nobody-of-this-name/x", "nobody-of-this-name"),
        ("--level 2 --tpu my-tpu", "--zone"),
        (f"--simulate v5e-8 {ADDRESS}", "cannot be combined"),
        (f"--simulate v5e-8 {EXPORTER}", "--from"),
        (f"{EXPORTER} --level 0 --logdir x", "--from shows samples"),
        (f"{EXPORTER} --num-queries 1", "does not query workers"),
        (f"--export carrier-pigeon {ADDRESS}", "NAME=WHERE"),
        (f"--export pigeon=x {ADDRESS}", "prometheus"),
        (f"--export jsonl=- {ADDRESS}", "stdout is taken"),
        (f"--web-config= {ADDRESS}", "--web-config: it is empty"),
        ("--tpu=, --num-queries 1", "--tpu names no TPU"),
        (f"--web-config web.yml {ADDRESS}", "add --listen"),
        (f"--infeed-limits 0.2,0.1 {ADDRESS}", "smaller first"),
        (f"--fleet-summary {ADDRESS}", "jsonl"),
        (f"--output live {ADDRESS}", "not a terminal"),
        (f"--output xml {ADDRESS}", "jsonl"),
        ("--num-querys 3", "--num-queries"),
        (f"--num-queries -1 {ADDRESS}", "--num-queries"),
        (f"--duration-ms soon {ADDRESS}", "--duration-ms"),
        ("--duration-ms 0", "--duration-ms"),
        ("--interval inf", "--interval"),
        ("--max-duty 0", "--max-duty"),
        ("pause forever", "forever"),
    ],
)
def test_what_cannot_be_obeyed_is_said(words, hint, monkeypatch, capfd):
    """Nothing is on stdout, and nobody is asked."""
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    assert process._run(words.split()) == 2
    assert console.flush(10)
    said = capfd.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert hint in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("analyze closed", "closed: Permission denied"),
        ("once --from closed", "--from closed: Permission denied"),
        ("once --from list.json", "--from list.json: Permission denied"),
    ],
)
def test_what_may_not_be_read_is_not_said_to_be_empty(words, message, tmp_path, monkeypatch, said):
    """A directory of profiles or samples, and a list of exporters."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "closed").mkdir()
    (tmp_path / "list.json").write_text("[]")

    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for name in ("iterdir", "open"):
        monkeypatch.setattr(Path, name, refuse)
    assert process._run(words.split()) == 2
    assert said == [message]


@pytest.mark.parametrize(
    ("words", "status"),
    [("--tpu my-tpu", 2), (f"{ADDRESS} --num-tracing-attempts 1", 1), ("--targets none.json", 2), ("--port 1", 3)],
)
def test_a_profile_that_fails_leaves_nothing(words, status, tmp_path, monkeypatch):
    """Of the log directory, whether it was found wrong before a worker was asked, or after."""
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    assert process._run(f"--level 0 --logdir {tmp_path}/made {words}".split()) == status
    assert list(tmp_path.iterdir()) == []

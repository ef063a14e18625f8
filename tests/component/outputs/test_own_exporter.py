"""An exporter with an option of its own and a tick, written and installed as docs/exporting.md says."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Literal

import pytest

from fakes.run import tpumon
from tpumon.errors import UsageError
from tpumon.outputs import (
    Context,
    Export,
    OutputSettings,
    not_to_stdout,
    open_output,
    output_names,
    parse_export,
    parse_output,
    stdout_names,
    takes,
)
from tpumon.outputs import output as outputs

pytestmark = pytest.mark.slow

HEARTBEAT = '''
"""Counts samples and ticks."""

import json
import sys
from dataclasses import dataclass

from tpumon.outputs import Output, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatOptions:
    interval_s: float = 60.0
    label: str = "tpumon"


class Heartbeat(Output):
    def __init__(self, path, options):
        self.tick_s = options.interval_s
        self._path = path
        self._seen = {"label": options.label, "workers": [], "samples": 0, "ticks": 0}

    def on_update(self, update):
        if update.workers is not None:
            self._seen["workers"] = [target.worker for target in update.workers.targets]
        if update.sample is not None:
            self._seen["samples"] += 1

    def tick(self, now_unix_s):
        self._seen["ticks"] += 1

    def close(self):
        with open(self._path, "w") as file:
            json.dump(self._seen, file)


@takes(HeartbeatOptions)
def open_heartbeat(where, context, options):
    return Heartbeat(where, options)
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One of each kind."""

    count: int = 1
    ratio: float = 0.5
    on: bool = False
    text: str = ""
    mode: Literal["fast", "slow"] = "fast"
    interval_s: float | None = None

    def __post_init__(self):
        if self.count < 0:
            raise ValueError("count must not be negative")


@takes(Options)
def open_noted(where, context, options):
    """Returns what it got, instead of an output."""
    return where, context, options


def open_plain(where, context):
    """Has no options."""
    return where, context


open_noted_file = not_to_stdout(takes(Options)(lambda where, context, options: (where, context, options)))
open_plain_file = not_to_stdout(lambda where, context: (where, context))


@pytest.fixture
def installed(monkeypatch):
    """The exporters `noted` and `plain`, and no others."""
    points = EntryPoints(
        EntryPoint(name=name, value=f"{__name__}:open_{name}", group="tpumon.exporters") for name in ("plain", "noted")
    )
    monkeypatch.setattr(outputs, "entry_points", points.select)


def test_an_installed_exporter_runs_with_its_option_and_its_tick(tmp_path: Path) -> None:
    """A module and an entry point are all that it takes: `--export` finds it, and a wrong name lists it."""
    package = tmp_path / "package"
    (package / "heartbeat-1.0.dist-info").mkdir(parents=True)
    (package / "heartbeat.py").write_text(HEARTBEAT)
    (package / "heartbeat-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: heartbeat\nVersion: 1\n"
    )
    (package / "heartbeat-1.0.dist-info" / "entry_points.txt").write_text(
        "[tpumon.exporters]\nheartbeat = heartbeat:open_heartbeat\n"
    )

    def run(export):
        quick = ("--simulate", "v2-8", "--num-queries", "2", "--interval", "0.5", "--duration-ms", "100")
        return tpumon(*quick, "--output", "jsonl", "--export", export, env={"PYTHONPATH": str(package)})

    run(f"heartbeat[interval_s=0.02,label=job=a:b]={tmp_path}/beat[1],2=3:4").ended(0)
    seen = json.loads((tmp_path / "beat[1],2=3:4").read_text())
    assert seen["label"] == "job=a:b"
    assert len(seen["workers"]) == 1
    assert seen["samples"] == 2
    assert seen["ticks"] > 2

    wrong = run(f"heartbeat[interval_s=soon]={tmp_path}/beat").ended(2)
    assert "--export heartbeat: interval_s=soon: give a time, such as 15s" in wrong.err
    assert "there is no output 'hartbeat'; available: csv, fleet-summary, heartbeat" in run("hartbeat=x").ended(2).err


def test_options_have_the_types_of_their_fields(installed):
    """What is not given has its default."""
    context = Context(settings=OutputSettings(level=1))
    assert open_output("noted", "w", context) == ("w", context, Options())
    texts = {"count": "3", "ratio": "1e-3", "on": "true", "text": "a b", "mode": "slow", "interval_s": "2"}
    _, _, options = open_output("noted", "w", context, texts)
    assert options == Options(count=3, ratio=0.001, on=True, text="a b", mode="slow", interval_s=2.0)
    assert open_output("plain", "w", context) == ("w", context)


@pytest.mark.parametrize(
    ("name", "key", "text", "message"),
    [
        ("noted", "count", "1.5", "--export noted: count=1.5: give a whole number"),
        ("noted", "count", "-1", "--export noted: count must not be negative"),
        ("noted", "ratio", "nan", "--export noted: ratio=nan: give a number"),
        ("noted", "on", "yes", "--export noted: on=yes: give true or false"),
        ("noted", "mode", "idle", "--export noted: mode=idle: give one of fast, slow"),
        (
            *("noted", "cuont", "1"),
            "--export noted: there is no option 'cuont'; available: count, ratio, on, text, mode, interval_s",
        ),
        ("plain", "count", "1", "--export plain: this output has no options, so count cannot be set"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_says_what_would_do(installed, name, key, text, message):
    """In one line, before anything runs."""
    with pytest.raises(UsageError) as raised:
        open_output(name, "w", Context(), {key: text})
    assert str(raised.value) == message


@pytest.mark.parametrize("name", ["noted", "plain"])
def test_an_output_may_say_that_it_cannot_write_to_stdout(installed, monkeypatch, name):
    """With options of its own, and without."""
    assert stdout_names() == ["noted", "plain"]
    monkeypatch.setattr(sys.modules[__name__], f"open_{name}", globals()[f"open_{name}_file"])
    assert stdout_names() == [other for other in ("noted", "plain") if other != name]
    with pytest.raises(UsageError, match=f"{name}: choose one of auto, live, text"):
        parse_output(name)
    assert open_output(name, "w", Context())[0] == "w"


def test_names_come_from_the_entry_points(installed):
    """Of whatever is installed."""
    assert output_names() == ["noted", "plain"]


@pytest.mark.parametrize(
    ("text", "export"),
    [
        ("csv=a.csv", Export(name="csv", where="a.csv")),
        ("csv=[a],b=c;d:e", Export(name="csv", where="[a],b=c;d:e")),
        ("prometheus=[::1]:10466", Export(name="prometheus", where="[::1]:10466")),
        ("csv[]=a", Export(name="csv", where="a")),
        ("jsonl[a=1, b=c=d:[]=a[b=c]=d", Export(name="jsonl", where="a[b=c]=d", options={"a": "1", "b": "c=d:["})),
    ],
)
def test_options_stand_before_the_equals_sign_and_break_no_path(text, export):
    """WHERE is everything after it, as it ever was."""
    assert parse_export(text) == export


@pytest.mark.parametrize(
    "text", ["", "csv", "csv=", "=a.csv", "csv[a=1]", "csv[a=1=a", "csv[a]=b", "csv[=1]=b", "x[a=1,a=2]=b"]
)
def test_what_is_no_export_is_a_usage_error(text):
    """That shows the form."""
    with pytest.raises(UsageError, match="--export"):
        parse_export(text)

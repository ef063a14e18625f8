"""Names of files, hosts, operations and workers that would command a terminal: nothing that is printed holds them."""

from __future__ import annotations

import json
import unicodedata

import pytest

from fakes.tpu_node import TpuNode
from fakes.tpu_node import Trace as Answered
from support.captures import training, with_input, with_memory
from support.made_up import healthy
from support.samples import failed_sample
from tpumon.cli import process
from tpumon.proto.xplane_pb2 import XSpace
from tpumon.system import console

FORGED = "FORGED"
HOSTILE = (
    f"=cmd\x1b[2J\x1b]0;title\x07\x9b31m\x85\u202egnp\u200b\u2066\ufeff\x00\x07\x08\x7f\udcff\r{FORGED}\n{FORGED}\u2028"
)
IN_FILE_NAMES = HOSTILE.replace("\x00", "")
IN_PROTOBUF = IN_DOCUMENTS = HOSTILE.replace("\udcff", "")
START = 1_700_000_000.0
OTHER_THAN_TEXT = {"family", "device_time_source", "source", "reason", "mxu_method", "step_source", "schema"}


def made_hostile(value):
    """JSON with hostile words behind each text."""
    if isinstance(value, dict):
        return {name: one if name in OTHER_THAN_TEXT else made_hostile(one) for name, one in value.items()}
    if isinstance(value, list):
        return [made_hostile(one) for one in value]
    return value + IN_DOCUMENTS if isinstance(value, str) else value


def hostile_trace(traced, host):
    """A trace with hostile words behind all names of events and all texts."""
    space = XSpace.FromString(traced.bytes())
    del space.hostnames[:]
    if host:
        space.hostnames.append(host + IN_PROTOBUF)
    for said in (space.errors, space.warnings):
        said.append("said" + IN_PROTOBUF)
    for plane in space.planes:
        for metadata in plane.event_metadata.values():
            metadata.name += IN_PROTOBUF
            metadata.display_name += IN_PROTOBUF
            for stat in metadata.stats:
                if stat.WhichOneof("value") == "str_value":
                    stat.str_value += IN_PROTOBUF
    return space.SerializeToString()


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A directory of hostile name in a directory of hostile name, with traces and a recording."""
    top = tmp_path / f"top{IN_FILE_NAMES}"
    recording = top / "rec"
    recording.mkdir(parents=True)
    for name, traced, host in (
        ("a", training(), "a"), ("b", with_input(), ""), ("c", with_memory(), ""), ("d", training(), ""),
        ("e", training(slower=2), ""),
    ):  # fmt: skip
        (top / f"{name}{IN_FILE_NAMES}.xplane.pb").write_bytes(hostile_trace(traced, host))
    (top / f"bad{IN_FILE_NAMES}.xplane.pb").write_bytes(b"no trace")
    (top / f"packed{IN_FILE_NAMES}.xplane.pb").write_bytes(b"\x1f\x8b\x08 no trace")
    lines = []
    for at in range(40):
        samples = [healthy(number, START + 10 * at, interval_s=10, warnings=("odd",)) for number in range(8)]
        if at % 20 > 12:
            samples[3:5] = [failed_sample("w3", time_unix_s=START + 10 * at), failed_sample("w4", "refused", "no")]
        lines += [json.dumps(made_hostile(one.to_json())) for one in samples]
    lines += [lines[0].replace("w0", r"w0\udcff"), "no sample"]
    (recording / f"day{IN_FILE_NAMES}.jsonl").write_text("\n".join([*lines, ""]))
    (recording / f"night{IN_FILE_NAMES}.jsonl.gz").write_bytes(b"damaged")
    monkeypatch.chdir(tmp_path)
    return top


def printed(capfd, *arguments):
    process._run([str(one) for one in arguments])
    assert console.flush(10)
    return capfd.readouterr()


def assert_harmless(text, what):
    bad = {char for char in text if char not in "\n\t" and unicodedata.category(char) in {"Cc", "Cf", "Cs"}}
    assert not bad, (what, bad, next(line for line in text.split("\n") if bad & set(line)))
    forged = [line for line in text.splitlines() if line.startswith(FORGED)]
    assert not forged, (what, forged)


OF_TRACES = (
    ["analyze"],
    ["analyze", "--output", "json"],
    *(["report", "--section", "all", "--output", output] for output in ("text", "markdown", "json", "html")),
    ["report", "--section", "all", "--filter", HOSTILE, "--program", HOSTILE],
)
OF_RECORDINGS = (
    *([command, "--output", output] for command in ("once", "why") for output in ("text", "json")),
    *(["events", "--output", output] for output in ("text", "jsonl")),
    *(["--output", output] for output in ("text", "jsonl", "csv", "fleet-summary")),
    ["--output", "text", "--explain"],
    ["--level", "1", "--output", "text"],
)


@pytest.mark.parametrize("command", OF_TRACES, ids=range(len(OF_TRACES)))
def test_traces(hostile, capfd, command):
    """Their names, and all that they hold; of a directory, and of files."""
    files = [path for path in hostile.iterdir() if path.is_file()]
    for paths in ([hostile], files):
        out, err = printed(capfd, *command, *paths)
        assert_harmless(out, "stdout")
        assert_harmless(err, "stderr")
        assert "gnp" in out
        assert "packed" in err


@pytest.mark.parametrize("output", ["text", "markdown", "json", "html"])
def test_comparisons(hostile, capfd, output):
    """Of two profiles; the verdict is a message."""
    before = next(path for path in hostile.iterdir() if path.name.startswith("d"))
    given = ["--against", before, "--fail-above", "5%", "--output", output]
    out, err = printed(capfd, "report", *given, *(path for path in hostile.iterdir() if path.name.startswith("e")))
    assert_harmless(out, "stdout")
    assert_harmless(err, "stderr")
    assert "gnp" in out


@pytest.mark.parametrize("command", OF_RECORDINGS, ids="-".join)
def test_recordings(hostile, capfd, command):
    """Their names, the workers in them, and what these said."""
    out, err = printed(capfd, *command, "--from", hostile / "rec")
    assert_harmless(out, "stdout")
    assert_harmless(err, "stderr")
    assert "gnp" in out
    assert "no sample is left out" in err


def test_parquet(hostile, capfd):
    """The line that says where it is."""
    pytest.importorskip("pyarrow")
    out, err = printed(capfd, "export", hostile / "rec", "--to", hostile / f"x{IN_FILE_NAMES}.parquet")
    assert_harmless(out, "stdout")
    assert_harmless(err, "stderr")
    assert "gnp" in out, err


def test_captures(hostile, capfd):
    """The log directory, and what the profiler says of itself."""
    with TpuNode(captures=Answered(xspace=hostile_trace(training(), "a")), device=True) as node:
        logdir = hostile / f"logs{IN_FILE_NAMES}"
        given = ["--level", "0", "--service-addr", node.address, "--duration-ms", "60", "--num-tracing-attempts", "1"]
        out, err = printed(capfd, *given, "--logdir", logdir)
    assert_harmless(out, "stdout")
    assert_harmless(err, "stderr")
    assert "gnp" in out + err


WRONG = (
    ["analyze", HOSTILE],
    ["report", HOSTILE],
    ["report", "--section", HOSTILE, "."],
    ["report", "--output", HOSTILE, "."],
    [f"--{HOSTILE}"],
    [HOSTILE],
    ["once", HOSTILE],
    ["--output", HOSTILE],
    ["--output", f"jsonl[{HOSTILE}=1]"],
    ["--interval", HOSTILE],
    ["--from", f"http://{HOSTILE}"],
    ["--from", f"./{IN_FILE_NAMES}"],
    ["--from", "http://127.0.0.1:1", "--from-auth", IN_FILE_NAMES, "--output", "jsonl", "--num-queries", "1"],
    ["--service-addr", HOSTILE],
    ["--targets", f"./{IN_FILE_NAMES}", "--output", "jsonl", "--num-queries", "1"],
    ["--simulate", HOSTILE],
    ["--simulate", "v5e-8", "--scenario", HOSTILE],
    ["--simulate", "v5e-8", "--export", f"csv=./{IN_FILE_NAMES}/x"],
    ["--simulate", "v5e-8", "--export", f"textfile=./{IN_FILE_NAMES}"],
    ["--simulate", "v5e-8", "--export", f"{HOSTILE}=x"],
    ["--simulate", "v5e-8", "--record", f"/dev/null/{IN_FILE_NAMES}"],
    ["--level", "0", "--service-addr", "127.0.0.1:1", "--logdir", f"/dev/null/{IN_FILE_NAMES}"],
    ["serve", "--simulate", "v5e-8", "--listen", HOSTILE],
    ["serve", "--simulate", "v5e-8", "--web-config", f"./{IN_FILE_NAMES}"],
    ["export", f"./{IN_FILE_NAMES}", "--to", HOSTILE],
    ["pause", HOSTILE],
    ["simulate", HOSTILE],
    ["completion", HOSTILE],
)


@pytest.mark.parametrize("arguments", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said_harmlessly(hostile, capfd, arguments):
    """In one line that may quote what was typed."""
    out, err = printed(capfd, *arguments)
    assert_harmless(out, "stdout")
    assert_harmless(err, "stderr")
    assert err.startswith("tpumon: ")


def test_the_configuration(hostile, capfd, monkeypatch):
    """A file of hostile name with hostile values, shown and refused; so is what the environment gives."""
    file = hostile / f"config{IN_FILE_NAMES}.toml"
    file.write_text(f"logdir = {json.dumps(IN_PROTOBUF)}\n")
    monkeypatch.setenv("TPUMON_CONFIG", str(file))
    monkeypatch.setenv("TPUMON_SELECTOR", IN_FILE_NAMES)
    assert_harmless("".join(printed(capfd, "config")), "config")
    file.write_text(f"{json.dumps(IN_PROTOBUF)} = 1\n")
    assert_harmless("".join(printed(capfd, "config")), "unknown option")
    file.write_text(f"logdir = {IN_PROTOBUF}\n")
    assert_harmless("".join(printed(capfd, "config")), "no TOML")


def test_doctor(hostile, capfd, monkeypatch):
    """What it finds out about workers that somebody named."""
    with TpuNode(captures=Answered(xspace=hostile_trace(training(), "a")), device=True) as node:
        monkeypatch.setenv("TPU_WORKER_HOSTNAMES", IN_FILE_NAMES)
        for output in ("text", "json"):
            assert_harmless(
                "".join(printed(capfd, "doctor", "--service-addr", node.address, "--output", output)), output
            )

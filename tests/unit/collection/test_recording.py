"""Recordings: what is written is read again, whatever became of the files."""

from __future__ import annotations

import errno
import gzip
import json
import os
from itertools import pairwise

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from support.samples import failed_sample, sample
from support.wired import Wired, wired
from tpumon.cli.values import read_kept
from tpumon.collection import recording
from tpumon.collection.event_sources import ExportersSource, RecordingSource
from tpumon.collection.recording import Recording
from tpumon.errors import UsageError
from tpumon.model import Cause, Sample, Target, Workers
from tpumon.model.documents import encoded
from tpumon.system import console
from tpumon_exporters.record import Recorder, RecordOptions

START = 1_700_000_000.0
WORKERS = Workers(
    targets=(Target(worker="a", address="a:1", job="j", slice="s"), Target(worker="b", address="b:1", independent=True))
)


def packed_line(at):
    """A line of a recording; of two digits, all are equally long."""
    return json.dumps(sample("a", time_unix_s=START + at, took_s=0.0).to_json()).encode() + b"\n"


class Tape:
    """A recorder with a clock that is set."""

    def __init__(self, directory, **options):
        self.now = START
        self.directory = directory
        given = RecordOptions(**options)
        self.recorder = Wired(lambda _: Recorder(str(directory), given, clock=lambda: self.now, pace=lambda: self.now))

    def add(self, at, worker="a", **given):
        self.now = START + at
        self.recorder.add(sample(worker, time_unix_s=self.now, took_s=0.0, **given))
        return self

    def tick(self):
        self.recorder.tick(self.now)
        return self

    @property
    def files(self):
        return sorted(self.directory.iterdir())


@pytest.fixture
def recorded(tmp_path):
    return Tape(tmp_path / "rec")


def read(where, **given):
    said = []
    with console.shown_by(said.append, alone=False):
        moments = list(Recording(str(where)).moments(**given))
    return [moment.event for moment in moments], said


def finding(severity):
    """One finding."""
    return {"findings": (Cause(words="slow", finding="straggler", severity=severity),)}


def test_its_worst_moment_is_the_first_of_the_worst_severity(tmp_path):
    """As was judged when it was recorded; a worker that stays down is critical, one that has never answered is not."""
    lines = [
        failed_sample("a", "unavailable", "refused", time_unix_s=START),
        sample("a", time_unix_s=START + 10, took_s=1.0, **finding("info")),
        sample("a", time_unix_s=START + 20, took_s=1.0, **finding("warning")),
        sample("a", time_unix_s=START + 30, took_s=1.0, **finding("warning")),
        failed_sample("a", "busy", "in use", time_unix_s=START + 40),
        failed_sample("b", "unavailable", "refused", time_unix_s=START + 50),
        sample("b", time_unix_s=START + 60, took_s=1.0, **finding("critical")),
        failed_sample("a", "unavailable", "refused", time_unix_s=START + 70, took_s=2.0),
    ]
    for kept, worst in ((1, None), (2, None), (3, 21), (6, 21), (7, 61)):
        path = tmp_path / f"{kept}.jsonl"
        path.write_bytes(b"".join(json.dumps(each.to_json()).encode() + b"\n" for each in lines[:kept]))
        assert Recording(str(path)).worst_unix_s() == (None if worst is None else START + worst), kept
    path = tmp_path / "down.jsonl"
    for kept, worst in (((1, 7), None), ((1, 7, 1, 7), None), ((1, 7, 5, 7), 72), ((1, 7, 2, 6), 61), ((1, 7, 7), 72)):
        written = b"".join(encoded(lines[place].document()).encode() + b"\n" for place in kept)
        path.write_bytes(b"no sample\n" + written)
        assert Recording(str(path)).worst_unix_s() == (None if worst is None else START + worst), kept


def samples(where):
    return [event for event in read(where)[0] if isinstance(event, Sample)]


def times(where):
    return [round(event.time_unix_s - START, 3) for event in samples(where)]


def test_what_is_recorded_is_read_again(recorded):
    """Workers with their jobs and slices, samples with all fields, failed queries."""
    recorded.recorder.add(WORKERS)
    recorded.add(1, idle_ratio=0.25, warnings=("3 events dropped",))
    lost = failed_sample("b", "busy", time_unix_s=START + 2, took_s=0.0)
    recorded.recorder.add(lost)
    recorded.recorder.close()
    events, said = read(recorded.directory)
    assert said == []
    assert events[0] == WORKERS
    assert events[1].figures.idle_ratio == 0.25
    assert events[1].warnings[0].message == "3 events dropped"
    assert replace(events[2], job_kind=None) == lost
    assert Recording(str(recorded.directory)).span_unix_s() == (START, START + 2)


def test_each_tick_can_be_read_at_once(recorded):
    """Also by zcat, and if nothing ever ends the file: a killed process loses what came after its last tick."""
    recorded.add(1).tick().add(2).tick().add(3)
    assert times(recorded.directory) == [1, 2]
    (file,) = recorded.files
    assert recorded.recorder.tick_s <= 1
    data = file.read_bytes()
    file.write_bytes(data[:-20])
    assert times(recorded.directory) == [1]


def test_files_replace_each_other_and_the_oldest_go(tmp_path):
    """By size and by age; files that are no recordings stay."""
    recorded = Tape(tmp_path, keep_mb=1)
    (tmp_path / "mine.jsonl.gz").write_bytes(b"")
    recorded.recorder.add(WORKERS)
    for hour in range(60):
        recorded.add(hour * 3600.0, step_name=os.urandom(60_000).hex()[:30_000]).tick()
        recorded.add(hour * 3600.0 + 1, warnings=tuple(os.urandom(9000).hex() for _ in range(4))).tick()
    recorded.recorder.close()
    files = [file for file in recorded.files if file.name.startswith("tpumon-")]
    assert (tmp_path / "mine.jsonl.gz").exists()
    assert 8 < len(files) < 60
    assert sum(file.stat().st_size for file in files) <= 1.1e6
    (tmp_path / "mine.jsonl.gz").unlink()
    events, said = read(tmp_path)
    assert (events[0], said) == (WORKERS, [])
    assert events[-1].time_unix_s == START + 59 * 3600 + 1
    assert len({file.name for file in files}) == len(files)
    recorded = Tape(tmp_path, keep_s=60)
    recorded.add(60 * 3600.0).tick()
    assert len(recorded.files) == 2


def test_a_full_disk_loses_nothing_for_a_while_and_damages_nothing(recorded, monkeypatch):
    """Half a write is taken back; the next tick writes all."""
    recorded.add(1).tick().add(2)
    write, full = os.write, True

    def half(file, data):
        if not full:
            return write(file, data)
        if len(data) > 20:
            return write(file, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        recorded.tick()
    full = False
    recorded.add(3).tick()
    recorded.recorder.close()
    events, said = read(recorded.directory)
    assert [event.time_unix_s - START for event in events if isinstance(event, Sample)] == [1, 2, 3]
    assert said == []
    (file,) = recorded.files
    assert len(gzip.decompress(file.read_bytes()).splitlines()) == 3  # by any other program, too


def test_a_file_that_begins_on_a_full_disk_names_the_workers_later(recorded, monkeypatch):
    """It can be read without the others, too."""
    recorded.recorder.add(WORKERS)
    recorded.add(1).tick()

    def full(_file, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    for at in (4000, 4001):
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match="No space"):
                recorded.add(at).tick()
    recorded.add(4002).tick()
    recorded.recorder.close()
    events, _ = read(recorded.files[-1])
    assert events[0] == WORKERS
    assert times(recorded.files[-1]) == [4000, 4001, 4002]


@settings(max_examples=40)
@given(st.data())
def test_what_comes_before_damage_is_read(tmp_path_factory, data):
    """Flipped, lost or strange bytes anywhere: no error, and nothing that was not recorded."""
    directory = tmp_path_factory.mktemp("rec")
    recorded = Tape(directory)
    for at in range(0, 400, 10):
        recorded.add(at, idle_ratio=0.5).tick()
    recorded.recorder.close()
    (file,) = recorded.files
    whole = file.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    length = data.draw(st.integers(0, 40))
    file.write_bytes(whole[:place])
    before = times(directory)[:-7]  # but for the minute of the damage
    file.write_bytes(whole[:place] + data.draw(st.binary(max_size=40)) + whole[place + length :])
    found = times(directory)
    assert found == sorted(found)
    assert set(found) <= set(range(0, 400, 10))
    assert found[: len(before)] == before


def test_a_large_member_is_read_as_it_comes(tmp_path, monkeypatch):
    """As others pack a whole file; it is neither kept in memory nor left out."""
    monkeypatch.setattr(recording, "_LARGEST_MEMBER", 5000)
    monkeypatch.setattr(recording, "_PIECE_BYTES", 1000)
    lines = "".join(json.dumps(sample("w", time_unix_s=START + at).to_json()) + "\n" for at in range(300))
    (tmp_path / "day.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert times(tmp_path) == list(range(300))


def test_plain_lines_are_a_recording_too(tmp_path):
    """As `--output jsonl` writes them, gzipped or not, with lines of others between them; workers are those seen."""
    lines = [json.dumps(sample(worker, time_unix_s=START + at, took_s=0.0).to_json())
             for at, worker in enumerate("aba")]  # fmt: skip
    text = "\n".join([lines[0], "not json", '{"time_unix_s": 5, "fleet": {}}', lines[1], "", lines[2], lines[0][:50]])
    plain, packed = tmp_path / "s.jsonl", tmp_path / "s.jsonl.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    for file in (plain, packed):
        events, said = read(file)
        followed = [[target.worker for target in event.targets] for event in events if isinstance(event, Workers)]
        assert followed == [["a"], ["a", "b"]]
        assert [event.worker for event in events if isinstance(event, Sample)] == ["a", "b", "a"]
        assert said == [
            f"{file}: a line that is no sample is left out (JSON is malformed: invalid character (byte 4))",
            f"{file}: 2 such lines are left out",
        ]


@pytest.mark.parametrize(
    ("field", "value", "twice"), [("time_unix_s", 1e17, False), ("time_unix_s", 1e17, True), ("took_s", 1e17, False)]
)
def test_a_line_whose_time_no_calendar_has_is_left_out(field, value, twice, tmp_path):
    """Once the whole recording could not be shown for one such line."""
    lines = [json.dumps(sample("w", time_unix_s=START + at, took_s=0.0).to_json()) for at in range(2)]
    odd = json.dumps(sample("w", time_unix_s=START, took_s=0.0).to_json() | {field: value})
    if twice:  # the first one counts for who looks for it, the last one for who decodes
        odd = odd.replace("{", '{"time_unix_s": 1700000000.0, ', 1)
    file = tmp_path / "s.jsonl"
    file.write_text("\n".join([lines[0], odd, lines[1], ""]))
    events, said = read(file)
    assert [event.time_unix_s for event in events if isinstance(event, Sample)] == [START, START + 1]
    (line,) = said
    assert line.startswith(f"{file}: a line that is no sample is left out (Expected `float` <")
    assert Recording(str(file)).span_unix_s() == (START, START + 1)


def test_reading_may_begin_anywhere(tmp_path):
    """The workers are told first, whatever was before."""
    recorded = Tape(tmp_path)
    recorded.recorder.add(WORKERS)
    for at in range(0, 4 * 3600, 600):
        recorded.add(at).tick()
    recorded.recorder.close()
    assert len(recorded.files) == 4
    events, _ = read(tmp_path, begin_unix_s=START + 9000)
    assert events[0] == WORKERS
    found = [event.time_unix_s - START for event in events[1:]]
    assert found[0] == 9000
    assert all(later - earlier == 600 for earlier, later in pairwise(found))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "there is no such file or directory"),
        ("empty", "no .jsonl or .jsonl.gz in it"),
        ("pipe", "not a file or a directory"),
        ("logdir", "a profile, not samples: for tpumon analyze, or to judge it: tpumon why --from .*/logdir$"),
        ("logdir/plugins/profile/now", "a profile, not samples"),
        ("logdir/plugins/profile/now/h.xplane.pb", "a profile, not samples"),
    ],
)
def test_what_is_no_recording_is_said(tmp_path, name, message):
    """With what to give instead."""
    (tmp_path / "empty").mkdir()
    session = tmp_path / "logdir" / "plugins" / "profile" / "now"
    session.mkdir(parents=True)
    (session / "h.xplane.pb").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=message):
        Recording(str(tmp_path / name))


@pytest.mark.parametrize("whole", [True, False])
def test_what_others_packed_with_zstd_is_read(tmp_path, whole, said):
    """A file, or beside others in a directory; in one frame or in several."""
    pack = zstandard.ZstdCompressor().compress
    plain = b"".join(packed_line(at) for at in range(100))
    half = 50 * len(packed_line(10))
    packed = pack(plain) if whole else pack(plain[:half]) + pack(plain[half:])
    (tmp_path / "day.jsonl.zst").write_bytes(packed)
    (tmp_path / "night.jsonl").write_bytes(packed_line(200))
    times = [moment.time_unix_s for moment in Recording(str(tmp_path / "day.jsonl.zst")).moments()]
    assert times[1:] == [START + at for at in range(100)]
    assert Recording(str(tmp_path)).span_unix_s() == (START, START + 200)
    assert said == []


def test_a_damaged_zstd_file_is_read_up_to_the_damage(tmp_path, said):
    """Said once; a frame that was cut off, too."""
    pack = zstandard.ZstdCompressor().compress
    file = tmp_path / "day.jsonl.zst"
    file.write_bytes(pack(packed_line(1)) + b"no frame at all")
    assert [moment.time_unix_s for moment in Recording(str(file)).moments()][1:] == [START + 1]
    assert said == [f"{file}: damaged: what follows is left out"]
    file.write_bytes(pack(packed_line(1)) + pack(packed_line(2))[:-9])
    assert [moment.time_unix_s for moment in Recording(str(file)).moments()][1:] == [START + 1]


def test_a_recording_without_samples_is_said(tmp_path):
    """Not shown as a fleet without workers."""
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(UsageError, match="there are no samples in it; give what --record or --output jsonl wrote"):
        Recording(str(tmp_path)).span_unix_s()
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="there are no samples in it that can be read; give what --record or "):
        Recording(str(tmp_path)).span_unix_s()


def test_a_directory_that_cannot_be_written_is_said(tmp_path):
    """Before sampling starts."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--record .*file: "):
        wired("record", str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("7d,1GB", {"keep_s": "7d", "keep_mb": "1GB"}),
        ("90m", {"keep_s": "90m"}),
        ("500M", {"keep_mb": "500M"}),
        ("500 MB", {"keep_mb": "500 MB"}),
    ],
)
def test_what_is_kept_is_an_age_and_a_size(text, kept):
    """One of them leaves the other at its default."""
    assert read_kept(text) == kept


@pytest.mark.parametrize("text", ["7", "7d,8d", "1GB,2GB", "7d;1GB", "", "-1d"])
def test_a_wrong_limit_is_said(text):
    """With an example."""
    with pytest.raises(ValueError, match="such as 7d,1GB"):
        read_kept(text)


def test_from_tells_files_and_servers_apart(tmp_path):
    """HOST:PORT is a server; a path is not."""
    from tpumon.cli.resolve import source_from

    def source(where):
        return source_from(where)

    assert source("10.0.0.2:10466") == ExportersSource("http://10.0.0.2:10466")
    assert source("[fd00::2]:1") == ExportersSource("http://[fd00::2]:1")
    assert source("https://h") == ExportersSource("https://h")
    assert source(str(tmp_path)) == RecordingSource(str(tmp_path))
    assert source("day.jsonl.gz") == RecordingSource("day.jsonl.gz")

"""Recordings whose clock is wrong: no clock removes what is to be kept, and none makes files without end."""

from __future__ import annotations

import json
import os
import zlib
from contextlib import closing

import pytest

from support.samples import sample
from tpumon.analysis import Update
from tpumon.collection.event_sources import RecordingSource
from tpumon.collection.recording import Recording
from tpumon.model import Sample, Target, Workers
from tpumon.pipeline import FeedSettings, RecordedFeed
from tpumon_exporters.record import Recorder, RecordOptions

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
TRUE_S = 1_700_000_000.0
WORKERS = Workers(targets=(Target(worker="w", address="w:1"),))


class Machine:
    """A directory with recordings, and both clocks of a machine."""

    def __init__(self, directory):
        self.directory = directory
        self.passed_s = self.set_by_s = 0.0
        self.samples = 0

    def time(self):
        return TRUE_S + self.passed_s + self.set_by_s

    def monotonic(self):
        return self.passed_s

    def recorder(self, **options):
        recorder = Recorder(str(self.directory), RecordOptions(**options), clock=self.time, pace=self.monotonic)
        recorder.on_update(Update(time_unix_s=self.time(), workers=WORKERS))
        return recorder

    def sample(self, recorder, size=0):
        """A sample, numbered, with `size` bytes that cannot be packed."""
        self.samples += 1
        noise = tuple(os.urandom(50).hex() for _ in range(size // 50))
        taken = sample("w", time_unix_s=self.time(), took_s=0.0, step_name=f"{self.samples}", warnings=noise)
        recorder.on_update(Update(time_unix_s=self.time(), sample=taken))
        recorder.tick(self.time())

    def record(self, recorder, for_s, every_s=10 * MINUTE_S, size=0):
        end_s = self.passed_s + for_s
        while self.passed_s < end_s:
            self.sample(recorder, size)
            self.passed_s += every_s

    def run(self, for_s, **given):
        """A tpumon that starts, records for some time and ends."""
        with closing(self.recorder()) as recorder:
            self.record(recorder, for_s, **given)

    @property
    def files(self):
        return sorted(self.directory.glob("tpumon-*"))

    @property
    def kept(self):
        """The numbers of the samples that can be read."""
        moments = Recording(str(self.directory)).moments()
        return {int(moment.event.figures.step_name) for moment in moments if isinstance(moment.event, Sample)}


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_seven_days_are_kept(machine):
    """Not much more, and no less; also by a worker that is sampled every 50 minutes."""
    for every_s in (10 * MINUTE_S, 50 * MINUTE_S):
        machine.run(20 * DAY_S, every_s=every_s)
        last = machine.samples
        kept_s = (last - min(machine.kept)) * every_s
        assert 7 * DAY_S <= kept_s <= 7 * DAY_S + 4 * HOUR_S


@pytest.mark.parametrize("set_by_s", [8 * DAY_S, -8 * DAY_S, -TRUE_S])
@pytest.mark.parametrize("for_s", [1.0, 3 * HOUR_S])
@pytest.mark.parametrize("starts", [False, True])
def test_a_wrong_clock_removes_no_recording(machine, set_by_s, for_s, starts):
    """Set ahead or back, for a second or for hours, under a running tpumon or before it starts; then corrected."""
    machine.run(2 * DAY_S)
    machine.passed_s += MINUTE_S
    with closing(machine.recorder()) as recorder:
        if not starts:
            machine.record(recorder, 1.5 * HOUR_S)
        machine.set_by_s = set_by_s
        machine.record(recorder, for_s, every_s=min(for_s, 10 * MINUTE_S))
        machine.set_by_s = 0.0
        machine.record(recorder, 2 * DAY_S)
    assert machine.kept == set(range(1, machine.samples + 1))


def test_a_wrong_clock_that_ends_a_run_removes_no_recording(machine):
    """The last file is of the future; the next run has the right time."""
    machine.run(2 * DAY_S)
    machine.set_by_s = 8 * DAY_S
    machine.run(HOUR_S)
    machine.set_by_s = 0.0
    machine.run(2 * DAY_S)
    assert machine.kept == set(range(1, machine.samples + 1))


@pytest.mark.parametrize("times", ["of the backup", "of the restoring"])
def test_restored_recordings_are_kept(machine, times):
    """Whatever their file times are."""
    machine.run(2 * DAY_S)
    machine.passed_s += DAY_S
    time_s = 0.0 if times == "of the backup" else machine.time()
    for path in machine.files:
        os.utime(path, (time_s, time_s))
    machine.run(DAY_S)
    assert machine.kept == set(range(1, machine.samples + 1))


def test_a_suspended_machine_keeps_its_recordings(machine):
    """The wall clock goes on meanwhile, the monotonic one does not."""
    with closing(machine.recorder()) as recorder:
        machine.record(recorder, 2 * DAY_S)
        machine.set_by_s = 10 * DAY_S
        machine.record(recorder, 2 * DAY_S)
    assert machine.kept == set(range(1, machine.samples + 1))


def test_what_was_recorded_before_a_month_of_silence_goes_after_seven_days_more(machine):
    """Not at once, as nobody knows that the clock is right."""
    machine.run(DAY_S)
    before = machine.samples
    machine.passed_s += 30 * DAY_S
    machine.run(DAY_S)
    assert min(machine.kept) == 1
    machine.run(8 * DAY_S)
    assert min(machine.kept) > before


@pytest.mark.parametrize("set_by_s", [365 * DAY_S, -TRUE_S])
def test_the_oldest_go_first_whatever_the_clock_was(machine, set_by_s):
    """Beyond the size, and by age: what was written under a wrong clock takes its place among the others."""
    machine.set_by_s = set_by_s
    machine.run(12 * HOUR_S, size=12_000)
    machine.set_by_s = 0.0
    with closing(machine.recorder(keep_mb=1)) as recorder:
        machine.record(recorder, 12 * HOUR_S, size=12_000)
    kept = machine.kept
    assert kept == set(range(min(kept), machine.samples + 1))
    assert 72 < min(kept) < 120
    machine.run(9 * DAY_S)
    assert min(machine.kept) > 144
    assert not [path for path in machine.files if "2024" in path.name or "1970" in path.name]


def test_two_that_record_into_one_directory_keep_each_others_recordings(machine):
    """While the clock is ahead, too."""
    with closing(machine.recorder()) as one, closing(machine.recorder()) as other:
        for set_by_s in (0.0, 8 * DAY_S, 0.0):
            machine.set_by_s = set_by_s
            for _ in range(24):
                machine.record(one, HOUR_S)
                machine.passed_s -= 59 * MINUTE_S
                machine.record(other, HOUR_S)
    assert machine.kept == set(range(1, machine.samples + 1))


def test_a_clock_that_jumps_all_the_time_makes_few_files(machine):
    """One a minute at most; one that was wrong for a second makes none."""
    with closing(machine.recorder()) as recorder:
        for second in range(1800):
            machine.set_by_s = 8 * DAY_S * (second == 900)
            machine.record(recorder, 1.0, every_s=1.0)
        assert len(machine.files) == 1
        for second in range(1800):
            machine.set_by_s = 8 * DAY_S * (second % 3)
            machine.record(recorder, 1.0, every_s=1.0)
    assert len(machine.files) <= 32


def test_after_a_lasting_jump_a_file_begins(machine):
    """So that a file's name tells when its samples are of."""
    with closing(machine.recorder()) as recorder:
        machine.record(recorder, 60.0, every_s=10.0)
        machine.set_by_s = 8 * DAY_S
        machine.record(recorder, 600.0, every_s=10.0)
    assert len(machine.files) == 2


@pytest.mark.parametrize("damage", ["flipped", "lost", "strange"])
def test_a_damaged_file_is_read_up_to_the_minute_of_the_damage_and_the_others_whole(machine, damage, said):
    """A line says so, once."""
    machine.run(3 * HOUR_S, every_s=30.0)
    file = machine.files[1]
    whole = file.read_bytes()
    place = len(whole) // 2
    strange = {"flipped": bytes([whole[place] ^ 0xFF]), "lost": b"", "strange": b"\x1f\x8b\x08" * 50}[damage]
    file.write_bytes(whole[:place] + strange + whole[place + 1 :])
    moments = Recording(str(machine.directory)).moments()
    kept = [int(moment.event.figures.step_name) for moment in moments if isinstance(moment.event, Sample)]
    assert said == [f"{file}: damaged: what follows is left out"]
    lost = sorted(set(range(1, machine.samples + 1)) - set(kept))
    assert kept == sorted(kept)
    assert lost == list(range(lost[0], 241))  # the end of the second hour
    assert lost[0] - 121 >= _lines(whole[:place]) - 4  # a minute, and a line of workers


@pytest.mark.parametrize("cut", [1, 100, 2000])
def test_of_a_torn_file_a_minute_is_lost_at_most(machine, cut):
    """Nothing but what was cut off: samples are flushed as they are written. The other files are read whole."""
    machine.run(3 * HOUR_S, every_s=30.0)
    file = machine.files[1]
    file.write_bytes(file.read_bytes()[:-cut])
    lost = sorted(set(range(1, machine.samples + 1)) - machine.kept)
    assert lost == list(range(241 - len(lost), 241))
    assert len(lost) <= cut // 50 + 2


@pytest.mark.parametrize("set_by_s", [-HOUR_S, 0.0])
def test_a_worker_that_stops_is_stale_although_the_clock_of_its_recording_was_set_back(set_by_s, tmp_path):
    """The others are live, and nothing of theirs is a change; how long it is so, is time that passed."""
    lines = []
    for number in range(40):
        at_unix_s = TRUE_S + 10.0 * number + (set_by_s if number >= 20 else 0.0)
        there = ("w", "stops") if number < 20 else ("w",)
        lines += [json.dumps(sample(name, time_unix_s=at_unix_s, took_s=0.0).to_json()) for name in there]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    with RecordedFeed(FeedSettings(source=RecordingSource(str(file)))) as feed:
        changes = [change for update in feed.updates() for change in update.changes]
        status = feed.status()
    verdicts = {name: each.verdict for name, each in status.workers.items()}
    assert {name: verdict.status for name, verdict in verdicts.items()} == {"w": "ok", "stops": "stale"}
    assert [change.worker for change in changes] == ["stops"]
    assert status.time_unix_s - verdicts["w"].since_unix_s == pytest.approx(390.0, abs=10.0)  # an interval is lost
    assert 0 <= status.time_unix_s - verdicts["stops"].since_unix_s <= 200.0


def _lines(packed):
    """How many lines are in what is left of a file."""
    count, unpack = 0, zlib.decompressobj(zlib.MAX_WBITS | 16)
    while packed:
        count += unpack.decompress(packed).count(b"\n")
        packed = unpack.unused_data
        unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    return count

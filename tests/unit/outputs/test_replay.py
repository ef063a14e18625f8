"""A recording in the live view, and in a pipe."""

from __future__ import annotations

import re
import time

import pytest

from support.samples import failed_sample, sample
from support.wired import Wired
from tpumon.cli.commands import events, monitor, once, why
from tpumon.cli.enough_samples import Needs
from tpumon.cli.process import command_of
from tpumon.collection.event_sources import RecordingSource
from tpumon.collection.recording import Recording
from tpumon.errors import UsageError
from tpumon.model import Process, StepTimes, Target, Workers
from tpumon.outputs import Export
from tpumon.outputs.live import player
from tpumon.outputs.live.player import KEYS, Player
from tpumon.outputs.live.screens.screen import Reply
from tpumon.outputs.live.view_settings import DisplaySettings
from tpumon.pipeline import FeedSettings
from tpumon_exporters.record import Recorder

START = 1_700_000_000.0
NAMES = ("w0", "w1", "w2")
HOURS_S = 3 * 3600
FIRST, LAST = START + 1, START + HOURS_S - 120 + 1


@pytest.fixture(scope="module")
def tape(tmp_path_factory):
    """Three hours of three workers, a sample every two minutes; w0 is slow from 1:00 to 2:00."""
    directory = tmp_path_factory.mktemp("tape")
    recorder = Wired(lambda _: Recorder(str(directory), clock=lambda: START))
    recorder.add(Workers(targets=tuple(Target(worker=name, address=f"{name}:1") for name in NAMES)))
    for at in range(0, HOURS_S, 120):
        for name in NAMES:
            step_s = 0.2 if name == "w0" and 3600 <= at < 7200 else 0.1
            times = StepTimes(avg=step_s, min=step_s, max=step_s, count=5)
            recorder.add(
                sample(
                    name, time_unix_s=START + at, took_s=1.0, interval_s=120.0, step_time_s=times, step_source="steps"
                )
            )
        recorder.tick(START + at)
    recorder.close()
    return directory


@pytest.fixture(scope="module")
def eventless(tmp_path_factory):
    """Five minutes of three workers, a sample every 2 s; all of them wait more in the third minute."""
    directory = tmp_path_factory.mktemp("eventless")
    recorder = Wired(lambda _: Recorder(str(directory), clock=lambda: START))
    recorder.add(Workers(targets=tuple(Target(worker=name, address=f"{name}:1") for name in NAMES)))
    for at in range(0, 300, 2):
        for place, name in enumerate(NAMES):
            idle = 0.18 if 120 <= at < 180 else 0.02
            figures = {"step_time_s": StepTimes(avg=0.1, min=0.1, max=0.1, count=5), "idle_ratio": idle}
            began_unix_s = START + at + place / 10
            recorder.add(sample(name, time_unix_s=began_unix_s, took_s=0.1, interval_s=2.0, **figures))
        recorder.tick(START + at)
    recorder.close()
    return directory


@pytest.fixture(scope="module")
def restarts(tmp_path_factory):
    """An hour of eight workers of a slice; all of them restart after 40 minutes, one after the other, and at 50."""
    directory = tmp_path_factory.mktemp("restarts")
    recorder = Wired(lambda _: Recorder(str(directory), clock=lambda: START))
    names = [f"w{number}" for number in range(8)]
    recorder.add(Workers(targets=tuple(Target(worker=name, address=f"{name}:1", slice="a") for name in names)))
    for at in range(0, 3600, 20):
        for place, name in enumerate(names):
            process = Process(pid=1 + (at >= 2400) + (at >= 3000), user="u", command="train.py")
            began_unix_s = START + at + place / 10
            times = StepTimes(avg=0.1, min=0.1, max=0.1, count=5)
            recorder.add(
                sample(
                    name,
                    time_unix_s=began_unix_s,
                    took_s=0.1,
                    interval_s=20.0,
                    step_time_s=times,
                    process=process,
                    slice="a",
                )
            )
        recorder.tick(START + at)
    recorder.close()
    return directory


def changes_found(watching, key):
    """The moments that a key goes to until there are no more, and whether w0 was critical at each."""
    found = []
    for _ in range(20):
        watching.press(key)
        if "no change" in watching.picture and watching.at in {FIRST, LAST}:
            break
        found.append((watching.at - START, watching.row("w0").startswith(" X")))
    return found


class Watching:
    """A player, and a wall clock that is set."""

    def __init__(self, tape, at_unix_s=None):
        self.now = 5000.0
        self.player = Player(DisplaySettings(ascii=True, more_keys=(KEYS,)), lambda: self.now)
        self.player.show(Recording(str(tape)), at_unix_s)
        self.player.refresh(self.now)

    def press(self, *keys):
        for key in keys:
            assert self.player.press(key) is not Reply.QUIT
            self.look()
        return self

    def look(self):
        """Lets it look for a change to the end, as the loop of the view does."""
        while self.player.changes_at(self.now) == self.now:
            self.player.refresh(self.now)

    def after(self, seconds):
        self.now += seconds
        self.player.refresh(self.now)
        return self

    @property
    def at(self):
        return self.player._time(self.now)

    @property
    def picture(self):
        lines = self.player.render(120, 24, self.now)
        return "\n".join("".join(segment.text for segment in line) for line in lines)

    def row(self, worker):
        return next(line for line in self.picture.splitlines() if f" {worker} " in line)


@pytest.fixture(scope="module")
def preempted(tmp_path_factory):
    """Ten minutes of three workers of a slice; w0 goes down, the others stop earlier and are seen to have later."""
    directory = tmp_path_factory.mktemp("preempted")
    recorder = Wired(lambda _: Recorder(str(directory), clock=lambda: START))
    recorder.add(Workers(targets=tuple(Target(worker=name, address=f"{name}:1", slice="a") for name in NAMES)))
    times = StepTimes(avg=0.1, min=0.1, max=0.1, count=5)
    for at in range(0, 600, 10):
        for place, name in enumerate(NAMES):
            process = Process(pid=1 + (at >= 360 and name == "w0"), user="u", command="train.py")
            given = {"time_unix_s": START + at + place, "took_s": 1.0 + place, "interval_s": 10.0, "slice": "a"}
            if not 300 <= at < 400:
                recorder.add(sample(name, step_time_s=times, process=process, **given))
            elif name == "w0" and at < 360:
                recorder.add(failed_sample(name, **given))
            else:
                recorder.add(failed_sample(name, "empty-trace", process=process, **given))
        recorder.tick(START + at)
    recorder.close()
    return directory


@pytest.fixture
def watching(tape):
    return Watching(tape).after(0)


def test_it_stands_at_the_end_first(watching):
    """The last figures are not stale: the clock of the view is the recording's."""
    assert "RECORDED end" in watching.picture
    assert " STALE" not in watching.after(1000).picture
    assert " 100" in watching.row("w0")
    assert watching.player.changes_at(watching.now) is None


def test_keys_go_back_and_forward(watching):
    """Back to the hour in which w0 was slow, which the view knows for what it was; and on from there."""
    watching.press(*"<" * 9).after(0)
    assert watching.row("w0").startswith(" X w0")
    assert " 200" in watching.row("w0")
    watching.press(*">" * 5).after(0)
    assert " 100" in watching.row("w0")
    assert not watching.row("w0").startswith(" X")
    watching.press(*"<" * 18).after(0)
    watching.press(".", ".", ",").after(0)
    assert watching.at == FIRST + 10


def test_no_key_goes_beyond_an_end_and_the_screen_says_where_it_is(watching):
    """In one word; at the beginning all have answered, for what was before that is a picture of no worker."""
    for key in (">", ".", "]"):
        assert "RECORDED end" in watching.press(key).picture
        assert watching.at == LAST
    for key in ("<", ",", "["):
        assert "RECORDED beginning" in watching.press(*"<" * 18, key).picture
        assert watching.at == FIRST
    assert "WAITING" not in watching.picture
    assert "RECORDED stopped" in watching.press(".").picture


def test_the_bell_rings_for_what_is_played_not_for_what_was_before(watching):
    """Nor for the hour before a moment, which is read to show it."""
    watching.press("b").after(0)
    watching.press(*"<" * 9).after(0)
    assert watching.row("w0").startswith(" X w0")
    assert not watching.player.pop_alarm()
    watching.press(*"<" * 4).after(0)
    assert not watching.player.pop_alarm()
    watching.press(">", ">").after(0)
    assert watching.row("w0").startswith(" X w0")
    assert watching.player.pop_alarm()


def test_each_sample_is_compared_with_those_of_its_own_time(eventless, capsys):
    """A change of all workers together is no change of one, however fast the recording is read."""
    assert "no change of any worker" in Watching(eventless).after(0).press("e").picture
    feed = FeedSettings(source=RecordingSource(str(eventless)))
    assert once.run(feed=feed, needs=Needs(samples=3)) == 0
    since = [line.split()[2] for line in capsys.readouterr().out.splitlines()[4:]]
    assert since == [time.strftime("%H:%M:%S", time.localtime(START))] * 3
    assert events.run(feed=feed) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no change from 20" in printed.err


def test_the_footer_and_the_help_name_the_keys_of_a_recording(watching):
    """Each key once, and what moves the time before what freezes the picture; nothing there is LIVE."""
    last = watching.picture.splitlines()[-1]
    assert last.split("  ")[:5] == [" q quit", "Space play", ", . time", "[ ] change", "t go to"]
    assert "LIVE" not in watching.picture
    watching.press("p").after(0)
    assert "RECORDED end  FROZEN" in watching.picture
    watching.press("p", "h").after(0)
    assert watching.picture.count("Space ") == 2, "in the footer, and among the keys of a recording"


def test_it_plays_faster_and_stops_at_the_end(watching):
    """Space plays, x makes it faster; what comes is shown when it came."""
    watching.press(*"<" * 6, " ")
    began = watching.player._time(watching.now)
    assert watching.after(5).player._time(watching.now) - began == 5
    watching.press("x", "x")
    assert "RECORDED 60x" in watching.picture
    assert watching.after(10).player._time(watching.now) - began == 605
    assert watching.now < watching.player.changes_at(watching.now) <= watching.now + 2
    watching.after(10_000)
    assert "RECORDED end" in watching.after(0).picture
    watching.press(" ")
    assert watching.at == FIRST


def test_a_picture_comes_each_second_at_every_speed_however_long_it_takes(watching, monkeypatch):
    """Then it plays slower: nothing is passed by unseen; a key goes on from what is shown."""
    watching.press(*"<" * 6, " ", "x", "x", "x")
    assert watching.player.pause_s(0.05) == 0.25
    assert watching.player.pause_s(5.0) == 1.0
    before = watching.at
    monkeypatch.setattr(player, "_READ_S", 0.0)
    watching.after(1)
    assert 0 < watching.at - before <= 120
    assert "RECORDED 600x" in watching.picture
    watching.now += 1
    before = watching.at - 600
    assert watching.press(" ").at == before
    assert watching.player.pause_s(5.0) == 5.0


def test_a_speed_is_chosen_while_it_stands_and_starts_nothing(watching):
    """The screen says which: it plays with that."""
    watching.press(*"<" * 6, "x")
    began = watching.at
    assert "RECORDED stopped, 10x" in watching.picture
    assert watching.after(5).at == began
    assert watching.press(" ").after(5).at == began + 50


def test_what_passes_until_a_picture_is_drawn_is_no_silence(eventless):
    """At 60 times, a quarter of a second is longer than the figures hold."""
    watching = Watching(eventless, START + 20).press("x", "x", " ").after(0.5)
    assert "STALE" not in watching.picture
    watching.now += 0.3
    assert "STALE" not in watching.picture, "the next samples were not read yet"


def test_the_next_change_is_found(watching):
    """From the start: w0 becomes critical after an hour, and is well again after two; then nothing changes."""
    found = changes_found(watching.press(*"<" * 18), "]")
    slow = [at for at, critical in found if critical]
    assert slow
    assert 3600 <= slow[0] < 4200
    well = [at for at, critical in found if at > slow[-1] and not critical]
    assert 7200 <= well[0] < 7800
    assert "no change up to" in watching.press("]").picture


def test_the_previous_change_is_found(watching):
    """What begins with the hour that is read to show a moment is no change; the way back stops there all the same."""
    there = changes_found(watching.press(*"<" * 18), "]")
    critical = next(at for at, critical in there if critical)
    back = [at for at, _ in changes_found(watching, "[")]
    assert critical in back
    assert set(back) & set(range(int(critical) + 1, int(critical) + 300)) == set()
    assert "RECORDED beginning" in watching.picture
    assert "no change since" in watching.picture


@pytest.mark.parametrize("named", ["restarts", "preempted"])
def test_the_way_back_stops_where_the_way_there_did(named, request):
    """And says the same; the header says which moment that is."""

    def stops(watching, key):
        found = []
        while True:
            header, *_, said, _ = watching.press(key).picture.splitlines()
            moment = time.strftime("%H:%M:%S", time.localtime(watching.at))
            assert header.rstrip().endswith(f"  at {moment}")
            if "no change" not in said:
                found.append((watching.at, said.strip()))
            else:
                return found

    directory = request.getfixturevalue(named)
    there = stops(Watching(directory, START), "]")
    assert len(there) >= 2
    assert stops(Watching(directory), "[") == there[::-1]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """Eight hours of a worker that restarts in the fourth."""
    directory = tmp_path_factory.mktemp("quiet")
    recorder = Wired(lambda _: Recorder(str(directory), clock=lambda: START))
    recorder.add(Workers(targets=(Target(worker="w0", address="w0:1"),)))
    for at in range(0, 8 * 3600, 120):
        process = Process(pid=1 + (at >= 4 * 3600), user="u", command="train.py")
        recorder.add(sample("w0", time_unix_s=START + at, took_s=1.0, interval_s=120.0, process=process))
        recorder.tick(START + at)
    recorder.close()
    return directory


@pytest.mark.parametrize(("key", "start", "end"), [("[", None, "beginning"), ("]", START, "end")])
def test_a_change_is_found_however_far_it_is_and_so_is_an_end(quiet, key, start, end):
    watching = Watching(quiet, start).press(key)
    assert watching.at - START == pytest.approx(4 * 3600, abs=300)
    assert "job restarted" in watching.picture
    assert f"RECORDED {end}" in watching.press(key).picture
    assert "no change " in watching.picture


@pytest.mark.parametrize(("key", "start", "words"), [("[", None, "since"), ("]", START, "up to")])
def test_while_a_far_change_is_looked_for_the_view_says_so_and_takes_keys(quiet, monkeypatch, key, start, words):
    monkeypatch.setattr(player, "_READ_S", 0.0)
    watching = Watching(quiet, start)
    watching.player.press(key)
    watching.after(0)
    assert watching.player.changes_at(watching.now) == watching.now
    assert f"looking for a change: none {words} " in watching.picture
    watching.player.press("esc")
    assert "looking" not in watching.picture
    stopped_at = watching.at
    assert watching.after(10).at == stopped_at
    assert watching.player.changes_at(watching.now) is None
    assert watching.press(key).at - START == pytest.approx(4 * 3600, abs=300)


def test_what_a_slice_had_together_is_one_change(restarts):
    """The key that goes to the next change does not stop at each of eight workers."""
    watching = Watching(restarts).after(0)
    watching.press("t", *"-30m", "enter", "]")
    assert "w0: " in watching.picture
    first = watching.at
    watching.press("]")
    assert watching.at > first + 60
    watching.press("[", ".", "[")
    assert watching.at == first
    assert "\n w0: job restarted" in watching.picture, "it is the first as yet"
    assert "all 8 workers of a  job restarted" in watching.press(">", "e").picture


@pytest.mark.parametrize(
    ("typed", "at"),
    [("-20m", HOURS_S - 120 - 1200), ("2023-11-14T22:13:20+00:00", 1), ("2023-11-14T23:13:20Z", 3600)],
)
def test_a_time_that_is_typed_is_gone_to(watching, typed, at):
    """In the footer as it is typed; a comma is text there."""
    watching.press("t", ",", "backspace", *typed)
    assert f"go to: {typed}_" in watching.picture
    assert watching.press("enter").at == pytest.approx(START + at, abs=1)
    assert "go to:" not in watching.picture


@pytest.mark.parametrize(("typed", "said"), [("noon", "give a time such as 03:12"), ("2020-01-01", "samples are from")])
def test_a_time_that_is_none_or_not_recorded_moves_nothing(watching, typed, said):
    """One line says why; Esc leaves it."""
    at = watching.press("<").at
    assert said in watching.press("t", *typed, "enter").picture
    assert watching.press("t", *"-1h", "esc").at == at


def test_the_limits_of_a_time_are_those_of_at(tape):
    """Also where the first answers came some seconds after the begin."""
    recording = Recording(str(tape))
    with pytest.raises(UsageError) as refused:
        recording.moment_of("2020-01-01")
    said = str(refused.value).removeprefix("--at ")
    assert said in Watching(tape).after(0).press("t", *"2020-01-01", "enter").picture


def test_a_time_that_an_event_names_says_from_when_on_that_was_known(tape, capsys):
    """Events name when a change began; samples show it later. The next change is that one."""
    assert events.run(feed=FeedSettings(source=RecordingSource(str(tape)))) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "critical" in line)
    at_unix_s = time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S"))
    opened = Watching(tape, at_unix_s).after(0)
    shown = opened.picture
    typed = Watching(tape).after(0).press("t", *line[:19].replace(" ", "T"), "enter")
    for watching in (opened, typed):
        assert watching.at == at_unix_s
        assert not watching.row("w0").startswith(" X")
        known = re.search(r"began at \S+, known from (\S+) on: w0: critical", watching.picture)
        assert known
        assert watching.press("]").row("w0").startswith(" X")
        assert known[1] == time.strftime("%H:%M:%S", time.localtime(watching.at))
    for command in (once, why):
        feed = FeedSettings(source=RecordingSource(str(tape), line[:19].replace(" ", "T")))
        assert command.run(feed=feed, needs=Needs(samples=3)) == 0
        said = capsys.readouterr().err
        assert said.startswith(f"tpumon: began at {line[11:19]}, known from {known[1]} on: w0: critical: ")
        assert said.removeprefix("tpumon: ").rstrip() in shown
    assert f"began at {line[11:19]}, known from " in Watching(tape, at_unix_s + 1).after(0).picture, "not known yet"
    well = Watching(tape, at_unix_s - 600).after(0)
    assert "began at" not in well.picture


def test_what_an_end_hides_is_not_told(eventless):
    """That its workers have no figures afterwards is no change of theirs."""
    assert "began at" not in Watching(eventless, Recording(str(eventless)).span_unix_s()[1]).after(0).picture


def test_what_was_known_within_the_second_that_is_named_is_shown(restarts, capsys):
    """A time as it is typed has no parts of a second."""
    recording = Recording(str(restarts))
    player = Watching(restarts, START + 3000).after(0)
    assert player.at == pytest.approx(START + 3000.8, abs=0.01)
    assert "began at" not in player.picture
    assert recording.moment_of("-0s") == recording.span_unix_s()[1]
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(START + 3000))
    once.run(feed=FeedSettings(source=RecordingSource(str(restarts), at)), needs=Needs(samples=3))
    said = capsys.readouterr()
    assert "and 3 more was restarted" in said.out
    assert said.err == ""


def test_it_opens_at_its_worst_moment(tape):
    """The first sample by which w0 was found critical; where all were well, at the end."""
    recording = Recording(str(tape))
    worst = recording.worst_unix_s()
    assert worst is not None
    assert START + 3600 <= worst <= START + 4200
    player = Watching(tape, worst)
    assert player.row("w0").startswith(" X w0")
    before = worst - 120 - 1  # its sample before was judged before the others of that moment
    assert not Watching(tape, before).row("w0").startswith(" X w0")


@pytest.mark.parametrize("typed", ["-110m", "-80m", "-50m", "-0s"])
def test_a_time_that_is_typed_shows_what_it_shows_at_the_start(tape, typed):
    """Also where w0 became critical on the way: that is no news of the moment that is shown."""
    opened = Watching(tape, Recording(str(tape)).moment_of(typed)).picture
    assert Watching(tape, FIRST + 60).press("t", *typed, "enter").picture == opened
    assert Watching(tape, LAST).press(*"<<>", "t", *typed, "enter").picture == opened


def test_what_a_key_passes_by_is_no_news(tape):
    """What is played is."""
    before = START + 3600
    watching = Watching(tape, before).press(">")
    assert watching.row("w0").startswith(" X w0")
    assert "critical: " not in watching.picture
    pages = [watching.press(key).picture for key in ("h", "pagedown", "pagedown")]
    assert any("w0: critical: " in page for page in pages), "it is listed"
    played = Watching(tape, before).press("x").after(60)
    assert "w0: critical: " in played.picture


def test_while_a_filter_is_typed_keys_are_its_text(watching):
    """A comma too."""
    at = watching.player._time(watching.now)
    watching.press("/", ",", "<", "x")
    assert watching.player._time(watching.now) == at
    assert "/,<x" in watching.picture


def test_keys_of_the_view_work_and_outlast_a_jump(watching):
    """A page that is open stays open; the help lists the keys of the recording."""
    watching.press("enter").after(0)
    assert "w0:1" in watching.picture
    watching.press("<").after(0)
    assert "w0:1" in watching.picture
    assert "go to the previous change" in watching.press("h").after(0).picture


def test_a_pipe_gets_everything_at_once(tape, capfd):
    """As lines, or as text."""
    feed = FeedSettings(source=RecordingSource(str(tape)))
    lines = monitor.MonitorSettings(feed=feed, display=DisplaySettings(), output=Export(name="jsonl", where="-"))
    assert monitor.run(lines) == 0
    assert len(capfd.readouterr().out.splitlines()) == 3 * HOURS_S // 120
    assert monitor.run(monitor.MonitorSettings(feed=feed, display=DisplaySettings(), output="text")) == 0
    captured = capfd.readouterr()
    assert captured.out.count("Step time: 200ms (avg)") == 30
    assert captured.err == ""


def test_once_judges_the_end_of_a_recording(tape, capsys):
    """All are well there, and there are enough samples."""
    assert once.run(feed=FeedSettings(source=RecordingSource(str(tape))), needs=Needs(samples=3)) == 0
    table = capsys.readouterr().out.splitlines()[-len(NAMES) :]
    assert [line.split()[:2] for line in table] == [[name, "ok"] for name in NAMES]


@pytest.mark.parametrize(("named", "verdict"), [("tape", "unknown"), ("restarts", "RESTARTED")])
def test_why_says_of_which_moment_of_a_recording_it_is(named, verdict, request, capsys):
    """What was found before and is over is in the events."""
    directory = str(request.getfixturevalue(named))
    assert why.run(feed=FeedSettings(source=RecordingSource(directory)), needs=Needs(samples=3)) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{verdict}: ")
    assert re.search(rf"^So it was at .*; what happened before: tpumon events --from {re.escape(directory)}$", second)
    once.run(feed=FeedSettings(source=RecordingSource(directory)), needs=Needs(samples=3))
    assert capsys.readouterr().out.splitlines()[1:3] == [second, ""], "as once does"


def test_what_is_over_is_not_to_be_looked_at_again(tmp_path, capsys):
    """Of a silence that has just begun: no further run goes on from it."""
    recorder = Wired(lambda _: Recorder(str(tmp_path / "over"), clock=lambda: START))
    recorder.add(Workers(targets=(Target(worker="w", address="w:1"),)))
    for at in (0, 10, 20):
        recorder.add(sample("w", time_unix_s=START + at, interval_s=10.0))
    recorder.add(failed_sample("w", "empty-trace", time_unix_s=START + 30, interval_s=10.0))
    recorder.close()
    for command in (once, why):
        command.run(feed=FeedSettings(source=RecordingSource(str(tmp_path / "over"))), needs=Needs(samples=3))
        said = capsys.readouterr().out
        assert "1 of 1 workers run nothing" in said.splitlines()[0]
        assert "One look" not in said


@pytest.mark.parametrize("at", ["-80m", time.strftime("%Y-%m-%dT%H:%M", time.localtime(START + 6000))])
def test_once_and_why_judge_the_moment_that_is_asked_for(tape, capsys, at):
    """By what was known then: w0 was critical, and nothing of what came later is known."""
    feed = FeedSettings(source=RecordingSource(str(tape), at))
    assert once.run(feed=feed, needs=Needs(samples=3)) == 1
    assert "w0      critical" in capsys.readouterr().out
    assert why.run(feed=feed, needs=Needs(samples=3)) == 1
    assert capsys.readouterr().out.startswith("slow-down: ")


def test_a_moment_in_a_gap_has_no_current_figures(tmp_path, capsys):
    """As a screen would have shown then, had somebody looked; that is no fault of the workers."""
    recorder = Wired(lambda _: Recorder(str(tmp_path / "gap"), clock=lambda: START))
    for at in (0, 10, 20, 3600):
        recorder.add(
            Workers(targets=(Target(worker="w", address="w:1"),)), sample("w", time_unix_s=START + at, interval_s=10.0)
        )
    recorder.close()
    begin, end = (time.strftime("%H:%M:%S", time.localtime(START + at)) for at in (21, 3601))
    for at in ("-30m", "-3550s"):
        once.run(feed=FeedSettings(source=RecordingSource(str(tmp_path / "gap"), at)), needs=Needs(samples=3))
        said = capsys.readouterr()
        assert "S  w       stale" in said.out
        assert said.err == f"tpumon: nothing was recorded from {begin} to {end}\n"


def test_that_a_worker_is_stale_is_not_said_to_be_known_later_where_it_is_shown(tmp_path, capsys):
    """It is a change once that has lasted for an interval; the table shows it at once."""
    targets = tuple(Target(worker=name, address=f"{name}:1") for name in ("v", "w"))
    recorder = Wired(lambda _: Recorder(str(tmp_path / "late"), clock=lambda: START))
    recorder.add(Workers(targets=targets))
    for at in range(0, 300, 10):
        for name in ("v", "w") if at < 30 else ("w",):
            recorder.add(sample(name, time_unix_s=START + at, interval_s=10.0))
    recorder.close()
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(START + 51))
    once.run(feed=FeedSettings(source=RecordingSource(str(tmp_path / "late"), when)), needs=Needs(samples=3))
    said = capsys.readouterr()
    assert "S  v       stale" in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["once", "--from", "{tape}", "--at", "noon"], "--at noon: give a time such as 03:12"),
        (["why", "--from", "{tape}", "--at", "-9h"], "--at -9h: samples are from 2023-11-1"),
        (["--from", "{tape}", "--at", "-1h", "--output", "jsonl"], "--at is for the live view, once and why"),
        (["why", "--from", "http://127.0.0.1:1", "--at", "-1h"], "--at is for recorded samples"),
        (["--simulate", "v5e-8", "--at", "03:12"], "--at is for recorded samples: --from DIR --at 03:12"),
    ],
)
def test_a_moment_that_cannot_be_shown_is_refused(tape, words, said):
    """In one line that says what can."""
    with pytest.raises(UsageError, match=re.escape(said)):
        command_of([word.format(tape=tape) for word in words])()


def test_a_recording_has_no_other_outputs(tape):
    """It is over: a scrape would show old figures as new ones."""
    with pytest.raises(UsageError, match="takes no --listen, --export, --on-change or --record: it is over"):
        command_of(["--from", str(tape), "--listen", ":1"])

"""What servers make up floods no log and no memory."""

from __future__ import annotations

import io
import re
import tracemalloc

from support.said import Lines
from support.samples import failed_sample, sample
from tpumon.analysis import Update
from tpumon.model import Target, Workers
from tpumon.outputs.text_blocks import TextOutput
from tpumon.system import console

HOUR_S = 3600
AT_ONCE = 10


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def following(*names):
    return Workers(targets=tuple(Target(worker=name, address=f"{name}:1") for name in names))


def text(number):
    """Words that no other sample has; numbers alone would make one kind of them."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def an_hour(notices, clock, make):
    """The lines of an hour with one query a second."""
    lines = []
    for second in range(HOUR_S):
        clock.now_s = float(second)
        lines += notices.update(make(second))
    return lines


def test_an_hour_of_new_warnings_is_a_line_a_minute():
    """Forty rows of random text each second: a burst, then a line a minute that says what is missing."""
    clock = Clock()
    notices = Lines(clock)
    notices.update(following("w0"))
    lines = an_hour(notices, clock, lambda second: sample(warnings=[text(second * 5000 + i) for i in range(40)]))
    assert AT_ONCE < len(lines) <= HOUR_S / 60 + AT_ONCE
    assert "left out before" in lines[-1]


def test_a_worker_that_flaps_all_the_time_is_a_line_a_minute():
    """Down, up, down: each change is a line, but not thousands of them; another worker is not silenced by it."""
    clock = Clock()
    notices = Lines(clock)
    notices.update(following("w0", "w1"))
    lines = an_hour(
        notices,
        clock,
        lambda second: failed_sample(reason=("busy", "unavailable")[second % 2]) if second % 3 else sample(),
    )
    assert AT_ONCE < len(lines) <= HOUR_S / 60 + AT_ONCE
    assert len(notices.update(failed_sample("w1"))) == 1


def test_an_ordinary_warning_that_returns_is_not_repeated():
    """One kind among many others stays known while it is seen."""
    clock = Clock()
    notices = Lines(clock)
    notices.update(following("w0"))
    lines = an_hour(notices, clock, lambda second: sample(warnings=["3 events dropped", text(second)]))
    assert sum("events dropped" in line for line in lines) == 1


def test_a_churn_of_names_is_a_few_lines_a_minute(monkeypatch):
    """Each is new, so none has a limit of its own; what is left out is counted, and said when it is over, too."""

    def lines_of(notices, clock):
        lines = []
        for second in range(HOUR_S):
            clock.now_s = float(second)
            names = [f"w{second * 10 + place}" for place in range(10)] if second < HOUR_S // 2 else ["w"]
            lines += notices.update(following(*names))
            for name in names:
                lines += notices.update(sample(name) if name == "w" else failed_sample(name))
        return lines

    clock = Clock()
    lines = lines_of(Lines(clock), clock)
    assert len(lines) < 200 + 10 * HOUR_S / 60
    left_out = sum(int(number) for line in lines for number in re.findall(r"left out before: (\d+) lines\b", line))
    assert sum("left out" in line for line in lines) > 100
    *lines, last = lines
    assert last.startswith("left out before")
    monkeypatch.setattr(console, "_ALL_AT_ONCE", 1e9)
    assert len(lines) + left_out == len(lines_of(Lines(clock), clock))


def test_a_fleet_that_is_down_at_once_is_named_in_part():
    """The first two hundred workers; the view and the metrics have all."""
    clock = Clock()
    notices = Lines(clock)
    names = [f"w{number}" for number in range(1000)]
    notices.update(following(*names))
    lines = [line for name in names for line in notices.update(failed_sample(name))]
    assert len(lines) == 200
    clock.now_s = 30.0
    (line,) = notices.update(failed_sample(names[0]))
    assert "800 lines" in line


def test_neither_texts_nor_names_are_kept_for_good():
    """A hundred thousand names and as many texts leave nothing behind."""
    clock = Clock()
    notices, blocks = Lines(clock), TextOutput(io.StringIO(), level=2, number_samples=False)

    def churn(begin, end):
        for number in range(begin, end):
            name = f"w{number}"
            for event in (following(name), failed_sample(name), sample(name, warnings=[text(number)])):
                notices.update(event)
            blocks.on_update(Update(time_unix_s=0.0, workers=following(name)))
            blocks.on_update(Update(time_unix_s=0.0, sample=failed_sample(name)))

    churn(0, 1000)
    tracemalloc.start()
    try:
        churn(1000, 2000)
        before, _ = tracemalloc.get_traced_memory()
        churn(2000, 7000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000

"""A program that runs the live view's loop with a display that shows what the loop does.

The first argument is what happens; the second a file that gets, line by line, what the loop was told.

The screen: `drawn N size WxH`, the keys pressed, the last notice, the number of events delivered.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import warnings
from collections import deque
from pathlib import Path

from rich.segment import Segment
from rich.style import Style

from tpumon.model import Sample
from tpumon.outputs.live.loop import live
from tpumon.outputs.live.screens.screen import Reply
from tpumon.system.signals import StoppedError, stop_on_signals


class Feed:
    """Sends a sample every so often from a thread of its own, as the sampler does."""

    def __init__(self, what, interval_s=0.02):
        self.what, self.interval_s = what, interval_s
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self._write_end, False)
        self._waiting = deque()
        self._error = None
        self._ended = False
        threading.Thread(target=self._run, daemon=True).start()

    def fetch(self):
        fetched = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if self._ended and not fetched and self._error:
            raise self._error
        return fetched, self._ended

    def _run(self):
        for number in range(1_000_000):
            if self.what == "silent":
                return
            time.sleep(self.interval_s)
            self._waiting.append(Sample(worker="w", address="a:1", time_unix_s=0.0, window_s=1.0, took_s=float(number)))
            if number == 5 and self.what == "fetch-fails":
                self._error = ValueError("no figures")
            if number == 5 and self.what == "writes-stderr":
                os.write(2, b"E0000 from the core\nand half")
                print("said \x1b[2J", file=sys.stderr)
                warnings.warn("watch out", stacklevel=1)
            if number == 5 and self.what in {"fetch-fails", "ends"}:
                self._ended = True
            with contextlib.suppress(BlockingIOError):
                os.write(self._write_end, b"\0")
            if self._ended:
                return


class Told:
    """A display that shows what it was told."""

    wants_mouse = True

    def __init__(self, what, log):
        self.what, self.log = what, log
        self.drawn = self.refreshed = self.delivered = 0
        self.keys = []
        self.notices = []

    def deliver(self, event):
        self.delivered += 1
        self.note(f"delivered {self.delivered}")

    def note(self, line):
        with self.log.open("a") as file:
            file.write(line + "\n")

    def notice(self, line):
        self.notices.append(line)

    def refresh(self, now_unix_s):
        self.refreshed += 1
        self.note("refreshed")

    def press(self, key):
        self.keys.append(key)
        self.note(f"key {key}")
        if self.what == "hangs" and key == "x":
            time.sleep(1000)
        return {"q": Reply.QUIT, "r": Reply.REPAINT, "ctrl-l": Reply.REPAINT}.get(key, Reply.REDRAW)

    def render(self, width, height, now_unix_s):
        self.drawn += 1
        self.note(f"drawn {self.drawn} {width}x{height}")
        if self.what == "render-fails" and self.delivered > 3:
            raise ZeroDivisionError("a bug in render")
        if self.what == "big":
            return [[Segment(f"{self.drawn} {row} ".ljust(3 * width, "x"), Style(color="red"))] for row in range(500)]
        texts = [f"drawn {self.drawn} size {width}x{height}", "keys " + " ".join(self.keys),
                 f"delivered {self.delivered}", *(f"notice {line}" for line in self.notices[-5:])]  # fmt: skip
        bottom = [[]] * (height - len(texts) - 1) + [[Segment("bottom".ljust(width, "."))]]
        return ([[Segment(text)] for text in texts] + bottom)[:height]

    def pause_s(self, busy_s):
        return min(max(0.25, min(busy_s / 0.002, 1.0), busy_s / 0.01), 5.0)

    def pop_alarm(self):
        return False

    def changes_at(self, now_unix_s):
        if self.what == "always-changes":
            return now_unix_s
        return now_unix_s + 0.6 if self.what == "ages" else None


def main():
    what, log = sys.argv[1], Path(sys.argv[2])
    if what == "impatient":
        what, live._PATIENCE_S = "hangs", 0.0
    stop_on_signals()
    feed, told = Feed(what, 0.002 if what == "big" else 0.02), Told(what, log)
    status = 0
    try:
        if why := live.can_be_live():
            print("not live:", why, flush=True)
            return 4
        live.run(told, feed.fetch, feed.read_end, deliver=told.deliver)
    except StoppedError as stopped:
        status = stopped.exit_status
    except (ZeroDivisionError, ValueError) as error:
        print(f"tpumon: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        status = 1
    told.note(f"ended {status}")
    return status


if __name__ == "__main__":
    os._exit(main())

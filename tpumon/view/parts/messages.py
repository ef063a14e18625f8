"""What was said while the display has the terminal: the same of many workers is one message. Pure, no clock."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tpumon.model import Target, Workers

_SHOWN_S = 10.0
_MOST = 50
_MOST_LINES = 1000
_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class _Message:
    """The same of one worker or many.

    Attributes:
        at_unix_s: when it was first said.
        until_unix_s: for how long it is shown.
        said: of the first, without who it is.
        kind: the same for all that are one.
        lines: what was said, by the worker that it begins with.
    """

    at_unix_s: float
    until_unix_s: float
    said: str
    kind: str
    lines: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        worker, line = next(iter(self.lines.items()))
        return f"{worker} and {len(self.lines) - 1} more: {self.said}" if len(self.lines) > 1 else line


class Messages:
    """The last messages."""

    def __init__(self) -> None:
        self._messages: deque[_Message] = deque(maxlen=_MOST)
        self._beginnings: dict[str, str] = {}
        self._now_unix_s = 0.0

    @property
    def until_unix_s(self) -> float | None:
        """When the newest has been shown long enough; None: there was none."""
        return self._messages[-1].until_unix_s if self._messages else None

    def follow(self, found: Workers) -> None:
        """These are the workers from now on."""
        self._beginnings = {name: target.worker for target in found.targets for name in (target.worker, target.address)}

    def set_time(self, now_unix_s: float) -> None:
        """It is now; nothing is shown for longer than it should be if the clock was set back."""
        if now_unix_s < self._now_unix_s:
            for message in self._messages:
                message.until_unix_s = min(message.until_unix_s, now_unix_s + _SHOWN_S)
        self._now_unix_s = now_unix_s

    def add(self, now_unix_s: float, line: str) -> None:
        """Notes a line; one that was said of another worker a moment ago is the same message."""
        worker, said = self._about(line)
        kind = _NUMBER.sub("0", said)
        if worker:
            for message in reversed(self._messages):
                if message.kind == kind and now_unix_s < message.until_unix_s and len(message.lines) < _MOST_LINES:
                    if worker in message.lines:
                        break
                    message.lines[worker] = line
                    return
        self._messages.append(_Message(now_unix_s, now_unix_s + _SHOWN_S, said, kind, {worker: line}))

    def now(self, now_unix_s: float) -> str:
        """What is to be shown now; empty where nothing is."""
        recent = sum(now_unix_s < message.until_unix_s for message in self._messages)
        if not recent or now_unix_s >= self._messages[-1].until_unix_s:
            return ""
        more = f"{recent - 1}{' or more' if recent == _MOST else ''}"
        return (f"(+{more}, see h) " if recent > 1 else "") + self._messages[-1].text

    def all(self) -> list[tuple[float, str]]:
        """All that are kept, with their times, the newest last."""
        return [(message.at_unix_s, message.text) for message in self._messages]

    def about(self, target: Target) -> Sequence[tuple[float, str]]:
        """Those about a worker, as they were said of it."""
        return [
            (message.at_unix_s, message.lines[target.worker])
            for message in self._messages
            if target.worker in message.lines
        ]

    def _about(self, line: str) -> tuple[str, str]:
        """The worker that a line begins with, by name, address or both, empty where there is none; and the rest."""
        worker, end = "", 0
        while (colon := line.find(": ", end)) >= 0 and (name := self._beginnings.get(line[end:colon])) is not None:
            worker, end = name, colon + 2
        return worker, line[end:]

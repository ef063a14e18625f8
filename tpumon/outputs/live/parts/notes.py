"""Messages shown by the display: the same line about many workers is one message. Pure, no clock."""

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
class Message:
    """One message, about one worker or many.

    Attributes:
        at_unix_s: when it came first.
        until_unix_s: until when the footer shows it.
        short: the first line, without the worker's name.
        kind: equal for lines that are one message.
        lines: the lines, by the worker that they begin with.
    """

    at_unix_s: float
    until_unix_s: float
    short: str
    kind: str
    lines: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it in one line."""
        worker, line = next(iter(self.lines.items()))
        return f"{worker} and {len(self.lines) - 1} more: {self.short}" if len(self.lines) > 1 else line


class Messages:
    """The most recent messages."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque(maxlen=_MOST)
        self._beginnings: dict[str, str] = {}
        self._reply: Message | None = None
        self._now_unix_s = 0.0

    @property
    def until_unix_s(self) -> float | None:
        """Until when the newest is shown; None: there is none."""
        return self._messages[-1].until_unix_s if self._messages else None

    def follow(self, workers: Workers) -> None:
        """These are the workers now."""
        self._beginnings = {
            name: target.worker for target in workers.targets for name in (target.worker, target.address)
        }

    def set_time(self, now_unix_s: float) -> None:
        """Sets the time; if the clock was set back, messages are still not shown longer than usual."""
        if now_unix_s < self._now_unix_s:
            for message in self._messages:
                message.until_unix_s = min(message.until_unix_s, now_unix_s + _SHOWN_S)
        self._now_unix_s = now_unix_s

    def add(self, now_unix_s: float, line: str) -> None:
        """Adds a line; if the same line came about another worker a moment ago, they are one message."""
        worker, short = self._about(line)
        kind = _NUMBER.sub("0", short)
        if worker:
            for message in reversed(self._messages):
                if message.kind == kind and now_unix_s < message.until_unix_s and len(message.lines) < _MOST_LINES:
                    if worker in message.lines:
                        break
                    message.lines[worker] = line
                    return
        self._messages.append(Message(now_unix_s, now_unix_s + _SHOWN_S, short, kind, {worker: line}))

    def reply(self, now_unix_s: float, line: str) -> None:
        """Adds what a key has to say, in place of what the last one said."""
        if self._messages and self._messages[-1] is self._reply:
            self._messages.pop()
        self._reply = Message(now_unix_s, now_unix_s + _SHOWN_S, line, line, {"": line})
        self._messages.append(self._reply)

    def end(self) -> None:
        """Shows none of them any more; they are still listed."""
        for message in self._messages:
            message.until_unix_s = min(message.until_unix_s, self._now_unix_s)

    def now(self, now_unix_s: float) -> str:
        """The text to show now; empty if there is none."""
        recent = sum(now_unix_s < message.until_unix_s for message in self._messages)
        if not recent or now_unix_s >= self._messages[-1].until_unix_s:
            return ""
        if self._messages[-1] is self._reply:
            return self._reply.text
        more = f"{recent - 1}{' or more' if recent == _MOST else ''}"
        return (f"(+{more}, see h) " if recent > 1 else "") + self._messages[-1].text

    def all(self) -> tuple[Message, ...]:
        """All messages, the newest last."""
        return tuple(self._messages)

    def _about(self, line: str) -> tuple[str, str]:
        """Splits a line into the worker it begins with (by name, address or both; empty if none) and the rest."""
        worker, end = "", 0
        while (colon := line.find(": ", end)) >= 0 and (name := self._beginnings.get(line[end:colon])) is not None:
            worker, end = name, colon + 2
        return worker, line[end:]


def about(messages: Sequence[Message], target: Target) -> Sequence[tuple[float, str]]:
    """The messages about a worker with their times, as they came about it."""
    return [(each.at_unix_s, each.lines[target.worker]) for each in messages if target.worker in each.lines]

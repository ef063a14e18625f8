"""What an output is, how one is found by its name, and how several run without waiting for each other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from typing import Protocol, cast, runtime_checkable

from tpumon.errors import UsageError
from tpumon.fleet import Thresholds
from tpumon.model import Sample, Workers

_GROUP = "tpumon.exporters"
_WAITING_LIMIT = 10_000
_CLOSE_S = 1.5


class Output(Protocol):
    """Takes what a run finds, all calls from one thread."""

    def follow(self, found: Workers) -> None:
        """These are the workers from now on; called first, and each time they change."""

    def write(self, sample: Sample) -> None:
        """Takes one query's sample, answered or not. Raises OSError where it cannot; the run goes on."""

    def close(self) -> None:
        """Called once, at the end."""


@runtime_checkable
class Speaking(Protocol):
    """An output that has something to say to people beside what it writes.

    Attributes:
        say: takes lines about trouble, from any thread.
    """

    say: Callable[[str], None]


@runtime_checkable
class Listening(Protocol):
    """An output that others come to.

    Attributes:
        listening: one line about where it is to be found.
    """

    listening: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """What a user decides about outputs.

    Attributes:
        level: 1 or 2; what was asked of the workers.
        web_config: file with TLS and users of an HTTP endpoint, in exporter-toolkit's form.
        thresholds: from when on a figure stands out.
    """

    level: int = 2
    web_config: str | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)


OutputFactory = Callable[[str, OutputOptions], Output]
"""Makes an output of where it writes to: a file, an address, `-` for stdout; each says what it takes.

Raises UsageError where it cannot be had, with what would do.
"""


def output_names() -> tuple[str, ...]:
    """The names of all installed outputs, sorted."""
    return tuple(sorted(entry_points(group=_GROUP).names))


def open_output(name: str, where: str, options: OutputOptions) -> Output:
    """An output of the entry-point group `tpumon.exporters`.

    Raises:
        UsageError: there is none of this name, or it cannot write there.
    """
    found = entry_points(group=_GROUP, name=name)
    if not found:
        known = ", ".join(output_names()) or "none: is tpumon installed?"
        raise UsageError(f"there is no output {name!r}; there is: {known}")
    return cast("OutputFactory", next(iter(found)).load())(where, options)


class QueuedOutput:
    """An output in a thread of its own: whatever it waits for, nothing else does.

    Samples that it is too slow for are dropped, oldest first.

    Args:
        output: the output; all its methods are called in that thread.
        name: for messages.
        say: takes lines about trouble, from any thread.
    """

    def __init__(self, output: Output, name: str, say: Callable[[str], None]) -> None:
        self._output = output
        self._name = name
        self._say = say
        self._changed = threading.Condition()
        self._found: Workers | None = None
        self._waiting: deque[Sample] = deque(maxlen=_WAITING_LIMIT)
        self._closing = self._failing = self._dropping = False
        self._thread = threading.Thread(target=self._run, name=f"tpumon-{name}", daemon=True)
        self._thread.start()

    def follow(self, found: Workers) -> None:
        """Never blocks."""
        with self._changed:
            self._found = found
            self._changed.notify()

    def write(self, sample: Sample) -> None:
        """Never blocks."""
        with self._changed:
            drops = len(self._waiting) == _WAITING_LIMIT and not self._dropping
            self._waiting.append(sample)
            self._changed.notify()
        if drops:
            self._dropping = True
            self._say(f"{self._name}: samples are dropped, oldest first: it is too slow")

    def close(self) -> None:
        """Lets it write what waits, for 1.5 s at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        closing = False
        while not closing:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._found or self._waiting)
                closing, found, self._found = self._closing, self._found, None
                samples = list(self._waiting)
                self._waiting.clear()
            if found is not None:
                self._attempt(partial(self._output.follow, found))
            for sample in samples:
                self._attempt(partial(self._output.write, sample))
        self._attempt(self._output.close)

    def _attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever one output does, sampling and the others go on
            if not self._failing:
                self._say(f"{self._name}: cannot write samples: {reason(error)}; trying again with each sample")
            self._failing = True
        else:
            self._failing = False


def reason(error: Exception) -> str:
    """What went wrong with an output, in a few words."""
    return error.strerror or str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"

"""The base class of outputs, how `--export` finds one and reads its options, the thread of each further output."""

from __future__ import annotations

import difflib
import logging
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import entry_points
from types import UnionType
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args, get_type_hints

from msgspec import Struct, ValidationError, convert, field

from tpumon.analysis import Analysis, Update
from tpumon.analysis.findings import Thresholds
from tpumon.errors import UsageError
from tpumon.quantities import Quantity
from tpumon.system.mailbox import Mailbox

_log = logging.getLogger(__name__)

_GROUP = "tpumon.exporters"
_LEAST_TICK_S = 0.01
_CLOSE_S = 1.5

Expose = Literal["findings", "all"]
"""Metrics that a page has of workers of other exporters; their pages have the rest, as a series twice breaks joins."""

Own = TypeVar("Own")
"""An output's own options: a frozen Struct or dataclass whose fields all have defaults."""


class OutputSettings(Struct, frozen=True, kw_only=True):
    """Settings of the run that outputs need. An output's own options are a class of its own, see `takes`.

    Attributes:
        level: 1 or 2; how much the workers are asked for.
        web_config: path of the TLS and user settings of HTTP endpoints, in exporter-toolkit's format.
        thresholds: limits beyond which a worker stands out.
        ops: the most top operations of a sample that they get, and categories; 0: none.
        expose: which metrics of workers that come from exporters are exposed.
        host: where all jobs of this host are sampled, and nothing else, its name; None: other workers are followed.
        run_id: the name by which readers tell this run from others.
    """

    level: int = 2
    web_config: str | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    ops: int = 0
    expose: Expose = "findings"
    host: str | None = None
    run_id: str = field(default_factory=lambda: secrets.token_hex(8))


class Context(Struct, frozen=True, kw_only=True):
    """The run, as outputs see it.

    Attributes:
        settings: those of the run.
        analysis: what to ask for the status of all workers. From any thread.
        heartbeat_age_s: returns the seconds since the sampling loop last ran; about 1 at most while all is well.
        clock: returns seconds since the epoch.
    """

    settings: OutputSettings = field(default_factory=OutputSettings)
    analysis: Analysis = field(default_factory=Analysis)
    heartbeat_age_s: Callable[[], float] = lambda: 0.0
    clock: Callable[[], float] = time.time


class Output:
    """Base of outputs: a subscriber to updates. One thread makes all calls.

    Attributes:
        tick_s: seconds between two ticks; None: it needs none.
        remembers: True if it shows or hands on figures of the past, so that they are kept.
        open_port: where it hands on samples without a password; None: nowhere.
    """

    tick_s: float | None = None
    remembers: ClassVar[bool] = False
    open_port: int | None = None

    def on_update(self, update: Update) -> None:
        """Takes an update.

        Raises:
            OSError: it could not be written. The run continues.
        """

    def tick(self, now_unix_s: float) -> None:
        """Works without an update; called about every `tick_s` seconds.

        Raises:
            OSError: something could not be written. The run continues, and so do the ticks.
        """

    def close(self) -> None:
        """Ends the output; called once."""


OutputFactory = Callable[[str, Context], Output]
"""Opens an output: a function of where it writes (a file, an address, `-` for stdout) and the run.

Raises UsageError if it cannot be opened; the message says what would work.
"""


Factory = TypeVar("Factory", bound=OutputFactory)


class FactoryWithOptions(Struct, Generic[Own]):
    """An `OutputFactory` whose output has options of its own; made by `takes`.

    Attributes:
        options: the class of the options.
        open: opens the output.
        stdout: whether the output can write to stdout; False by `not_to_stdout`.
    """

    options: type[Own]
    open: Callable[[str, Context, Own], Output]
    stdout: bool = True

    def __call__(self, where: str, context: Context, options: Own | None = None) -> Output:
        """Opens the output, with default options unless they are given."""
        return self.open(where, context, self.options() if options is None else options)


def takes(options: type[Own]) -> Callable[[Callable[[str, Context, Own], Output]], FactoryWithOptions[Own]]:
    """Declares an output's own options: decorates a function `(where, context, options) -> output`.

    Users set them by name in `--export 'NAME[key=value,...]=WHERE'`.

    Args:
        options: a frozen Struct or dataclass. Each field is a bool, int, float, str, Literal of strings, or one of
            these or None, and has a default. `__post_init__` may raise ValueError to reject values.
    """
    return partial(FactoryWithOptions, options)


def not_to_stdout(factory: Factory) -> Factory:
    """Declares that an output cannot write to stdout, so that `--output` does not offer it; stands above `takes`."""
    factory.stdout = False  # type: ignore[attr-defined]
    return factory


class Export(Struct, frozen=True, kw_only=True):
    """One `--export` option.

    Attributes:
        name: the output's name.
        where: where it writes; each output documents what it accepts.
        options: its own options, unparsed.
        given: the option of the command line that it comes of.
    """

    name: str
    where: str
    options: Mapping[str, str] = field(default_factory=dict)
    given: str = "export"


_OUTPUT = r"(?P<name>[^=\[\]]+)(?:\[(?P<options>[^\]]*)\])?"
# WHERE comes last and may contain anything, so paths with commas, colons and brackets keep working.
_EXPORT = re.compile(_OUTPUT + "=(?P<where>.+)", re.DOTALL)
_STDOUT = "-"


def parse_export(text: str, *, of_installed: bool = True) -> Export:
    """Reads `NAME=WHERE` or `NAME[key=value,...]=WHERE`; values cannot contain `,` or `]`.

    Raises:
        UsageError: it has neither form, sets an option twice, or names no output, if it must name an installed one.
    """
    match = _EXPORT.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--export {text}: give NAME=WHERE, for example csv=samples.csv or prometheus=127.0.0.1:10466, "
            "or NAME[key=value,...]=WHERE"
        )
    options = _option_texts(f"--export {text}", match["options"])
    name = match["name"].strip()
    if of_installed and name not in output_names():
        raise _no_output(name)
    return Export(name=name, where=match["where"], options=options)


def parse_output(text: str, *, of_installed: bool = True) -> Export:
    """Reads `NAME` or `NAME[key=value,...]`, an output that writes to stdout.

    Raises:
        UsageError: it has neither form, sets an option twice, or names no output that can write to stdout, if it must
            name an installed one.
    """
    match = re.fullmatch(_OUTPUT, text)
    name = text if match is None else match["name"].strip()
    names = output_names() if of_installed or match is None else [name]
    if name not in names or (of_installed and not _can_write_to_stdout(name)):
        choices = ["auto", "live", "text", *stdout_names()]
        near = [] if name in names else difflib.get_close_matches(name, choices, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"{text}: {hint}choose one of {', '.join(choices)}")
    options = {} if match is None else _option_texts(text, match["options"])
    return Export(name=name, where=_STDOUT, options=options)


def _option_texts(given: str, text: str | None) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals):
            raise UsageError(f"{given}: {part.strip()!r} is not an option; write key=value")
        if key in options:
            raise UsageError(f"{given}: {key} is set twice")
        options[key] = value
    return options


def output_names() -> list[str]:
    """Names of all installed outputs, sorted; from the entry points of `tpumon.exporters`."""
    return sorted(entry_points(group=_GROUP).names)


def stdout_names() -> list[str]:
    """Names of the installed outputs that can write to stdout, sorted. Loads all outputs."""
    return [name for name in output_names() if _can_write_to_stdout(name)]


def _can_write_to_stdout(name: str) -> bool:
    try:
        return getattr(_load(name), "stdout", True) is not False
    except Exception:  # noqa: BLE001 - opening it says what is wrong with it
        return True


def open_output(
    name: str, where: str, context: Context, options: Mapping[str, str] | None = None, *, given: str = "--export"
) -> Output:
    """Opens the output with this name.

    Args:
        name: one of `output_names()`.
        where: where it writes.
        context: the run.
        options: its own options, as text by name (`Export.options`).
        given: the option that named it, for messages.

    Raises:
        UsageError: no output has this name, an option is wrong, or it cannot write there.
    """
    factory = _load(name)
    if isinstance(factory, FactoryWithOptions):
        return factory(where, context, _parsed(f"{given} {name}", factory.options, options or {}))
    if options:
        raise UsageError(f"{given} {name}: this output has no options, so {', '.join(options)} cannot be set")
    return factory(where, context)


def _no_output(name: str) -> UsageError:
    known = ", ".join(output_names()) or "none; is tpumon installed?"
    return UsageError(f"there is no output {name!r}; available: {known}")


def _load(name: str) -> OutputFactory | FactoryWithOptions[Any]:
    points = entry_points(group=_GROUP, name=name)
    if not points:
        raise _no_output(name)
    return cast("OutputFactory | FactoryWithOptions[Any]", next(iter(points)).load())


def _parsed(given: str, options: type[Own], texts: Mapping[str, str]) -> Own:
    """An output's options from their texts."""
    known = get_type_hints(options)
    values: dict[str, Any] = {}
    for key, text in texts.items():
        if key not in known:
            available = ", ".join(known) or "none"
            raise UsageError(f"{given}: there is no option {key!r}; available: {available}")
        try:
            values[key] = _value(known[key], text, key)
        except ValueError as error:
            raise UsageError(f"{given}: {key}={error}") from None
    try:
        return options(**values)
    except ValueError as error:
        raise UsageError(f"{given}: {error}") from None


def _value(kind: Any, text: str, key: str) -> Any:
    """A text as a value of an option's type; raises ValueError with what to give instead."""
    for ending, (quantity, scale) in _QUANTITIES.items():
        if key.endswith(ending):
            return quantity.read(text) / scale
    with suppress(ValidationError):
        value = convert(text, kind, strict=False)
        if not isinstance(value, float) or math.isfinite(value):
            return value
    first = get_args(kind)[0] if isinstance(kind, UnionType) else kind
    choices = ", ".join(get_args(first))
    raise ValueError(f"{text}: give {_WORDS.get(first) or f'one of {choices}'}")


_QUANTITIES = {"_s": (Quantity("time", "15s", unit="s"), 1.0), "_mb": (Quantity("size", "500M", unit="M"), 1e6)}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number"}


class GuardedOutput:
    """Calls an output, and says once what fails, until it works again.

    Args:
        output: the output.
        name: its name in messages; empty: it is stdout, and a reader that goes away ends the run.
    """

    def __init__(self, output: Output, name: str = "") -> None:
        self._output = output
        self._name = name
        self._failing: set[str] = set()  # calls that failed: a tick that works says nothing about writing
        self.tick_s = None if output.tick_s is None else max(output.tick_s, _LEAST_TICK_S)
        self._tick_due_s = math.inf if self.tick_s is None else time.monotonic() + self.tick_s

    @property
    def failing(self) -> bool:
        """True if the last sample, or what a tick had to write, could not be written."""
        return bool(self._failing)

    @property
    def due_in_s(self) -> float | None:
        """Seconds until the next tick; None: there is none."""
        return None if self.tick_s is None else max(0.0, self._tick_due_s - time.monotonic())

    def on_update(self, update: Update) -> None:
        """Passes on an update.

        Raises:
            BrokenPipeError: the reader of stdout went away.
        """
        self._attempt("write", partial(self._output.on_update, update), "; trying again with each sample")

    def tick_if_due(self) -> None:
        """Ticks, if that is due.

        Raises:
            BrokenPipeError: the reader of stdout went away.
        """
        if self.tick_s is not None and time.monotonic() >= self._tick_due_s:
            self._attempt("tick", partial(self._output.tick, time.time()), "; trying again")
            self._tick_due_s = time.monotonic() + self.tick_s

    def close(self) -> None:
        if self._name:
            self._attempt("close", self._output.close, "")
        else:
            self._output.close()

    def _attempt(self, what: str, call: Callable[[], None], again: str) -> None:
        try:
            call()
        except Exception as error:
            if isinstance(error, BrokenPipeError) and not self._name:
                raise
            if what not in self._failing:
                _log.warning("%scannot write samples: %s%s", self._name and f"{self._name}: ", reason(error), again)
            self._failing.add(what)
        else:
            self._failing.discard(what)


class QueuedOutput:
    """An output in a thread of its own, so that a slow one delays nothing else.

    Updates for which the output is too slow are dropped, oldest first, but never an update with a list of workers.

    Args:
        output: the output; the thread makes all calls to it.
        name: its name in messages.
    """

    def __init__(self, output: Output, name: str) -> None:
        self._output = GuardedOutput(output, name)
        self._name = name
        self._mailbox = Mailbox[Update](is_lasting=lambda update: update.workers is not None)
        self._has_dropped = False
        self._thread = threading.Thread(target=self._run, name=f"tpumon-{name}", daemon=True)
        self._thread.start()

    def on_update(self, update: Update) -> None:
        """Queues an update; never blocks."""
        self._mailbox.send(update)
        if self._mailbox.dropped and not self._has_dropped:
            self._has_dropped = True
            _log.warning("%s: too slow; dropping samples, oldest first", self._name)

    def close(self) -> None:
        """Gives the output at most 1.5 s to write what is queued."""
        self._mailbox.close()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        for updates, closing in self._mailbox.batches(lambda: self._output.due_in_s):
            for update in updates:
                self._output.on_update(update)
            if not closing:
                self._output.tick_if_due()
        self._output.close()


def reason(error: Exception) -> str:
    """Fault of an output, in a few words."""
    return error.strerror or str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"

"""Base of extra sources: sources whose figures join those of the profiler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from msgspec import Struct, field
from msgspec.structs import fields

from tpumon.collection.sources.doctor_reports import About, ExtraSourceReport
from tpumon.model import Figures

if TYPE_CHECKING:
    from tpumon.collection.sources.base import SourceOptions
    from tpumon.collection.sources.rpc import Client
    from tpumon.model import Failure, FigureWarning, Target

OpenClient = Callable[[str], "Client"]
"""Makes a channel to an address; makes no call yet."""


class Reading(Struct, frozen=True, kw_only=True):
    """Result of one read of an extra source.

    Attributes:
        figures: they fill in what the profiler left absent.
        warnings: what a reader of the figures should know.
        failures: parts that failed although the extra source answered.
        simulated: whether tpumon's simulator answered.
    """

    figures: Figures = field(default_factory=Figures)
    warnings: tuple[FigureWarning, ...] = ()
    failures: tuple[Failure, ...] = ()
    simulated: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The warnings, then the failures, as text."""
        return (*(warning.message for warning in self.warnings), *(failure.message for failure in self.failures))


class ExtraSource(ABC):
    """Reads further figures of one worker, beside its profiler; remembers what it needs about that worker.

    A new one is a file here and a line in `tpumon.collection.sources.EXTRA_SOURCES`.

    Args:
        target: the worker.
        open_client: makes a channel.

    Attributes:
        name: as in `Failure.source`.
        alone: as in `Sample.source` if extra sources alone answered, this one first; empty: its name.
        title: what the live view calls it then; empty: the same.
        about: how `doctor` speaks of it.
        shows_life: whether its answer shows that the worker lives; if not, it counts only where something else does.
        usual_interval_s: from one read to the next; reading more often brings nothing new.
    """

    name: ClassVar[str]
    alone: ClassVar[str] = ""
    title: ClassVar[str] = ""
    about: ClassVar[About]
    shows_life: ClassVar[bool] = True
    usual_interval_s: ClassVar[float] = 5.0

    def __init__(self, target: Target, open_client: OpenClient) -> None:
        self.target = target
        self.open_client = open_client

    @classmethod
    def open(cls, target: Target, open_client: OpenClient, options: SourceOptions) -> Self | None:  # noqa: ARG003
        """The extra source of one worker; makes no call yet. None if it has none, or none is asked for."""
        return cls(target, open_client)

    @classmethod
    def places(cls, targets: Sequence[Target]) -> Sequence[Target]:
        """The targets to examine for `doctor`: one for each place where there may be such an extra source."""
        return targets

    @property
    def address(self) -> str | None:
        """The address at which it answered last, if that is not the worker's own."""
        return None

    @abstractmethod
    async def read(self) -> Reading | None:
        """Looks once, within 2 s. None if it is not there, which is no error.

        Raises:
            SourceError: something is there, but does not answer as it should.
        """

    async def examine(self) -> ExtraSourceReport:
        """Finds out for `doctor` what it gives.

        Raises:
            SourceError: as `read`.
        """
        address = self.address or self.target.address
        reading = await self.read()
        if reading is None:
            return ExtraSourceReport(address=address, state="absent", words="not there")
        return ExtraSourceReport(
            address=self.address or address,
            state="ok",
            words=", ".join(present(reading.figures)) or "no figure now",
            simulated=reading.simulated,
            warnings=reading.lines,
        )

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Closes its connection, if any."""


def present(figures: Figures) -> dict[str, Any]:
    """The figures that are not absent, by name."""
    names = (item.name for item in fields(Figures) if item.name != "absent")
    return {name: value for name in names if (value := getattr(figures, name)) != getattr(_NOTHING, name)}


_NOTHING = Figures()

"""Specification of a figure: how it is named, compared, shown and exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from tpumon.model.figures import Figures
from tpumon.model.sample import Sample
from tpumon.model.target import INFERRING

Unit = Literal["ratio", "seconds", "count", "rate"]
Origin = Literal["device", "steps", "host", "runtime", "programs", "requests", "both"]


def _nothing(_figures: Figures) -> None:
    return None


class FigureSpec(Struct, frozen=True, kw_only=True):
    """One figure that workers have: all but its values, which are in `Figures`.

    Attributes:
        key: short name: what `--sort` takes, and the key of graphs and medians.
        fields: the fields of `Figures` that it is made of, `server.` before those of a server; the reason for its
            absence is that of the first.
        label: its name in a list, for example "MXU".
        title: its column title, if it is compared; includes the unit if the cells do not show it.
        about: one sentence that explains it.
        origin: what shows it. In traces: ops of a device, which a job on a CPU has none of, steps, or events of the
            host; libtpu's runtime metrics; of a server, its programs in traces, its own metrics, or both together.
        value: the number to compare and draw; None for a figure that is no single number.
        range: min and max over the steps of the window; None for a figure without steps.
        method: how it was measured, if there are several methods.
        subject: what the program calls the thing measured, for example the step's function.
        size_bytes: used and total bytes, for a share of a size.
        unit: ratio (0-1), seconds, a count, or a rate per second.
        worse: which end is worse.
        compared: whether workers are compared by it: in rows, graphs, the summary and `--sort`.
        level: the lowest monitoring level that includes it.
        of_training: True if it says nothing of a server: on screens the figures of a server stand in its place.
        from_monitor: True if the Monitor RPC reports it, too.
        always_shown: whether it is on screen even before any worker has reported it.
        metric: name of its Prometheus metric; None: it has none, or some with labels in `outputs/metrics`.
    """

    key: str
    fields: tuple[str, ...]
    label: str
    about: str
    origin: Origin
    title: str = ""
    value: Callable[[Figures], float | None] = _nothing
    range: Callable[[Figures], tuple[float, float] | None] | None = None
    method: Callable[[Figures], str | None] = _nothing
    subject: Callable[[Figures], str | None] = _nothing
    size_bytes: Callable[[Figures], tuple[float, float] | None] = _nothing
    unit: Unit = "ratio"
    worse: Literal["low", "high"] = "high"
    compared: bool = False
    level: int = 2
    of_training: bool = False
    from_monitor: bool = False
    always_shown: bool = False
    metric: str | None = None

    @property
    def name(self) -> str:
        """The first of its fields, as the reason for its absence is kept: without `server.`."""
        return self.fields[0].rpartition(".")[2]

    @property
    def source(self) -> str:
        """Source of the figure, in a few words."""
        return f"Monitor RPC or {_SOURCES[self.origin]}" if self.from_monitor else _SOURCES[self.origin]

    @property
    def of_device(self) -> bool:
        """True if a worker without a device cannot have it."""
        return self.origin in _OF_DEVICES

    @property
    def of_server(self) -> bool:
        """True if only servers of models have it."""
        return self.origin in {"programs", "requests", "both"}

    def applies_to(self, sample: Sample) -> bool:
        """True if it says something of the job in a sample."""
        if self.of_server:
            return serves(sample)
        return (not self.of_training or trains(sample)) and not (self.of_device and is_on_cpu(sample))

    @property
    def help(self) -> str:
        """The HELP of its metric."""
        return self.about if self.from_monitor or self.origin == "runtime" else f"{self.about} Only from {self.source}."

    def why_absent(self, figures: Figures) -> str | None:
        """The reason why it is absent; None if it is present or no reason is known."""
        return figures.absent.get(self.name)


_OF_DEVICES: frozenset[Origin] = frozenset({"device", "runtime"})
_SOURCES: Mapping[Origin, str] = {
    "device": "traces",
    "steps": "traces",
    "host": "traces of the host",
    "runtime": "runtime metrics",
    "programs": "traces of a server",
    "requests": "a server's own metrics",
    "both": "traces and a server's own metrics",
}


def serves(sample: Sample) -> bool:
    """True if the figures of a server are those to show: it has some, and its job is of such a kind."""
    return sample.figures.server is not None and sample.kind in INFERRING


def is_on_cpu(sample: Sample) -> bool:
    """True if its job runs on a CPU: its trace shows no device, and no device is known otherwise."""
    figures = sample.figures
    return sample.device_type == "CPU" and not figures.devices and figures.hbm_total_bytes is None


def trains(sample: Sample) -> bool:
    """True if the figures of steps are shown: of a training job, and of a server that also trains."""
    return not serves(sample) or sample.kind == "mixed"

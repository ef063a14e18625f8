"""Reports of sources about themselves, for `tpumon doctor`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tpumon.model import JobSigns

COST = "; the job is traced for 1 % of the time by default (--max-duty)"

State = Literal["ok", "absent", "busy", "failed", "not asked"]


class RpcAnswer(Struct, frozen=True, kw_only=True):
    """The outcome of one RPC, or why it was not called; `words` are one line."""

    rpc: str
    state: State
    words: str


class Examination(Struct, frozen=True, kw_only=True):
    """Findings of a profiler source about a server that offers it.

    Attributes:
        answers: by RPC, in the order of the calls.
        usable: whether figures can come from it.
        gives: which figures, and their price.
        generation: the age of the server, as its answers show it.
        device_planes: whether its traces hold device planes; None if none was returned.
        writes_only: whether it can only write traces to a disk.
        host_events_safe: whether host events may be collected; None if that was not found out.
        simulated: whether tpumon's simulator answered.
    """

    answers: tuple[RpcAnswer, ...] = ()
    usable: bool = True
    gives: str = ""
    generation: str | None = None
    device_planes: bool | None = None
    writes_only: bool = False
    host_events_safe: bool | None = None
    simulated: bool = False


class Offered(Struct, frozen=True, kw_only=True):
    """A metric that a service lists.

    Attributes:
        name: on the wire.
        kind: for example "gauge"; empty if an older libtpu does not say, like the unit.
        unit: as the service writes it.
        shown: whether tpumon reads it.
    """

    name: str
    kind: str
    unit: str
    shown: bool


class About(Struct, frozen=True, kw_only=True):
    """Words with which `doctor` speaks of an extra source.

    Attributes:
        title: heading of its section.
        key: name of its reports in `--output json`.
        gives: one of it, and which figures it gives at what price.
        several: the same for more than one; empty: as `gives`.
        nowhere: what to say if there is no place to look on this host.
        absent: what is missing if a TPU job runs without it; empty: nothing is.
        absent_remedy: what to do about that.
        failed_remedy: what to do if it is there but fails.
        shows_job: whether it answers only while a job uses the TPU.
    """

    title: str
    key: str
    gives: str
    several: str = ""
    nowhere: str = "none"
    absent: str = ""
    absent_remedy: str = ""
    failed_remedy: str = "see the job's own log"
    shows_job: bool = False


class ExtraSourceReport(Struct, frozen=True, kw_only=True):
    """Report about one extra source at one place, for `doctor`.

    Attributes:
        address: where it is, or may be.
        state: `absent`: nothing listens there.
        words: one line.
        simulated: whether tpumon's simulator answered.
        offered: the metrics that it lists; None if it lists none.
        warnings: what it warns about, and its metrics that failed.
    """

    address: str
    state: State
    words: str
    simulated: bool = False
    offered: tuple[Offered, ...] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """Words of the text output."""
        return self.words


def figures_by_traces(*, devices: bool | None, holds_tpu: bool, safe: bool) -> str:
    """Words for the figures that short traces of a server have, as far as its answers and its process show it."""
    if devices:
        return f"by short traces: MXU, idle and step time{COST}"
    if holds_tpu:
        return f"by short traces: MXU, idle and step time once the TPU the job holds shows in them{COST}"
    if safe:
        return f"by short traces: step time; no TPU is seen{COST}"
    return f"by short traces: no figures unless the job uses a TPU; none is seen{COST}"


def release_of(*, returns_traces: bool, safe: bool, signs: JobSigns) -> str:
    """Names of the releases that answer so."""
    if returns_traces:  # TensorFlow and XProf have the same
        return "as in jaxlib 0.7 and 0.8" if not safe else "as in jaxlib 0.9 or newer"
    match signs.framework:
        case "TensorFlow":
            return "as in TensorFlow 2.20 or older"
        case "PyTorch/XLA":
            return "as in PyTorch/XLA 2.9 or older"
    return "as in jaxlib 0.6 or older" + ("" if signs.framework else ", TensorFlow 2.20 or older, PyTorch/XLA")

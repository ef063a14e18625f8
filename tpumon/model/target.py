"""Workers to query, their addresses, and the queries."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from msgspec import Struct, field
from msgspec.structs import asdict

from tpumon.model.documents import Count, UnixTime, at_most

LONGEST_WINDOW_S = 10.0
"""The longest window that tpumon chooses by itself."""
_MOST_EVIDENCE = 10
INFERRING: frozenset[JobKindName] = frozenset({"serving", "batch", "mixed"})
"""Kinds of job that run a model for others, at least in turn."""


class Address(Struct, frozen=True):
    """A host and a port. As text, as gRPC dials it: `host:port`, IPv6 in brackets.

    Attributes:
        host: a name or an IP address, IPv6 without brackets.
        port: TCP port.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `host:port`, IPv6 in brackets. `tpumon.discovery.addresses` parses what users write.

        Raises:
            ValueError: the text is not of this form.
        """
        host, _, port = text.rpartition(":")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The host as an IP address; None for a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def is_this_host(self) -> bool:
        """True if the host is `localhost` or a loopback address."""
        return self.host == "localhost" if self.ip is None else self.ip.is_loopback

    @property
    def place(self) -> Address:
        """The canonical spelling of this address, for comparisons."""
        host = self.host.lower().rstrip(".")
        return Address("localhost" if host in {"localhost", "127.0.0.1", "::1"} else host, self.port)

    def at(self, port: int) -> Address:
        """The address of another port on the same host."""
        return Address(self.host, port)


Framework = Literal["JAX", "TensorFlow", "PyTorch/XLA"]


class Pod(Struct, frozen=True, kw_only=True):
    """A container of a pod, by Kubernetes' names."""

    namespace: str
    name: str
    container: str


class Process(Struct, frozen=True, kw_only=True):
    """The process of a worker, where it runs on this host.

    Attributes:
        user: name of its owner, or the number where there is none.
        command: the program and its script or module, never other arguments.
    """

    pid: Count
    user: str | None = None
    command: str | None = None
    started_unix_s: UnixTime | None = None


ProcessState = Literal["runs", "stopped", "debugged", "ended"]
"""stopped: by a signal. debugged: stopped by a debugger, or for a moment by a profiler. ended: its parent may not have
noticed. runs: none of these, or it cannot be seen."""

JobKindName = Literal["training", "serving", "batch", "mixed", "interactive", "unknown"]
KindSign = Literal["notebook", "server", "job"]
"""Signs of a job's kind that its processes show: a notebook's kernel, a server of models, or a start as a job that ends
by itself: by `tpumon run`, by a Job or JobSet, or outside Kubernetes as one of several workers."""


class JobKind(Struct, frozen=True, kw_only=True):
    """The kind of job that a worker runs.

    Attributes:
        kind: the kind.
        evidence: what it rests on, one line each.
        since_unix_s: when that was seen first.
    """

    kind: JobKindName
    evidence: Annotated[tuple[str, ...], at_most(_MOST_EVIDENCE)] = ()
    since_unix_s: UnixTime | None = None


class JobSigns(Struct, frozen=True, kw_only=True):
    """Signs of what a job uses, and of what it can stand. The default says nothing, and so allows nothing.

    Attributes:
        framework: the one whose profiler server it has; None if unknown.
        holds_tpu: whether it has a TPU open.
        holds_gpu: whether it has a GPU open.
        may_use_gpu: whether it has one open, or a library loaded that would use one.
        host_events_safe: whether host tracing cannot deadlock it, however old its server.
        pid: its process, where that can be seen.
        hung_before_s: when a trace of the host began that hung the job before it at its address, in seconds since this
            machine was started; 0: none is known.
    """

    framework: Framework | None = None
    holds_tpu: bool = False
    holds_gpu: bool = False
    may_use_gpu: bool = False
    host_events_safe: bool = False
    pid: int | None = None
    hung_before_s: float = 0.0


class Target(Struct, frozen=True, kw_only=True):
    """One worker's profiler server.

    Attributes:
        worker: unique display name: the host's name if known, otherwise the address.
        address: `host:port` to connect to; IPv6 in brackets.
        job: the job that it belongs to, if known; in Kubernetes NAMESPACE/NAME.
        slice: the slice whose workers run the same steps, if known; medians are computed per job and slice.
        independent: True if it is not known to work together with others; it is then compared with no other worker.
        runtime_addresses: candidates for its runtime metric service, tried in this order.
        server_metrics: URL of the page on which its server counts its requests, found or given; None: it has none.
        attached: whether the job said that its own traces wait for samples (`tpumon run`).
        pod: the one that holds the TPUs of its host, as the kubelet says; None: several do, or it is not known.
        process: its process, where it runs on this host.
        process_before: the one that this has replaced, where a tpumon of this host sampled that.
        job_kind: the kind of job that it runs, as an option says; None: it is found.
        kind_signs: what its processes show of it.
        environment: the variables of its job's environment that name the job, until that is decided.
        exporter: name of the exporter that samples it; None: this process does.
        name: what that exporter calls it, where `worker` is longer because other exporters have workers of that name.
        slice_workers: how many workers its slice has; None: not known.
        job_slices: how many slices its job has; None: not known.
        ambiguous: True if two exporters have different workers of this job, slice and name: it is compared with none.
    """

    worker: str
    address: str
    job: str | None = None
    slice: str | None = None
    independent: bool = False
    runtime_addresses: tuple[str, ...] = ()
    server_metrics: str | None = None
    attached: bool = False
    pod: Pod | None = None
    process: Process | None = None
    process_before: Process | None = None
    job_kind: JobKindName | None = None
    kind_signs: tuple[KindSign, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    exporter: str | None = None
    name: str | None = None
    slice_workers: int | None = None
    job_slices: int | None = None
    ambiguous: bool = False


class ListedTarget(Struct, frozen=True, kw_only=True):
    """A worker as a list of an exporter or a recording has it; fields as in `Target`."""

    worker: str
    address: str
    job: str | None = None
    slice: str | None = None
    independent: bool = False
    name: str | None = None
    slice_workers: Count | None = None
    job_slices: Count | None = None

    @classmethod
    def of(cls, target: Target) -> ListedTarget:
        """The part of a target that others may know."""
        return cls(**{name: getattr(target, name) for name in cls.__struct_fields__})


class Workers(Struct, frozen=True, kw_only=True):
    """All workers to follow from now on, not only the new ones.

    Attributes:
        targets: unique by name, and by address where this process samples them; a worker that stays keeps its name.
        waiting: if there are no targets, one line that says where tpumon looked and what to do.
        finders: by name, whether each way in which they are found works now; if not, the known workers stay.
        via: the runs of all exporters that their samples came through.
        unheard: names of exporters that do not answer, and whose workers nobody knows.
    """

    targets: tuple[Target, ...] = ()
    waiting: str | None = None
    finders: Mapping[str, bool] = field(default_factory=dict)
    via: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()

    @classmethod
    def listed(cls, listed: Iterable[ListedTarget], waiting: str | None) -> Workers:
        """The workers of a list: of two with a name the first, and none without name or address."""
        targets: dict[str, Target] = {}
        for each in listed:
            if each.worker and each.address:
                targets.setdefault(each.worker, Target(**asdict(each)))
        return cls(targets=tuple(targets.values()), waiting=None if targets else waiting)


class Query(Struct, frozen=True, kw_only=True):
    """One query of a worker.

    Attributes:
        level: 1 (type, MXU) or 2 (also idle, steps, infeed).
        window_s: length of the window; None lets the source choose it.
        interval_s: the effective interval, to be recorded in the sample.
        allowed_s: for how long the job may be traced at a time without being asked less often than is wanted; None:
            not known.
        known_window_s: the window that shows its steps, as another tpumon of this host found it; None: not known.
        ops: how many top operations and categories to name; 0: none, which costs nothing.
    """

    level: int
    window_s: float | None = None
    interval_s: float | None = None
    allowed_s: float | None = None
    known_window_s: float | None = None
    ops: int = 0

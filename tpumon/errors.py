"""Every exception that tpumon raises on purpose, and what each reason of a failed query means.

    TpumonError                 exit status 1
    ├── UsageError              2   the command line is wrong; says what would be right
    ├── NoTargetError           3   no target ever answered
    └── SourceError             1   one query of one target failed; carries one of REASONS

A message says what happened and what to do, in one line. Where it ends the command, `tpumon.cli.process` prints it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct

Reason = Literal[
    "unavailable",
    "deadline",
    "busy",
    "continuous",
    "unimplemented",
    "not-a-profiler",
    "empty-trace",
    "malformed",
    "too-large",
    "refused",
    "resolve",
    "paused",
    "internal",
]
REASONS: tuple[Reason, ...] = get_args(Reason)

Detail = Literal[
    "connection-refused", "no-route", "server-gone", "not-seen", "host-trace", "host-trace-waits", "stopped"
]
"""What more is known of a failure than its reason. connection-refused: the host is there, but nothing listens at the
port. no-route: the network leads to no such host, so that what runs there is unknown. server-gone: nothing listens, and
a tpumon of this host has sampled the server that was there. not-seen: no trace of this server could show whether
anything runs. host-trace: a trace of the host by tpumon has probably hung the job. host-trace-waits: it may have.
stopped: a signal has stopped the process, which is of this host."""

NOT_SEEN = "it cannot be seen whether anything runs"
"""Words for `not-seen`."""


class Meaning(Struct, frozen=True, kw_only=True):
    """Consequences of a reason, whoever asks.

    Attributes:
        remedy: what a user can do about it.
        unreached: no profiler server answered there; what answers next may be another one.
        final: asking again does not help.
        traced: the job may have been traced although the query failed.
        state: the state of a worker whose query failed so and that has no figures.
        usable: the server is well: it has figures at another time.
    """

    remedy: str = "see the job's own log"
    unreached: bool = False
    final: bool = False
    traced: bool = True
    state: Literal["down", "no-activity", "busy", "continuous", "paused"] = "down"
    usable: bool = False

    @property
    def retry(self) -> bool:
        """True if the same query may be tried again in a moment; False if the server asks to be left alone."""
        return not self.final and self.state in {"down", "no-activity"}


WENT_AWAY = "look at the end of the job's log, and whether its host was taken away: it answered before"
"""Remedy for a worker that is unavailable now."""

_ITS_OWN_JOB = "look at the end of its job's log, and whether its host was taken away: others of its slice answer"

SUGGESTED_PORT = 9999
"""The port of a JAX job's profiler server, where none was asked."""

START_JAX_SERVER = "server = jax.profiler.start_server({})"
"""The line that a JAX job needs, by the port. It assigns the server, which may be garbage-collected otherwise."""

_ADD_SERVER = f"check that the job runs; if it does, add `{START_JAX_SERVER}` to it"

MEANING: Mapping[Reason, Meaning] = {
    "unavailable": Meaning(remedy=f"{_ADD_SERVER.format(SUGGESTED_PORT)} and give that port", unreached=True),
    "deadline": Meaning(
        remedy="check that its host is alive, and that no firewall between here and there closes the port",
        unreached=True,
    ),
    "busy": Meaning(
        remedy="wait: tpumon stands back until the other session is over, then goes on by itself",
        traced=False,
        state="busy",
        usable=True,
    ),
    "continuous": Meaning(
        remedy="none needed: tpumon stands back until the continuous session is stopped, then goes on by itself",
        traced=False,
        state="continuous",
        usable=True,
    ),
    "unimplemented": Meaning(final=True, traced=False),
    "not-a-profiler": Meaning(
        remedy="give the port that the job passes to start_server",
        unreached=True,
        final=True,
        traced=False,
    ),
    "empty-trace": Meaning(remedy="wait for the job to begin a step", state="no-activity", usable=True),
    "malformed": Meaning(),
    "too-large": Meaning(remedy="ask for a shorter window", final=True),
    "refused": Meaning(final=True),
    "resolve": Meaning(
        remedy="check the name, or give the IP address", unreached=True, traced=False
    ),
    "paused": Meaning(
        remedy="wait, or run `tpumon pause 0` as the user who paused it", traced=False, state="paused"
    ),
    "internal": Meaning(),
}  # fmt: skip
"""The one place that says what a reason means."""


_REMEDIES: Mapping[Detail | None, str] = {
    "server-gone": WENT_AWAY,
    "host-trace": "restart the job; then leave out --host-tracer-level, or update the job to jaxlib 0.9 or newer",
    "host-trace-waits": "ask again in half a minute; without an answer by then, restart the job, and leave out "
    "--host-tracer-level",
    "stopped": "let it go on, unless somebody has stopped it on purpose",
}


def remedy(
    reason: Reason,
    detail: Detail | None,
    *,
    addresses: Collection[str] = (),
    answered: bool = False,
    others_answer: bool = False,
) -> str:
    """Returns what a user can do about a failure.

    Args:
        reason: of the failure.
        detail: of the failure.
        addresses: that were asked, as `host:port`.
        answered: whether the worker answered before.
        others_answer: whether others of its slice answer now.
    """
    if detail in _REMEDIES:
        return _REMEDIES[detail]
    if reason == "unavailable" and (answered or others_answer):
        return WENT_AWAY if answered else _ITS_OWN_JOB
    if detail == "no-route":
        return "check the address, that its host is up, and the routes and firewalls between here and there"
    ports = {address.rpartition(":")[2] for address in addresses}
    if reason == "unavailable" and ports and all(map(str.isdecimal, ports)):
        several = len(ports) > 1
        add = _ADD_SERVER.format("PORT" if several else ports.pop())
        return f"{add}, each with the port of its address" if several else add
    return MEANING[reason].remedy


class TpumonError(Exception):
    """Something that tpumon expects to happen at times; `exit_status` is what the process ends with."""

    exit_status = 1


class UsageError(TpumonError):
    """The command line is wrong.

    Attributes:
        option: the one that is wrong, without dashes, where the message does not name it.
        others: further errors of the same file, one line each.
    """

    exit_status = 2

    def __init__(self, message: str, *, option: str = "", others: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.option = option
        self.others = others


class NoTargetError(TpumonError):
    """No target ever answered."""

    exit_status = 3


class SourceError(TpumonError):
    """One query of one target failed. As text: "ADDRESS: message".

    Attributes:
        reason: one of REASONS, for labels and programs.
        message: what happened and what to do, without the address; only for people.
        detail: what more is known than the reason; None: nothing.
        address: the `host:port` that was asked; None for data that has none.
        status: name of the gRPC status that the server answered with, for example "NOT_FOUND"; None for none.
        status_text: the text that came with that status, as it came.
        traced_s: how long the job was traced although the query failed.
        window_s: length of the window in which nothing ran; None of other failures.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        address: str | None = None,
        detail: Detail | None = None,
        status: str | None = None,
        status_text: str = "",
        traced_s: float = 0.0,
        window_s: float | None = None,
    ) -> None:
        super().__init__(message if address is None else f"{address}: {message}")
        self.reason: Reason = reason
        self.message = message
        self.address = address
        self.detail = detail
        self.status = status
        self.status_text = status_text
        self.traced_s = traced_s
        self.window_s = window_s

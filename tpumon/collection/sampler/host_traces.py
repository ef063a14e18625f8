"""Traces of the host that have hung a job: what this host's tpumons know of them, in words.

With jaxlib 0.5.0 to 0.8.3 they hang it for ever, unless TensorFlow is imported; tpumon takes them there only if told.
From then on the job's server has no answer, or refuses all as busy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from tpumon.discovery.addresses import server_name
from tpumon.discovery.host.jobs import stopped_at
from tpumon.discovery.host.listening import signs_at
from tpumon.discovery.host.processes import STOPPED, going_on, is_stopped, start_ticks_of, state_of
from tpumon.errors import MEANING, SourceError
from tpumon.model import JobSigns
from tpumon.system.host_files import since_boot_s, time_of_day
from tpumon.system.ledger import UNANSWERED_COUNTS_S, DutyLedger, Entry, PeerEntry

_ANSWERS_IN_S = 10.0


def may_be_hung(error: SourceError) -> bool:
    """True if a server that a trace of the host has hung would fail so."""
    return error.reason == "deadline" or MEANING[error.reason].state in {"busy", "continuous"}


def may_be_stopped(error: SourceError, address: str, pid: int | None) -> bool:
    """True if it may be as a signal has stopped the process of a server of this host: see `stopped_words`."""
    is_here = pid is not None or server_name(address).startswith("localhost:")
    return is_here and error.reason in {"deadline", "not-a-profiler"}


def stopped_words(address: str, pid: int | None) -> str:
    """Returns words for a process of this host that does not answer as a signal has stopped it; empty: it is not so.

    May block.

    Args:
        address: of the server.
        pid: its process; None: not known, as where it is another user's.
    """
    if pid is not None:
        return stopped(pid) if is_stopped(pid) else ""
    job = stopped_at(address)
    words = None if job is None else job.not_yet(time.time())
    return "" if words is None else ": ".join(words)


def stopped(pid: int) -> str:
    """The words for a process that a signal has stopped."""
    return f"its process {STOPPED}: {going_on(pid)}"


def hung_by(peers: Sequence[PeerEntry], process: int | None, unanswered_s: float = 0.0, answered_s: float = 0.0) -> str:
    """Returns words for a trace of the host that has probably hung a job, as `hung_at`; empty: there is none."""
    begun_s = hung_at(peers, process, unanswered_s, answered_s)
    if not begun_s:
        return ""
    return (
        f"the trace of the host that tpumon began at {time_of_day(begun_s)} has not ended: the job has probably hung; "
        "restart it, and leave out --host-tracer-level"
    )


def hung_at(peers: Sequence[PeerEntry], process: int | None, unanswered_s: float, answered_s: float) -> float:
    """Returns when a trace of the host began that has probably hung a job, since boot; 0: there is none.

    Args:
        peers: what the other tpumons say of the server; those of this user are believed of the same process.
        process: the start of the server's process, as in `PeerEntry`.
        unanswered_s: as in `Entry`, of this tpumon.
        answered_s: the same.
    """
    entries = of_process(peers, process)
    answered_s = max([answered_s, *(entry.answered_s for entry in entries)])
    begun = [begun_s for begun_s in (unanswered_s, *(entry.unanswered_s for entry in entries)) if begun_s > answered_s]
    ago_s = since_boot_s() - max(begun, default=0.0)
    return max(begun) if begun and _ANSWERS_IN_S <= ago_s < UNANSWERED_COUNTS_S else 0.0


def signs_and_hang_at(address: str) -> JobSigns | None:
    """Signs of the job at an address of this host, and whether the one before it was hung. May block."""
    signs = signs_at(address)
    return None if signs is None else replace(signs, hung_before_s=_hung_before_s(address, signs.pid))


def _hung_before_s(address: str, pid: int | None) -> float:
    """Begin of a trace of the host, by a tpumon of this user, that hung another process there; 0: none is known."""
    server, process = server_name(address), None if pid is None else start_ticks_of(pid)
    with suppress(OSError):
        peers = DutyLedger().peers([server]).get(server, ())
        own_s = [one.entry.hung_s for one in peers if one.uid == os.getuid()]
        others = {one.process for one in peers} - {process}
        begun_s = max([0.0, *own_s, *(hung_at(peers, other, 0.0, 0.0) for other in others)])
        return begun_s if since_boot_s() - begun_s < UNANSWERED_COUNTS_S else 0.0
    return 0.0


def waits(peers: Sequence[PeerEntry], process: int | None) -> str:
    """Returns words for a trace of the host that a tpumon of this user still waits for; empty: there is none."""
    now_s = since_boot_s()
    ours = (one for one in peers if one.uid == os.getuid() and (process is None or one.process in {None, process}))
    for one in ours:
        if one.entry.waits_since_s and now_s < one.entry.shares_until_s:
            return waits_since(one.entry.waits_since_s, f" (pid {one.pid})")
    return ""


def waits_since(begun_s: float, whose: str = "") -> str:
    """Words for a trace of the host without an answer so far, from when it began, as in `Entry`."""
    at = time_of_day(begun_s)
    may_be = "it may have hung the job (jaxlib 0.5.0 to 0.8.3)"
    return f"a trace of the host by tpumon{whose} has had no answer since {at}: {may_be}"


def of_process(peers: Sequence[PeerEntry], process: int | None) -> Sequence[Entry]:
    """Entries of this user's tpumons about the same process; none if the process is not known."""
    return [one.entry for one in peers if one.uid == os.getuid() and one.process == process is not None]


def actual_failure(error: SourceError, address: str, begun_s: float = 0.0) -> SourceError:
    """Returns the failure of a command's call, of a server that a trace of the host has hung as that. May block.

    Args:
        error: the failure.
        address: of the server.
        begun_s: when the call began such a trace, in seconds since this machine was started; 0: it did not. Later
            tpumons are told.
    """
    if not may_be_hung(error) and error.reason != "not-a-profiler":
        return error
    begun_s = begun_s if error.reason == "deadline" else 0.0  # else no trace began
    server, signs = server_name(address), signs_at(address)
    pid = None if signs is None else signs.pid
    if pid is not None and state_of(pid) == "ended":
        return SourceError("unavailable", f"its process ({pid}) has just ended", address=address)
    if may_be_stopped(error, address, pid) and (words := stopped_words(address, pid)):
        return SourceError("deadline", words, address=address, detail="stopped")
    process = None if pid is None else start_ticks_of(pid)
    with suppress(OSError):
        ledger = DutyLedger()
        if begun_s and process is not None:
            ledger.note_host_trace(server, process, unanswered_s=begun_s)
        peers = ledger.peers([server]).get(server, ())
        words = hung_by(peers, process, begun_s)
        if not words and may_be_hung(error) and (waiting := waits(peers, process)):
            return SourceError(error.reason, waiting, address=address, detail="host-trace-waits")
    return SourceError("deadline", words, address=address, detail="host-trace") if words else error


def note_answered(address: str, pid: int | None) -> None:
    """Takes back what this user's tpumons have said of a server that has answered a command. May block.

    Args:
        address: of the server.
        pid: its process; None: not known, and nothing was said of it.
    """
    if pid is None or (process := start_ticks_of(pid)) is None:
        return
    server = server_name(address)
    with suppress(OSError):
        ledger = DutyLedger()
        if any(entry.unanswered_s for entry in of_process(ledger.peers([server]).get(server, ()), process)):
            ledger.note_host_trace(server, process, answered_s=since_boot_s())

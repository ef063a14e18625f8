"""Traces of the host that have hung a job: what this host's tpumons know of them, in words.

With jaxlib 0.5.0 to 0.8.3 they do so for good, unless TensorFlow is imported; tpumon takes them there only if told to.
From then on the job's server has no answer, or refuses all as busy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress

from tpumon.discovery.addresses import server_name
from tpumon.discovery.host.listening import signs_at
from tpumon.discovery.host.processes import start_ticks_of
from tpumon.errors import HOST_TRACE, MEANING, SourceError
from tpumon.system.host_files import since_boot_s
from tpumon.system.ledger import DutyLedger, PeerEntry

_ANSWERS_IN_S = 10.0


def may_be_hung(error: SourceError) -> bool:
    """True if a server that a trace of the host has hung would fail so."""
    return error.reason == "deadline" or MEANING[error.reason].state in {"busy", "continuous"}


def hung_by(peers: Sequence[PeerEntry], process: int | None, own_s: float = 0.0) -> str:
    """Returns words for a trace of the host that has probably hung a job; empty: there is none.

    Args:
        peers: what the other tpumons say of the server; they are believed of the same process only.
        process: the start of the server's process, as in `PeerEntry`.
        own_s: as `Entry.unanswered_s`, of this tpumon.
    """
    known = [one for one in peers if one.trusted and one.process == process is not None]
    begun = [begun_s for begun_s in (own_s, *(one.entry.unanswered_s for one in known)) if begun_s]
    ago_s = since_boot_s() - min(begun, default=math.inf)
    if ago_s < _ANSWERS_IN_S:
        return ""
    at = time.strftime("%H:%M:%S", time.localtime(time.time() - ago_s))
    return f"{HOST_TRACE} at {at} has not ended: the job has probably hung; restart it"


def explained(error: SourceError, begun_s: float = 0.0) -> SourceError:
    """Returns the failure of a command's call, of a server that a trace of the host has hung as that. May block.

    Args:
        error: the failure.
        begun_s: when the call began such a trace, in seconds since this machine was started; 0: it did not. Later
            tpumons are told.
    """
    if error.address is None or not may_be_hung(error):
        return error
    server, signs = server_name(error.address), signs_at(error.address)
    process = None if signs is None or signs.pid is None else start_ticks_of(signs.pid)
    words = ""
    with suppress(OSError):
        ledger = DutyLedger()
        if begun_s and process is not None:
            ledger.note_unanswered(server, process, begun_s)
        words = hung_by(ledger.peers([server]).get(server, ()), process, begun_s)
    return SourceError("deadline", words, address=error.address) if words else error

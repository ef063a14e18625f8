"""The other tpumons of this host that trace a server, as its account counts and names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpumon.discovery.host.processes import tpumon_named
from tpumon.system.host_files import time_of_day
from tpumon.system.ledger import Entry, PeerEntry


@dataclass(slots=True)
class CountedPeer:
    """Seconds counted for a peer.

    Attributes:
        from_s: when it was first seen, since boot.
        base_s: what it had traced by then that is counted otherwise.
        counted_s: what was counted since.
        is_new: True if it had no figure by then, and was not seen tracing since.
        calls: of it that have traced the server, as far as was seen.
    """

    from_s: float
    base_s: float
    counted_s: float
    is_new: bool
    calls: int

    @classmethod
    def begun(cls, entry: Entry, boot_s: float, *, begun_since: bool, is_fresh: bool) -> CountedPeer:
        """A peer that was not known.

        Args:
            entry: what it says.
            boot_s: the present time, since boot.
            begun_since: it began after the entries were read last, so that all of it is still to be counted.
            is_fresh: it did, or says so just now.
        """
        base_s = 0.0 if begun_since else entry.traced_s
        calls = 0 if entry.traced_s and is_fresh else entry.calls
        return cls(boot_s, base_s, 0.0, is_new=begun_since or not entry.traced_s, calls=calls)

    def count(self, peer: PeerEntry, credit_s: float) -> float:
        """Counts what it has traced; returns the seconds that were not counted."""
        entry = peer.entry
        self.base_s = min(self.base_s, entry.traced_s)
        counted_s = entry.traced_s - self.base_s
        if not peer.trusted:  # no more than time had passed when it said so
            counted_s = min(counted_s, credit_s + max(0.0, entry.time_s - self.from_s))
        traced_s, self.counted_s = counted_s - self.counted_s, counted_s
        return traced_s


def others_words(first: PeerEntry | None, went_first: PeerEntry | None, sharing: Sequence[PeerEntry]) -> str:
    """Returns words for the other tpumons that trace the same server, and what that means here; empty: there are none.

    Args:
        first: that goes before this one.
        went_first: that has traced it since this one did.
        sharing: all that follow the server.
    """
    if first is not None:
        why = "has waited longer" if first.entry.calls else "has no figures yet"
        if first.entry.calls and (lacks := first.entry.lacks):
            why = f"lacks {lacks} sample{'s' * (lacks > 1)} for its answer"
        return f"{_who(first)} goes first, as it {why}"
    gone = "" if went_first is None else _who(went_first)
    before = gone and f"{gone} has just traced it"
    if len(sharing) > 1:
        others = f"{len(sharing)} other tpumons sample it, too: each at a part of the rate"
        return "; ".join(filter(None, (before, others)))
    if sharing:
        who = _who(sharing[0])
        before = f"{before} and" if gone == who else "; ".join(filter(None, (before, who)))
        return f"{before} samples it, too: each at half the rate"
    return before


def earlier_sampler_words(peers: Sequence[PeerEntry]) -> str:
    """Returns words for the tpumon that has sampled a server last; empty: none says so."""
    last = max((one for one in peers if one.trusted and one.entry.calls), key=_said_s, default=None)
    if last is None:
        return ""
    return f"{_who(last)} sampled it from {time_of_day(last.entry.since_s)} on"


def named(peer: PeerEntry) -> tuple[str, int | None]:
    """Returns what tells a peer from others: its file, and the process that it speaks of."""
    return peer.file, peer.process


def _who(peer: PeerEntry) -> str:
    return tpumon_named(peer.pid, peer.uid)


def _said_s(peer: PeerEntry) -> float:
    return peer.entry.time_s

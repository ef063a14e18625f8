"""Account of one server: the time for which this host's tpumons have traced it, and when they may again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from tpumon.collection.sampler.debt import Debt
from tpumon.collection.sampler.host_traces import hung_at, hung_by, of_process, waits
from tpumon.collection.sampler.peers import CountedPeer, earlier_sampler_words, named, others_words
from tpumon.collection.sampler.traced_spans import TracedSpans
from tpumon.model.progress import Traced
from tpumon.system.host_files import since_boot_s
from tpumon.system.ledger import Entry, PeerEntry, Turn, said

CREDIT_S = 1.0
"""Seconds that may be traced at once, before the share of time counts. They are the job's, not each tpumon's."""

INFORMED_S = 2.0
"""For how long it is known what the others have traced, once they were asked."""

INFORM_AGAIN_S = 10.0
"""After which they are asked again whether they have traced less than they thought."""

_MOST_DOUBTED_S = 60.0  # what an entry of another user counts for at first: 100 minutes at 1 %
_MOST_PEERS = 200
_LEAST_BETWEEN_S = 60.0  # two processes at an address that begin with a share of their own
_UNDER_WAY_S = 10.0  # after it was charged, a call may still be under way
_FIRST_CALLS = 3  # of each tpumon may use all of the credit at once: a verdict takes three samples
_RESERVE_S = 0.5  # of the credit is theirs, so that who comes to a job that is watched need not wait
_SAVING = 1.5  # times the interval that the share asks for, until the reserve is there again
_SAVES_UP_TO_S = _RESERVE_S / 2  # of dearer calls it would hold too few, and a hang is to be told within minutes
_WAITS_S = INFORM_AGAIN_S + INFORMED_S  # who waits renews its entry within that
_GOES_WITHIN_S = INFORMED_S + 1.0  # once the credit covers its call
_PROBES_APART_S = 30.0  # after a pause or a stop, which anybody may begin and end as often as they like
_GIVES_WAY_S = 60.0  # at least, to those that do not go, however they say that they wait


class DutyAccount:
    """Seconds for which all tpumons of this host have traced one server, as far as this one knows.

    If the process of the server is known, the account is of that process alone: the next one there begins anew.

    Args:
        duty_ratio: the share of time for which this tpumon may trace it.
        now_s: the present time, by a monotonic clock, as in all methods.
    """

    def __init__(self, duty_ratio: float, now_s: float) -> None:
        self.duty_ratio = duty_ratio
        self.interval_s = 0.0
        """From one query to the next, as the worker plans it; 0: it asks no longer."""
        self.likely_s: float | None = None
        """Likely cost of the next query in seconds, by the last answer; None: there was none."""
        self.is_silent = False
        """True if the next query is short, to tell if a device that fell silent runs again: debt may wait for it."""
        self.process: int | None = None
        """The start of its process, in clock ticks since this machine was started; None: not known."""
        self.address = ""
        """Its address as the worker has it that followed it last, for messages."""
        self.window_s = 0.0
        """Length of a trace that shows its steps, where tpumon chooses it; 0: not known."""
        self.promised_s = float("-inf")
        """When its first figures come, as far as it was known last; minus infinity: they were not late."""
        self.unanswered_s = 0.0
        """When this tpumon began a trace of the host that may hang the job and has no answer, as in `Entry`."""
        self.answered_s = 0.0
        """When the server answered after another one's, as in `Entry`."""
        self.waits_since_s = 0.0
        """When it began such a trace that is under way, as in `Entry`."""
        self.hung_s = 0.0
        """When one began that hung the process before, as in `Entry`."""
        self.probed_s = float("-inf")
        """When this tpumon probed it last."""
        self.waits_for_s: float | None = None
        """Likely cost of the call that waits for its turn; None: none does."""
        self.followers = 0
        """Number of this tpumon's workers that have this server: several names may mean one."""
        self.awaited = 0
        """Number of calls after which a command can answer; 0: it is no command."""
        self._woken = asyncio.Event()
        self._under_way_s = 0.0  # estimates of calls that were entered and not settled
        self._calls_since_s = 0.0  # when the first of them began, since boot; 0: there is none
        self._spans = TracedSpans()  # of all of them, whatever process they traced
        self._counted_peers: dict[tuple[str, int | None], CountedPeer] = {}  # by file and process
        self._begin_entry()
        self._begin(now_s)

    def _begin_entry(self) -> None:
        """Begins the entry of one process: what it says was traced is of that one; a call under way may be."""
        self._own_s = self._under_way_s
        self._since_s: float | None = None  # when it was first written

    def _begin(self, now_s: float) -> None:
        """Begins with all of the credit; a call under way may trace the new process."""
        self._begun_s = now_s
        self._debt = Debt(self.duty_ratio, self._under_way_s, now_s)
        self._calls = 0
        self.window_s, self.is_silent = 0.0, False
        self._last_s: float | None = None  # when this tpumon's last call began
        self._was_passed = False  # a newcomer has gone first since then
        self._before: tuple[float | None, bool] = None, False  # the same before that call
        self._saves = False  # it asks less often, for the reserve
        self._before_debt: tuple[float, float] | None = None  # of the process before, at the time it was restarted
        self._first: PeerEntry | None = None  # of those that go before it
        self._ahead_s = 0.0  # likely cost of their calls
        self._goes_s = float("-inf")  # when the last of them is likely to go
        self._gives_way_s: tuple[float, float] | None = None  # from when only they keep it waiting; until when at most
        self._informed_s = float("inf")  # when they were last asked what they have traced
        self._peers: Sequence[PeerEntry] = ()
        self._charged_s = float("-inf")  # when another one was charged last, since boot
        self._sharing: Sequence[PeerEntry] = ()
        self._went_first: PeerEntry | None = None  # who has traced it since this tpumon's last call

    @property
    def pace_s(self) -> float:
        """The least time from one query to the next for each second that it costs.

        In silence twice as much as the share asks for: half of it pays the debt of the long trace before. Who has begun
        only now may be over soon, as commands are, so it does not count yet.
        """
        return self._usual_pace_s * (2 if self.is_silent else _SAVING if self._saves else 1)

    @property
    def _usual_pace_s(self) -> float:
        staying = sum(one.entry.calls >= _FIRST_CALLS for one in self._sharing)
        return (1 + staying) / self._debt.ratio

    @property
    def lacks(self) -> int:
        """Number of calls for which a command goes first: those that it lacks of its first few."""
        return max(min(self.awaited, _FIRST_CALLS) - self._calls, 0)

    @property
    def is_informed(self) -> bool:
        """True if the entries of the other tpumons were read just now."""
        return abs(since_boot_s() - self._informed_s) < INFORMED_S

    @property
    def is_shared(self) -> bool:
        """True if other tpumons follow the same server."""
        return bool(self._sharing)

    @property
    def others(self) -> str:
        """Words for the other tpumons that trace the same server, and what that means here; empty: there are none."""
        return others_words(self._first, self._went_first, self._sharing)

    @property
    def earlier_sampler(self) -> str:
        """Words for the tpumon that has sampled the server last; empty: none says so."""
        return earlier_sampler_words(self._peers)

    def gives_way(self, now_s: float) -> bool:
        """True if another one that waits goes first: none of another user, nor one that should have gone by now.

        One that never goes keeps nobody waiting for ever: it may count another process's debt, or others go before it.
        """
        mine, boot_s = self._turn(now_s), since_boot_s()
        before = [
            (turn, one)
            for one in (() if self.is_silent or self._latest_s <= now_s else self._sharing)
            if one.trusted and (turn := one.entry.turn) is not None and turn.order < mine.order
            if boot_s - one.entry.time_s < _WAITS_S and not self._should_have_gone(one.entry, turn, now_s)
        ]
        self._ahead_s = sum(turn.cost_s * min(max(one.entry.lacks, 1), _FIRST_CALLS) for turn, one in before)
        self._first = min(before, key=lambda each: each[0].order)[1] if before else None
        if before and self._gives_way_s is None and self.ready_s(mine.cost_s) <= now_s:
            all_s = self._debt.at(now_s) + sum(min(turn.cost_s, CREDIT_S) for turn, _ in before)
            due_s = now_s + max(0.0, all_s - CREDIT_S) / self._debt.ratio
            self._gives_way_s = now_s, due_s + max(_GIVES_WAY_S, 2 * mine.cost_s * self.pace_s)
        self._goes_s = max((self._goes_by_s(one.entry, turn, now_s) for turn, one in before), default=float("-inf"))
        return self._first is not None

    @property
    def _latest_s(self) -> float:
        """The time from which a call gives way to nobody."""
        return float("inf") if self._gives_way_s is None else self._gives_way_s[1]

    def _goes_by_s(self, entry: Entry, turn: Turn, now_s: float) -> float:
        """The time by which the call of another one should have been made; infinity: it should have been by now."""
        debt_s = self._debt_by_both_s(entry, now_s)
        if not debt_s and self._gives_way_s is not None and now_s >= self._gives_way_s[0] + _GOES_WITHIN_S:
            return float("inf")
        return now_s + (debt_s - max(0.0, CREDIT_S - turn.cost_s)) / self._debt.ratio + _GOES_WITHIN_S

    def _turn(self, now_s: float) -> Turn:
        """The place of the call that waits."""
        since_s = self._since_s or since_boot_s()
        if self._last_s is not None:
            since_s = max(0.0, since_boot_s() - (now_s - self._last_s))
        rank = 0 if not self._calls or self._was_passed or self.lacks else 1
        return Turn(rank, since_s, self.waits_for_s or self.likely_s or 0.0)

    def _should_have_gone(self, entry: Entry, turn: Turn, now_s: float) -> bool:
        """True if the credit has covered a call of another one for a while, also as that one counts it."""
        return (CREDIT_S - turn.cost_s - self._debt_by_both_s(entry, now_s)) / self._debt.ratio >= _GOES_WITHIN_S

    def _debt_by_both_s(self, entry: Entry, now_s: float) -> float:
        """The debt as this tpumon or another one counts it, whichever is more."""
        return max(self._debt.at(now_s), entry.debt_at(since_boot_s()))

    @property
    def hung_by(self) -> str:
        """Words for a trace of the host that has probably hung the job, of this tpumon or another; empty: none has."""
        return hung_by(self._peers, self.process, self.unanswered_s, self.answered_s)

    @property
    def host_trace_waits(self) -> str:
        """Words for a trace of the host that another tpumon still waits for, so that it may hang; empty: none does."""
        return waits(self._peers, self.process)

    @property
    def known_window_s(self) -> float | None:
        """The length of trace that shows its steps, as another tpumon found it; None: none says so."""
        return max((one.entry.window_s for one in self._peers if one.trusted), default=0.0) or None

    def informed_again_s(self, wait_s: float) -> float:
        """Seconds until entries of others are read again during a wait: few while they may have a call under way."""
        return min(wait_s, INFORMED_S if self.is_charged_elsewhere else INFORM_AGAIN_S)

    @property
    def is_charged_elsewhere(self) -> bool:
        """True if another tpumon may have a call under way: it was charged lately."""
        return since_boot_s() - self._charged_s < _UNDER_WAY_S

    def note_process(self, start: int | None, now_s: float) -> None:
        """Notes the present process of the server. A server that restarts again and again is not traced more for that.

        None: not known, or the last process has ended; waiting calls then check again.
        """
        if start is None:
            self.wake()
            return
        before = self.process
        if before not in {None, start}:
            self._note_hung()
        self.process = start
        if before is None:  # it has a share since it began, not since this tpumon came
            age_s = since_boot_s() - start / os.sysconf("SC_CLK_TCK")
            self._begun_s = min(self._begun_s, now_s - age_s)
        elif before != start:
            self.answered_s = 0.0
            self._before_debt = self._debt.at(now_s), now_s
            self._begin_entry()
            self._begin_if_due(now_s)
            self.wake()

    @property
    def is_of_two(self) -> bool:
        """True if the process was restarted so soon that it still pays for what the one before it was traced."""
        return self._before_debt is not None

    def _begin_if_due(self, now_s: float) -> None:
        """Begins anew a while after a restart, but for what the present process was traced."""
        if self.is_of_two and now_s >= self._begun_s + _LEAST_BETWEEN_S:
            own_s = self._own_debt_at(now_s)
            self._begin(now_s)
            self._debt.debt_s = max(self._debt.debt_s, own_s)

    def _own_debt_at(self, now_s: float) -> float:
        """The debt without that of the process before."""
        before_s, since_s = self._before_debt or (0.0, now_s)
        return self._debt.at(now_s) - max(0.0, before_s - self._debt.ratio * (now_s - since_s))

    def wake(self) -> None:
        """Has a call that waits check again."""
        self._woken.set()

    async def wait(self, seconds: float) -> None:
        """Waits, until it is woken at most: there is another process, or none, or it is not to be asked."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    def enter(self, estimate_s: float, now_s: float) -> None:
        """Counts a call before it is made."""
        self._begin_if_due(now_s)
        self._under_way_s += estimate_s
        self._calls_since_s = self._calls_since_s or since_boot_s()
        self._spend(estimate_s, now_s)
        self._before = self._last_s, self._was_passed
        self._last_s, self._was_passed, self._went_first = now_s, False, None
        self._gives_way_s = None
        self.wait_no_more()

    def wait_no_more(self) -> None:
        """Notes that no call waits for its turn: nobody goes before it."""
        self.waits_for_s = None
        self._go_first()

    def _go_first(self) -> None:
        """Forgets the calls of others that were to be made before."""
        self._first, self._ahead_s, self._goes_s = None, 0.0, float("-inf")

    def settle(self, estimate_s: float, traced_s: float, now_s: float) -> None:
        """Counts what the call that was entered cost, not the estimate."""
        self._under_way_s, self._calls_since_s = max(0.0, self._under_way_s - estimate_s), 0.0
        self._spend(traced_s - estimate_s, now_s)
        if traced_s:
            self._spans.note(traced_s)
            self._calls += 1
            is_cheap = self._calls >= _FIRST_CALLS and traced_s <= _SAVES_UP_TO_S
            self._saves = is_cheap and self._debt.debt_s > CREDIT_S - _RESERVE_S
        else:
            self._last_s, self._was_passed = self._before

    def note_host_trace(self, begun_s: float, *, is_answered: bool, is_gone: bool = False) -> None:
        """Notes a trace of the host that has no answer, or none; and if the server has answered, or is gone, since."""
        if is_gone:
            self._note_hung()
        if is_answered and self.unanswered_s:  # it went on until lately
            self._spans.note(since_boot_s() - self.unanswered_s)
        self.unanswered_s = 0.0 if is_answered or is_gone else self.unanswered_s or begun_s
        if is_answered and any(entry.unanswered_s for entry in of_process(self._peers, self.process)):
            self.answered_s = since_boot_s()

    def _note_hung(self) -> None:
        """Notes that the process ends: if a trace of the host has hung it, the next one is spared."""
        hung_s = hung_at(self._peers, self.process, self.unanswered_s, self.answered_s)
        self.hung_s, self.unanswered_s = hung_s or self.hung_s, 0.0

    def charge(self, traced_s: float, now_s: float) -> None:
        """Counts an activity check, which does not wait for its share: the next query does."""
        self._spans.note(traced_s)
        self._spend(traced_s, now_s)

    def ready_s(self, cost_s: float, before_s: float = 0.0) -> float:
        """The time from which a call of this cost may be made: the credit covers it, or all of the credit is there.

        In silence, some time after the last call, whatever the debt.

        Args:
            cost_s: what it is likely to cost.
            before_s: the cost of calls that are made before it.
        """
        if self.is_silent and self._last_s is not None:
            return self._last_s + cost_s * self.pace_s
        credit_s = max(0.0, CREDIT_S - cost_s)
        ready_s = self._debt.counted_s + max(0.0, self._debt.debt_s + before_s - credit_s) / self._debt.ratio
        ready_s = max(ready_s, self._paced_s(cost_s))
        if not self.is_of_two:
            return ready_s
        begins_s = self._begun_s + _LEAST_BETWEEN_S
        own_s = self._own_debt_at(begins_s) + before_s
        return min(ready_s, begins_s + max(0.0, own_s - credit_s) / self._debt.ratio)

    def turn_s(self, cost_s: float, calls: int = 1) -> float:
        """The time at which the last of so many calls is likely to be made: those that go first have theirs before.

        So have all who share the server, between two of them, but for those that a command goes before. After the first
        few, its own share counts, too.
        """
        rivals = sum(one.entry.lacks > 0 for one in self._sharing) if self.lacks else len(self._sharing)
        between_s = (calls - 1) * cost_s * (1 + rivals)
        later_s = between_s / self._debt.ratio
        turn_s = max(self.ready_s(cost_s, self._ahead_s + between_s), self._goes_s + later_s)
        turn_s = max(self.ready_s(cost_s, between_s), min(turn_s, self._latest_s + later_s))
        paced = calls - max(1, _FIRST_CALLS - self._calls)
        if paced <= 0:
            return turn_s
        turn_s = max(turn_s, self.ready_s(cost_s, self._ahead_s) + paced * cost_s * self._usual_pace_s)
        if cost_s > _SAVES_UP_TO_S:
            return turn_s
        return max(
            turn_s, self._debt.counted_s + (self._debt.debt_s + between_s + cost_s - _RESERVE_S) / self._debt.ratio
        )

    def _paced_s(self, cost_s: float) -> float:
        """The time from which this tpumon's own share allows a call of this cost; its first few come sooner."""
        if self._last_s is None or self._calls < _FIRST_CALLS:
            return float("-inf")
        return self._last_s + cost_s * self.pace_s

    def needs_probe(self, cost_s: float, now_s: float, *, is_renewed: bool) -> bool:
        """True if a worker that was woken is probed, as it may not be traced yet. Anybody may wake it, and often.

        Args:
            cost_s: what a trace is likely to cost.
            now_s: as in all methods.
            is_renewed: its process has ended, or is another one; else a probe, which traces it for a moment, is rare.
        """
        is_allowed = now_s - self.probed_s >= _PROBES_APART_S and self._debt.at(now_s) < max(CREDIT_S, cost_s)
        return (is_renewed or is_allowed) and self.ready_s(cost_s) > now_s

    def is_overdrawn(self, estimate_s: float, now_s: float) -> bool:
        """True if a call that was entered goes beyond the credit, because others have entered calls, too."""
        return not self.is_silent and self._debt.at(now_s) > max(CREDIT_S, estimate_s)

    def is_over(self, now_s: float) -> bool:
        """True if no sampler here follows the server, and its entry has no more effect on when others trace it."""
        return not self.followers and replace(self.entry(now_s), traced_s=0.0).counts_until_s <= since_boot_s()

    def entry(self, now_s: float) -> Entry:
        """The entry for the other tpumons."""
        if self._since_s is None:
            self._since_s = since_boot_s()
        return Entry(
            since_s=self._since_s,
            time_s=since_boot_s(),
            traced_s=max(0.0, self._own_s),
            debt_s=self._debt.at(now_s),
            duty_ratio=self.duty_ratio,
            interval_s=self.interval_s,
            calls=self._calls,
            window_s=self.window_s,
            unanswered_s=self.unanswered_s,
            answered_s=self.answered_s,
            waits_since_s=self.waits_since_s,
            said_turn=said(self._turn(now_s) if self._waits(now_s) else None),
            hung_s=self.hung_s,
            lacks=self.lacks,
        )

    def _waits(self, now_s: float) -> bool:
        """True if a call waits for others, not for this tpumon's own share; a command's next one is soon to come."""
        if self.waits_for_s is None:
            return bool(self._calls and self.lacks)
        return self._paced_s(self.waits_for_s) <= now_s

    def note_peers(self, peers: Sequence[PeerEntry], now_s: float) -> None:
        """Counts the entries of other tpumons for the same process, or for an unknown one."""
        boot_s = since_boot_s()
        peers = [peer for peer in peers if self.process is None or peer.process in {None, self.process}]
        begun = {named(peer) for peer in peers if boot_s - peer.entry.time_s < INFORMED_S} - self._counted_peers.keys()
        peers_traced = [self._note_peer(peer, boot_s) for peer in peers]
        self._debt.count(0.0, now_s)
        traced_s = sum(traced_s for traced_s, _, _ in peers_traced)
        debt_s = self._debt.debt_s + max(min(0.0, traced_s), traced_s - self._debt.unused_s)
        self._debt.debt_s, self._debt.unused_s = max([0.0, debt_s, *(debt_s for _, debt_s, _ in peers_traced)]), 0.0
        for forgotten in list(self._counted_peers)[:-_MOST_PEERS]:
            del self._counted_peers[forgotten]
        for peer, (traced_s, _, has_traced) in zip(peers, peers_traced, strict=True):
            if traced_s > 0 or (named(peer) in begun and peer.entry.traced_s):
                self._charged_s = max(self._charged_s, peer.entry.time_s)
            self._went_first = peer if has_traced else self._went_first
        self._peers, self._informed_s = peers, boot_s
        if self._first is not None and named(self._first) not in map(named, peers):
            self._go_first()
        self.note_time(now_s)

    def note_time(self, now_s: float) -> None:
        """Updates which tpumons share the server, by their last entries that still have effect."""
        boot_s = since_boot_s()
        self._sharing = [peer for peer in self._peers if peer.entry.shares_until_s >= boot_s]
        self._debt.count(0.0, now_s)
        self._debt.ratio = min([self.duty_ratio, *(peer.entry.duty_ratio for peer in self._sharing)])

    def _note_peer(self, peer: PeerEntry, boot_s: float) -> tuple[float, float, bool]:
        """Seconds that a peer traced and that were not counted; the debt that it reports, if it was not known.

        And True if it has traced the server since: what it counts before its call, it may take back.
        """
        entry = peer.entry
        unknown = self._counted_peers.pop((peer.file, None), None)  # it did not know the process at first
        tally = self._counted_peers.pop(named(peer), unknown)
        debt_s = 0.0
        if tally is None:
            begun_since = entry.since_s > self._informed_s - 2 * INFORMED_S
            is_fresh = begun_since or boot_s - entry.time_s < INFORMED_S
            tally = CountedPeer.begun(entry, boot_s, begun_since=begun_since, is_fresh=is_fresh)
            if not begun_since:  # what it says of all of them includes what it traced itself
                if peer.trusted:
                    self._spans.note(entry.traced_s, entry.since_s, entry.time_s)
                debt_s = entry.debt_at(boot_s)
                debt_s = debt_s if peer.trusted else min(debt_s, _MOST_DOUBTED_S)
        self._counted_peers[named(peer)] = tally  # last: those whose files are away are the first to be forgotten
        traced_s = tally.count(peer, CREDIT_S)
        self._spans.note(traced_s)
        has_traced = entry.calls > tally.calls or (traced_s > 0 and not entry.interval_s)
        tally.calls = entry.calls
        if tally.is_new and has_traced and not entry.lacks:
            tally.is_new, self._was_passed = False, self._was_passed or peer.trusted
        return traced_s, debt_s, has_traced

    def traced(self) -> Traced:
        """For how long all tpumons have traced it lately, a trace that has not ended included."""
        peers = of_process(self._peers, self.process)
        answered_s = max([self.answered_s, *(one.answered_s for one in peers)])
        hangs = (self.unanswered_s, *(max(one.unanswered_s, one.waits_since_s) for one in peers))
        begun = [begun_s for begun_s in (self._calls_since_s, *hangs) if begun_s > answered_s]
        return self._spans.traced(self.process, min(begun, default=0.0))

    def _spend(self, traced_s: float, now_s: float) -> None:
        self._own_s += traced_s
        self._debt.count(traced_s, now_s)

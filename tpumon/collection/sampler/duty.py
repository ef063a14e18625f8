"""For how long a job may be traced: a share of its time, whoever on this host traces it."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tpumon.discovery.addresses import server_name
from tpumon.discovery.host.processes import start_ticks_of, user_named
from tpumon.system.exporter_ports import command_to_read, how_to_read
from tpumon.system.host_files import directory, since_boot_s
from tpumon.system.ledger import DutyLedger, Entry, PeerEntry
from tpumon.system.threads import in_thread

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

CREDIT_S = 1.0
"""Seconds that may be traced at once, before the share of time counts. They are the job's, not each tpumon's."""

_MOST_DOUBTED_S = 60.0  # what an entry of another user counts for at first: 100 minutes at 1 %
_MOST_KNOWN = 200
_LOOK_S = 2.0
_AGAIN_S = 60.0  # after the files could not be used
_LEAST_BETWEEN_S = 60.0  # two processes at an address that begin with a share of their own
_LOOK_AGAIN_S = 10.0  # whether others have traced less than they thought
_BETWEEN_S = 0.03
_LOOKING_RATIO = 0.02  # of a core
_LONG_S = 5.0
_UNDER_WAY_S = 10.0  # after it was charged, a call may still be under way
_TURN_S = 1.0  # within which several that begin at once are spread
_FIRST_CALLS = 3  # of each tpumon go before those of the others: a verdict takes three samples


@dataclass(slots=True)
class _CountedPeer:
    """Seconds counted for a peer.

    Attributes:
        from_s: when it was first seen, since boot.
        base_s: what it had traced by then that is counted otherwise.
        counted_s: what was counted since.
    """

    from_s: float
    base_s: float
    counted_s: float


class DutyAccount:
    """Seconds for which all tpumons of this host have traced one server, as far as this one knows.

    Where its process is known, it is that of this process alone: one that follows at its address begins anew.

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
        self.process: int | None = None
        """The start of its process, in clock ticks since this machine was started; None: not known."""
        self.address = ""
        """Its address as the worker has it that followed it last, for messages."""
        self.window_s = 0.0
        """Length of the last trace that showed its steps, where tpumon chose it; 0: there was none."""
        self.promised_s = float("-inf")
        """When its first figures come, as the user knows it; minus infinity: nothing was said of it."""
        self.followers = 0
        """Number of this tpumon's workers that have this server: several names may mean one."""
        self._renewed = asyncio.Event()
        self._under_way_s = 0.0  # estimates of calls that were entered and not settled
        self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        """Begins with all of the credit; a call under way may trace the new process."""
        self._begun_s = now_s
        self._ratio = self.duty_ratio
        self._debt_s = self._under_way_s  # of the credit, at the moment that was counted last
        self._counted_s = now_s
        self._unused_s = 0.0  # of the share, since the others were last asked
        self._own_s = self._under_way_s
        self._calls = 0
        self.window_s = 0.0
        self._last_s: float | None = None  # when this tpumon's last call began
        self._before_s: float | None = None  # and the one before it
        self._last_interval_s = 0.0  # as it was planned then
        self._since_s: float | None = None  # when its entry was first written
        self._looked_s = float("inf")  # when they were last asked what they have traced
        self._peers: Sequence[PeerEntry] = ()
        self._charged_s = float("-inf")  # when another one was charged last, since boot
        self._known: dict[tuple[str, int | None], _CountedPeer] = {}  # by file and process
        self._sharing: Sequence[PeerEntry] = ()

    @property
    def pace_s(self) -> float:
        """The least time from one query to the next for each second that it costs."""
        return (1 + len(self._sharing)) / self._ratio

    @property
    def is_informed(self) -> bool:
        """True if it was seen just now who the others are, and what they have traced."""
        return abs(since_boot_s() - self._looked_s) < _LOOK_S

    @property
    def is_shared(self) -> bool:
        """True if other tpumons follow the same server."""
        return bool(self._sharing)

    @property
    def others(self) -> str:
        """The other tpumons that follow the same server, and what it means; empty: there are none."""
        if not self._sharing:
            return ""
        if len(self._sharing) > 1:
            return f"{len(self._sharing)} other tpumons sample it, too: each at a part of the rate"
        one = self._sharing[0]
        number = f" {one.pid}" if one.pid else ""
        return f"tpumon{number} of {user_named(one.uid)} samples it, too: each at half the rate"

    @property
    def _is_new(self) -> bool:
        """True until it has traced the server as often as a verdict takes."""
        return self._calls < _FIRST_CALLS

    @property
    def known_window_s(self) -> float | None:
        """The length of trace that shows its steps, as another tpumon found it; None: none says so."""
        return max((one.entry.window_s for one in self._peers if one.trusted), default=0.0) or None

    @property
    def gives_way_until_s(self) -> float:
        """Until when another one goes first that has traced the server fewer times than a verdict takes.

        For two intervals at most.
        """
        calls = min(self._calls, _FIRST_CALLS)
        if self._last_s is None or not any(one.trusted and one.entry.calls < calls for one in self._sharing):
            return float("-inf")
        return self._last_s + 2 * max(self._last_interval_s, (self.likely_s or 0.0) * self.pace_s)

    def looks_again_s(self, wait_s: float) -> float:
        """The time until the others are asked again by who waits so long: soon, while a call may turn out dearer."""
        return min(wait_s, _LOOK_S if self.is_charged_elsewhere else _LOOK_AGAIN_S)

    @property
    def is_charged_elsewhere(self) -> bool:
        """True if another tpumon may have a call under way: it was charged lately."""
        return since_boot_s() - self._charged_s < _UNDER_WAY_S

    def note_process(self, start: int, now_s: float) -> None:
        """Notes the process that the server has now; one that restarts over and over again is traced no more for it."""
        before, self.process = self.process, start
        if before not in {None, start} and now_s - self._begun_s >= _LEAST_BETWEEN_S:
            self._begin(now_s)
            self._renewed.set()

    async def wait(self, seconds: float) -> None:
        """Waits, until there is another process at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._renewed.wait()
        self._renewed.clear()

    def enter(self, estimate_s: float, now_s: float) -> None:
        """Counts a call before it is made."""
        self._under_way_s += estimate_s
        self._spend(estimate_s, now_s)
        self._before_s, self._last_s = self._last_s, now_s
        self._last_interval_s = self.interval_s

    def settle(self, estimate_s: float, traced_s: float, now_s: float) -> None:
        """Counts what the call that was entered cost, not the estimate."""
        self._under_way_s = max(0.0, self._under_way_s - estimate_s)
        self._spend(traced_s - estimate_s, now_s)
        if traced_s:
            self._calls += 1
        else:
            self._last_s = self._before_s

    def ready_s(self, cost_s: float) -> float:
        """The time from which a call of this cost may be made: the credit covers it, or all of the credit is there."""
        ready_s = self._counted_s + max(0.0, self._debt_s - max(0.0, CREDIT_S - cost_s)) / self._ratio
        if self._last_s is None or self._is_new or not self.is_shared:
            return ready_s
        return max(ready_s, self._last_s + cost_s * self.pace_s)

    def is_overdrawn(self, estimate_s: float, now_s: float) -> bool:
        """True if a call that was entered goes beyond the credit, because others have entered calls, too."""
        return self._debt_at(now_s) > max(CREDIT_S, estimate_s)

    def is_full(self, now_s: float) -> bool:
        """True if all credit is there."""
        return self._debt_at(now_s) <= 0

    def entry(self, now_s: float) -> Entry:
        """The entry for the other tpumons."""
        if self._since_s is None:
            self._since_s = since_boot_s()
        return Entry(
            since_s=self._since_s,
            time_s=since_boot_s(),
            traced_s=max(0.0, self._own_s),
            debt_s=self._debt_at(now_s),
            duty_ratio=self.duty_ratio,
            interval_s=self.interval_s,
            calls=self._calls,
            window_s=self.window_s,
        )

    def note_peers(self, peers: Sequence[PeerEntry], now_s: float) -> None:
        """Counts what the others say of the same process, or do not know of which."""
        boot_s = since_boot_s()
        peers = [peer for peer in peers if self.process is None or peer.process in {None, self.process}]
        begun = {_named(peer) for peer in peers if boot_s - peer.entry.time_s < _LOOK_S} - self._known.keys()
        found = [self._note_peer(peer, boot_s) for peer in peers]
        self._count(0.0, now_s)
        traced_s = sum(traced_s for traced_s, _ in found)
        debt_s = self._debt_s + max(min(0.0, traced_s), traced_s - self._unused_s)
        self._debt_s, self._unused_s = max([0.0, debt_s, *(debt_s for _, debt_s in found)]), 0.0
        for named in list(self._known)[:-_MOST_KNOWN]:
            del self._known[named]
        for peer, (traced_s, _) in zip(peers, found, strict=True):
            if traced_s > 0 or (_named(peer) in begun and peer.entry.traced_s):
                self._charged_s = max(self._charged_s, peer.entry.time_s)
        self._peers, self._looked_s = peers, boot_s
        self.note_time(now_s)

    def note_time(self, now_s: float) -> None:
        """Counts as sharing those who said so last, until that has no effect any more."""
        boot_s = since_boot_s()
        self._sharing = [peer for peer in self._peers if peer.entry.shares_until_s >= boot_s]
        self._count(0.0, now_s)
        self._ratio = min([self.duty_ratio, *(peer.entry.duty_ratio for peer in self._sharing)])

    def _note_peer(self, peer: PeerEntry, boot_s: float) -> tuple[float, float]:
        """Seconds that a peer traced and that were not counted; and the debt that it reports, if it was not known."""
        entry = peer.entry
        known = self._known.pop(_named(peer), None)
        debt_s = 0.0
        if known is None:
            begun_since = entry.since_s > self._looked_s - 2 * _LOOK_S
            known = _CountedPeer(boot_s, 0.0 if begun_since else entry.traced_s, 0.0)
            if not begun_since:  # what it says of all of them includes what it traced itself
                debt_s = entry.debt_at(boot_s)
                debt_s = debt_s if peer.trusted else min(debt_s, _MOST_DOUBTED_S)
        self._known[_named(peer)] = known  # last: those whose files are away are the first to be forgotten
        known.base_s = min(known.base_s, entry.traced_s)
        counted_s = entry.traced_s - known.base_s
        if not peer.trusted:  # no more than time had passed when it said so
            counted_s = min(counted_s, CREDIT_S + max(0.0, entry.time_s - known.from_s))
        traced_s, known.counted_s = counted_s - known.counted_s, counted_s
        return traced_s, debt_s

    def _spend(self, traced_s: float, now_s: float) -> None:
        self._own_s += traced_s
        self._count(traced_s, now_s)

    def _debt_at(self, now_s: float) -> float:
        return max(0.0, self._debt_s - self._ratio * (now_s - self._counted_s))

    def _count(self, traced_s: float, now_s: float) -> None:
        # Time that was not used does not pile up; debt of a long trace may.
        left_s = self._debt_s - self._ratio * (now_s - self._counted_s)
        self._unused_s += max(0.0, -left_s)
        self._debt_s, self._counted_s = max(0.0, max(0.0, left_s) + traced_s), now_s


class DutyControl:
    """The accounts of all servers that this tpumon follows, and their exchange with the other tpumons of this host.

    Args:
        duty_ratio: the share of time for which a server may be traced.
        ledger: where all tpumons of this host write what they trace; None: nobody else counts.
    """

    def __init__(self, duty_ratio: float, ledger: DutyLedger | None = None) -> None:
        self._duty_ratio = duty_ratio
        self._ledger = ledger
        self._accounts: dict[str, DutyAccount] = {}
        self._next: asyncio.Task[None] | None = None  # the exchange that has not begun
        self._running: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._in_use = threading.Lock()
        self._cost_s = 0.0  # of the last exchange, in processor time
        self._not_before_s = float("-inf")
        self._alone_until_s = float("-inf")
        self._has_said_shared = False

    def follow(self, address: str) -> DutyAccount:
        """The account of the server at an address: it outlives the worker, its name and its slice."""
        account = self._accounts.setdefault(server_name(address), DutyAccount(self._duty_ratio, _now_s()))
        account.followers += 1
        account.address = address
        return account

    def note_process(self, address: str, pid: int | None) -> None:
        """Notes the process of a server that is followed; None, and of one elsewhere: not known."""
        server = server_name(address)
        start = None if pid is None or not server.startswith("localhost:") else start_ticks_of(pid)
        if start is not None and server in self._accounts:
            self._accounts[server].note_process(start, _now_s())

    def leave(self, account: DutyAccount) -> None:
        """Notes that a worker is followed no longer; its account is kept until it has no effect."""
        account.followers -= 1
        if not account.followers:
            account.interval_s = 0.0
        now_s = _now_s()
        self._accounts = {at: one for at, one in self._accounts.items() if one.followers or not one.is_full(now_s)}

    async def look(self, account: DutyAccount) -> None:
        """Looks what the others have traced, unless that is known as of just now."""
        if not account.is_informed:
            await self._exchange()

    async def enter(
        self, account: DutyAccount, estimate_s: float, waits: Callable[[float], None] = lambda _wait_s: None
    ) -> None:
        """Waits until a call may be made that costs so much, and enters it; says how many seconds it waits.

        Others who have no verdict yet go first: their first call may cost more, and cheaper ones always be before it.
        """
        await self.look(account)
        while True:
            while (wait_s := account.ready_s(estimate_s) - _now_s()) > 0:
                await self._explain(account, wait_s)
                waits(wait_s)
                await account.wait(account.looks_again_s(wait_s))
                await self._exchange()
            if (left_s := account.gives_way_until_s - _now_s()) > 0:
                waits(left_s)
                await account.wait(min(left_s, _LOOK_S))
                await self._exchange()
                continue
            account.enter(estimate_s, _now_s())
            try:
                await self._exchange()  # now others see it, and it sees those who entered at the same moment
            except BaseException:
                account.settle(estimate_s, 0.0, _now_s())
                raise
            if not account.is_overdrawn(estimate_s, _now_s()):
                return
            account.settle(estimate_s, 0.0, _now_s())
            await asyncio.sleep(random.uniform(0, _TURN_S))

    async def is_charged_elsewhere(self, account: DutyAccount) -> bool:
        """Looks whether another tpumon of this host may have a call under way."""
        await self._exchange()
        return account.is_charged_elsewhere

    def settle(self, account: DutyAccount, estimate_s: float, traced_s: float) -> None:
        """Notes what the call that was entered cost."""
        if not estimate_s and not traced_s:
            return
        account.settle(estimate_s, traced_s, _now_s())
        if self._ledger is not None:
            self._exchange_soon()

    async def _explain(self, account: DutyAccount, wait_s: float) -> None:
        """Says when the first figures come, and why so late; again, when it is known that they come still later."""
        late_s = _now_s() + wait_s - account.promised_s
        if late_s < _LONG_S or wait_s < _LONG_S or account.likely_s is not None:
            return
        again = "only " if account.promised_s > 0 else ""
        account.promised_s = _now_s() + wait_s
        _log.info(
            "%s: the first sample comes %sin %.0f s: %s (--max-duty)%s",
            account.address,
            again,
            wait_s,
            account.others
            or "this host's tpumons have traced the job, or one before it at this address, for their share of its time",
            await how_to_read(),
        )

    async def close(self) -> None:
        """Tells the others that this tpumon has stopped."""
        if self._ledger is None:
            return
        for account in self._accounts.values():
            account.interval_s = 0.0
        if self._again is not None:
            self._again.cancel()
        under_way = [task for task in (self._running, self._next) if task is not None and not task.done()]
        if under_way:
            await asyncio.wait(under_way, timeout=_LOOK_S)
        with suppress(Exception):  # what it said last loses its effect by itself
            await self._in_thread(partial(self._ledger.leave, self._entries(), self._processes()))

    def _entries(self) -> dict[str, Entry]:
        now_s = _now_s()
        return {server: account.entry(now_s) for server, account in self._accounts.items()}

    def _processes(self) -> dict[str, int]:
        return {server: one.process for server, one in self._accounts.items() if one.process is not None}

    async def _exchange(self) -> None:
        """Waits for an exchange that begins after this call."""
        if self._ledger is not None:
            await asyncio.shield(self._exchange_soon())

    def _exchange_soon(self) -> asyncio.Task[None]:
        if self._next is None:
            self._next = asyncio.create_task(self._exchange_after(self._running), name="ledger of duty")
        return self._next

    async def _exchange_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        await asyncio.sleep(self._not_before_s - _now_s())
        self._running, self._next = self._next, None
        if _now_s() < self._alone_until_s:
            return
        assert self._ledger is not None
        said = self._has_said_shared
        try:
            exchange = partial(self._ledger.exchange, self._entries(), self._processes())
            peers, command = await self._in_thread(lambda: (exchange(), "" if said else command_to_read()))
        except Exception as error:  # noqa: BLE001 - whatever it is, sampling goes on
            self._count_alone(error)
            return
        now_s = _now_s()
        for server, account in self._accounts.items():
            account.note_peers(peers.get(server, ()), now_s)
        self._say_shared(command)
        self._look_again()
        self._not_before_s = now_s + max(_BETWEEN_S, self._cost_s / _LOOKING_RATIO)

    def _say_shared(self, command: str) -> None:
        """Says once that another tpumon follows what this one follows: samples come more rarely from then on."""
        shared = [one.address for one in self._accounts.values() if one.is_shared and one.followers]
        if not shared or self._has_said_shared:
            return
        self._has_said_shared = True
        _log.info(
            "%s%s: another tpumon of this host samples it, too, so samples may come more rarely: all share the time "
            "for which a job may be traced (--max-duty)%s",
            shared[0],
            f" and {len(shared) - 1} more" if len(shared) > 1 else "",
            command,
        )

    def _look_again(self) -> None:
        """Looks now and then, however rarely a query is due: who looks late does not know when the others traced."""
        if self._again is not None:
            self._again.cancel()
        if any(account.interval_s for account in self._accounts.values()):
            self._again = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._exchange_soon)

    async def _in_thread(self, use: Callable[[], _Result]) -> _Result:
        """Uses the ledger in a thread: in one at a time, also where the last one hangs in a file system.

        Raises:
            OSError: the files cannot be used.
            TimeoutError: the file system does not answer.
        """
        if self._in_use.locked():
            raise TimeoutError

        def use_alone() -> _Result:
            begun_s = time.thread_time()
            with self._in_use:
                try:
                    return use()
                finally:
                    self._cost_s = time.thread_time() - begun_s

        return await in_thread(use_alone, timeout_s=_LOOK_S)

    def _count_alone(self, error: Exception) -> None:
        if self._alone_until_s == float("-inf"):
            why = "it does not answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
            _log.info(
                "%s: %s; the share of time for which jobs are traced is kept by this tpumon alone, "
                "not together with others on this host",
                directory(),
                why,
            )
        self._alone_until_s = _now_s() + _AGAIN_S
        for account in self._accounts.values():
            account.note_time(_now_s())


def _named(peer: PeerEntry) -> tuple[str, int | None]:
    return peer.file, peer.process


def _now_s() -> float:
    return asyncio.get_running_loop().time()

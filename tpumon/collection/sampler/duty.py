"""Limits how long a job is traced: a share of its time for all tpumons of this host together."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from tpumon.collection.sampler.duty_account import INFORM_AGAIN_S, INFORMED_S, DutyAccount
from tpumon.collection.sources import ProfilerSource
from tpumon.discovery.addresses import server_name
from tpumon.discovery.host.processes import start_ticks_of
from tpumon.errors import SourceError
from tpumon.model.progress import Progress
from tpumon.system.exporter_ports import command_to_read, how_to_read
from tpumon.system.host_files import directory
from tpumon.system.ledger import DutyLedger, Entry
from tpumon.system.threads import in_thread
from tpumon.untrusted_text import listed

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_SHARED_AGAIN_S = 4.0  # so that all who show for how long a job was traced agree
_RETRY_FILES_S = 60.0  # after the files could not be used
_FILES_ANSWER_S = 2.0  # of the file system
_LEAST_BETWEEN_EXCHANGES_S = 0.03
_EXCHANGE_RATIO = 0.02  # of a core
_WORTH_SAYING_S = 5.0
_TELL_AFTER_S = 2.0
_TURN_S = 1.0  # within which several that begin at once are spread


class DutyControl:
    """The accounts of all servers that this tpumon follows, and their exchange with the other tpumons of this host.

    Args:
        duty_ratio: the share of time for which a server may be traced.
        ledger: where all tpumons of this host write what they trace; None: nobody else counts.
        progress: told for how long each job was traced, when others say what they have; None: nobody asks.
    """

    def __init__(self, duty_ratio: float, ledger: DutyLedger | None = None, progress: Progress | None = None) -> None:
        self._duty_ratio = duty_ratio
        self._ledger = ledger
        self._progress = progress
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
        """Notes the process of a server that is followed; None, and of one elsewhere: not known, or it has ended."""
        server = server_name(address)
        start = None if pid is None or not server.startswith("localhost:") else start_ticks_of(pid)
        if server in self._accounts:
            self._accounts[server].note_process(start, _now_s())

    def leave(self, account: DutyAccount) -> None:
        """Notes that a worker is followed no longer; its account is kept until it has no effect."""
        account.followers -= 1
        if not account.followers:
            account.interval_s = 0.0
            if account.process is None:  # when it is followed again, it may be another process
                account.unanswered_s = account.answered_s = 0.0
        now_s = _now_s()
        self._accounts = {at: one for at, one in self._accounts.items() if not one.is_over(now_s)}

    async def inform(self, account: DutyAccount) -> None:
        """Reads what the others have traced, unless that is known as of just now."""
        if not account.is_informed:
            await self._exchange()

    async def enter(
        self,
        account: DutyAccount,
        likely_s: Callable[[], float],
        tell: Callable[[float, float], None] = lambda _left_s, _cost_s: None,
        ended: Callable[[], bool] = lambda: False,
    ) -> float | None:
        """Waits until a call may be made, and enters it.

        Tpumons without a figure go first, then who has waited longest, or dear calls would come after all cheaper ones.

        Args:
            account: of the server.
            likely_s: says what the call is likely to cost; what others find meanwhile may make it cheaper.
            tell: told for how many seconds the call waits, and its cost.
            ended: says if the process of the server has ended.

        Returns:
            The cost that was entered; None, and nothing is entered, if that process has ended meanwhile.
        """
        account.waits_for_s = likely_s()
        try:
            await self.inform(account)
            while not ended():
                account.waits_for_s = estimate_s = likely_s()
                if await self._enters(account, estimate_s, tell):
                    return estimate_s
            return None
        finally:
            account.wait_no_more()

    async def _enters(self, account: DutyAccount, estimate_s: float, tell: Callable[[float, float], None]) -> bool:
        """Enters a call, or waits for a while until more is known of the others."""
        wait_s, gives_way = account.ready_s(estimate_s) - _now_s(), account.gives_way(_now_s())
        if wait_s > 0 or gives_way:
            left_s = account.turn_s(estimate_s) - _now_s()
            tell(left_s, estimate_s)
            await self._say_if_late(account, wait_s, left_s)
            await account.wait(account.informed_again_s(wait_s) if wait_s > 0 else INFORMED_S)
            await self._exchange()
            return False
        account.enter(estimate_s, _now_s())
        try:
            await self._exchange()  # now others see it, and it sees those who entered at the same moment
        except BaseException:
            account.settle(estimate_s, 0.0, _now_s())
            raise
        if not account.is_overdrawn(estimate_s, _now_s()):
            return True
        account.settle(estimate_s, 0.0, _now_s())
        await asyncio.sleep(random.uniform(0, _TURN_S))
        return False

    async def is_charged_elsewhere(self, account: DutyAccount) -> bool:
        """Tells if another tpumon of this host may have a call under way."""
        await self._exchange()
        return account.is_charged_elsewhere

    async def earlier_sampler(self, account: DutyAccount, error: SourceError) -> str:
        """Words for another tpumon that has sampled a server where nothing listens now; empty: none here has."""
        if error.detail != "connection-refused" or account.likely_s is not None:  # it has answered here
            return ""
        await self.inform(account)
        return account.earlier_sampler and f" any more: {account.earlier_sampler}"

    async def tell_of_host_trace(
        self, account: DutyAccount, profiler: ProfilerSource, say: Callable[[float], None]
    ) -> None:
        """Tells all of a trace of the host that may hang the job, once it should have been answered.

        Returns when it has, or never: that trace begins amid a query, which ends this.
        """
        while not account.waits_since_s:  # nothing tells when it begins
            await asyncio.sleep(_TELL_AFTER_S)
            account.waits_since_s = profiler.unanswered_s
        say(account.waits_since_s)
        if self._ledger is not None:
            self._exchange_soon()

    def charge(self, account: DutyAccount, traced_s: float) -> None:
        """Counts an activity check; tells the others."""
        account.charge(traced_s, _now_s())
        if self._ledger is not None:
            self._exchange_soon()

    def settle(self, account: DutyAccount, estimate_s: float, traced_s: float) -> None:
        """Notes what the call that was entered cost."""
        if not estimate_s and not traced_s:
            return
        account.settle(estimate_s, traced_s, _now_s())
        if self._ledger is not None:
            self._exchange_soon()

    async def _say_if_late(self, account: DutyAccount, wait_s: float, left_s: float) -> None:
        """Says when the first figures come, and why so late; again, if later, where that rests on this tpumon alone.

        At the earliest when the job may be traced again; if it may be now, when those that go first have gone.
        """
        is_earliest = account.is_shared and wait_s > 0
        wait_s = wait_s if wait_s > 0 else left_s
        late_s = _now_s() + wait_s - account.promised_s
        if late_s < _WORTH_SAYING_S or wait_s < _WORTH_SAYING_S or account.likely_s is not None:
            return
        is_again, account.promised_s = account.promised_s > 0, _now_s() + wait_s
        if is_again and account.is_shared:
            return
        _log.info(
            "%s: the first sample comes %sin %.0f s%s (%s): %s (--max-duty)%s",
            account.address,
            "only " if is_again else "",
            wait_s,
            " at the earliest" if is_earliest else "",
            time.strftime("%H:%M:%S", time.localtime(time.time() + wait_s)),  # the line may stay on a screen
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
            await asyncio.wait(under_way, timeout=_FILES_ANSWER_S)
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
            if self._progress is not None and account.followers:
                self._progress.note_traced(account.address, account.traced())
        self._say_shared(command)
        self._inform_again()
        self._not_before_s = now_s + max(_LEAST_BETWEEN_EXCHANGES_S, self._cost_s / _EXCHANGE_RATIO)

    def _say_shared(self, command: str) -> None:
        """Says once that another tpumon follows what this one follows: samples come more rarely from then on."""
        known = [one for one in self._accounts.values() if one.followers and one.likely_s is not None]
        shared = [one.address for one in known if one.is_shared]
        if not shared or self._has_said_shared:
            return
        self._has_said_shared = True
        _log.info(
            "%s: another tpumon of this host samples it, too, so samples may come more rarely: all share the time "
            "for which a job may be traced (--max-duty)%s",
            listed(shared, 1),
            command,
        )

    def _inform_again(self) -> None:
        """Exchanges now and then, however rarely a query is due: late entries do not tell when the others traced."""
        if self._again is not None:
            self._again.cancel()
        asking = [account for account in self._accounts.values() if account.interval_s]
        if asking:
            again_s = _SHARED_AGAIN_S if any(account.is_shared for account in asking) else INFORM_AGAIN_S
            self._again = asyncio.get_running_loop().call_later(again_s, self._exchange_soon)

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

        return await in_thread(use_alone, timeout_s=_FILES_ANSWER_S)

    def _count_alone(self, error: Exception) -> None:
        if self._alone_until_s == float("-inf"):
            why = "it does not answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
            _log.info(
                "%s: %s; the share of time for which jobs are traced is kept by this tpumon alone, "
                "not together with others on this host",
                directory(),
                why,
            )
        self._alone_until_s = _now_s() + _RETRY_FILES_S
        for account in self._accounts.values():
            account.note_time(_now_s())


def _now_s() -> float:
    return asyncio.get_running_loop().time()

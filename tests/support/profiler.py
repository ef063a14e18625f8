"""A profiler client of the tests' own, which shares nothing with tpumon's but the messages."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc

from support import wait_until
from tpumon.proto.profiler_pb2 import MonitorRequest, ProfileOptions, ProfileRequest, ProfileResponse

SERVICE = "/tensorflow.ProfilerService"


class Profiler:
    """One connection to one profiler server, blocking; errors are grpc's own."""

    def __init__(self, address: str) -> None:
        # The proxy of this machine's user does not know the way to loopback.
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(address, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._channel.close()

    def profile(self, duration_ms: int, *, session_id: str, host_level: int = 0, timeout_s: float = 60) -> Any:
        """Starts one Profile call that writes no file; `.result()` is its ProfileResponse."""
        request = self._request(duration_ms, session_id, host_level)
        return self._method("Profile", ProfileResponse.FromString).future(
            request.SerializeToString(), timeout=timeout_s
        )

    def begin(self, duration_ms: int, *, session_id: str, host_level: int = 0) -> Any:
        """As `profile`, but returns only when that session is known to run."""
        calls: list[Any] = []

        def runs() -> bool:
            # The question whether it is busy is a session too, and may have been the first to arrive.
            if not calls or calls[-1].done():
                calls.append(self.profile(duration_ms, session_id=session_id, host_level=host_level))
            return self.busy() and not calls[-1].done()

        wait_until(runs, 20, "the session runs")
        return calls[-1]

    def monitor(self, duration_ms: int = 100, level: int = 2) -> bytes:
        request = MonitorRequest(duration_ms=duration_ms, monitoring_level=level)
        return self._method("Monitor")(request.SerializeToString(), timeout=30)

    def start_continuous(self, session_id: str) -> None:
        """Starts a session that goes on until `stop_continuous`, whoever calls it."""
        request = self._request(1000, session_id, 1)
        self._method("StartContinuousProfiling")(request.SerializeToString(), timeout=30)

    def snapshot(self) -> Any:
        """What the continuous session has recorded so far; it goes on."""
        return self._method("GetSnapshot", ProfileResponse.FromString)(b"", timeout=60)

    def stop_continuous(self) -> None:
        self._method("StopContinuousProfiling")(b"", timeout=60)

    def busy(self) -> bool:
        """Whether somebody else's session runs."""
        try:
            self.profile(1, session_id="is-it-busy", timeout_s=10).result()
        except grpc.RpcError as error:
            return "Another profiling session active." in (error.details() or "")
        return False

    def _method(self, name: str, parse: Callable[[bytes], Any] | None = None) -> Any:
        return self._channel.unary_unary(f"{SERVICE}/{name}", response_deserializer=parse)

    @staticmethod
    def _request(duration_ms: int, session_id: str, host_level: int) -> ProfileRequest:
        return ProfileRequest(
            duration_ms=duration_ms,
            max_events=1_000_000,
            session_id=session_id,
            host_name="test",
            repository_root="/dev/null",
            emit_xspace=True,
            opts=ProfileOptions(
                version=1, host_tracer_level=host_level, device_tracer_level=1, duration_ms=duration_ms
            ),
        )

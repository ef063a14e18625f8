"""The fakes, against answers known by other means."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import grpc
import pytest

from fakes import protobuf
from fakes.tpu_node import (
    BUSY_STEP,
    EMPTY_RESULT,
    LEVEL_2,
    UTIL_IDLE,
    Answer,
    Fail,
    Figures,
    Raw,
    TpuNode,
    Trace,
    WrongServer,
    closed_port,
)


def call(node: TpuNode, method: str, request: bytes, timeout: float = 10) -> bytes:
    """One RPC as any client would make it."""
    with grpc.insecure_channel(node.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        rpc = channel.unary_unary(f"/tensorflow.ProfilerService/{method}")
        reply = rpc(request, timeout=timeout)
        assert isinstance(reply, bytes)
        return reply


def refused(node: TpuNode, method: str, request: bytes) -> tuple[grpc.StatusCode, str | None]:
    """The status of an RPC that fails."""
    with pytest.raises(grpc.RpcError) as raised:
        call(node, method, request)
    error = raised.value
    assert isinstance(error, grpc.Call)
    return error.code(), error.details()


def test_fields_are_encoded_as_the_protobuf_documentation_shows() -> None:
    """The documentation's own examples: 150 in field 1, "testing" in field 2, a double, a zero left out."""
    assert protobuf.field(1, 150) == b"\x08\x96\x01"
    assert protobuf.field(2, "testing") == b"\x12\x07testing"
    assert protobuf.field(3, 1.5) == b"\x19" + struct.pack("<d", 1.5)
    assert protobuf.field(4, 0) == protobuf.field(5, 0.0) == b""
    message = protobuf.field(1, 150) + protobuf.field(10, b"x") + protobuf.field(3, 2.5) + protobuf.field(1, 7)
    assert protobuf.decode(message) == {1: [150, 7], 10: [b"x"], 3: [2.5]}
    with pytest.raises(ValueError, match="ends after the message"):
        protobuf.decode(b"\x12\x07test")


def test_monitor_follows_its_script_and_records_what_it_was_asked() -> None:
    """A failure, then text and figures, which stay; the level decides which figures; calls are kept with deadlines."""
    script = [Fail(details="later"), Answer(text=LEVEL_2, figures=Figures(mxu=12.5, idle=0.0))]
    with TpuNode(script) as node:
        level_2 = protobuf.field(1, 5) + protobuf.field(2, 2) + protobuf.field(3, 1)
        assert refused(node, "Monitor", level_2) == (grpc.StatusCode.UNAVAILABLE, "later")
        reply = protobuf.decode(call(node, "Monitor", level_2, timeout=7))
        assert reply[1] == [LEVEL_2.encode()]
        assert protobuf.decode(reply[10][0]) == {
            1: [3], 3: [12.5], 4: [90.8125], 5: [89.77], 6: [92.24], 7: [15.5], 8: [15.26], 9: [16.0],
        }  # fmt: skip
        reply = protobuf.decode(call(node, "Monitor", protobuf.field(2, 1)))
        assert protobuf.decode(reply[10][0]) == {1: [1], 3: [12.5]}
        asked = node.of("Monitor")
    assert [c.fields["monitoring_level"] for c in asked] == [2, 2, 1]
    assert asked[0].fields == {"duration_ms": 5, "monitoring_level": 2, "timestamp": True}
    assert 5 < (asked[1].time_remaining or 0) <= 7.5
    assert (asked[1].ended or 0) >= asked[1].at + 0.005


def test_a_response_type_decides_which_figures_travel() -> None:
    """EMPTY_RESULT is an empty message that is there; UTIL_IDLE has no steps."""
    assert Answer(figures=Figures(), response_type=EMPTY_RESULT).reply(2) == b"\x52\x00"
    result = protobuf.decode(Answer(figures=Figures(), response_type=UTIL_IDLE).reply(2))[10][0]
    assert set(protobuf.decode(result)) == {1, 2, 3}


def profile(root: str, *, window_ms: int = 20, session: str = "s1", emit: bool = True, host_level: int = 2) -> bytes:
    """A ProfileRequest."""
    opts = protobuf.field(2, host_level) + protobuf.field(3, 1) + protobuf.field(5, 1) + protobuf.field(9, window_ms)
    return (
        protobuf.field(1, window_ms) + protobuf.field(4, opts) + protobuf.field(5, root)
        + protobuf.field(6, session) + protobuf.field(7, "10.0.0.2:8466") + protobuf.field(9, int(emit))
    )  # fmt: skip


def test_generations_of_profiler_servers_differ_as_the_real_ones_do(tmp_path: Path) -> None:
    """New ones return the trace, old ones write it and refuse the probe; GetSnapshot tells the newest."""
    with TpuNode(device=True) as new, TpuNode(generation="2025") as middle, TpuNode(generation="old") as old:
        reply = protobuf.decode(call(new, "Profile", profile("/dev/null", window_ms=1, host_level=0)))
        assert b"/device:TPU:0" in reply[8][0]
        assert reply[7] == [1]
        assert b"/device:TPU:0" not in call(middle, "Profile", profile("/dev/null"))
        assert refused(old, "Profile", profile("/dev/null")) == (
            grpc.StatusCode.INTERNAL,
            "/dev/null is not a directory",
        )
        assert call(old, "Profile", profile(str(tmp_path))) == b""
        written = (tmp_path / "s1" / "10.0.0.2_8466.xplane.pb").read_bytes()
        assert b"/host:CPU" in protobuf.decode(written)[1][0]
        assert call(old, "Profile", profile("", emit=False)) == b""  # and writes nowhere
        assert refused(new, "GetSnapshot", b"") == (
            grpc.StatusCode.NOT_FOUND,
            "No continuous profiling session found.",
        )
        assert refused(middle, "GetSnapshot", b"") == (grpc.StatusCode.UNIMPLEMENTED, "")


def test_one_session_at_a_time_and_terminate_is_remembered() -> None:
    """A second Profile meets the busy message; Terminate of an unknown id ends the next session of that id at once."""
    with TpuNode(captures=[Trace(), BUSY_STEP, Trace()]) as node:
        with grpc.insecure_channel(node.address) as channel:
            rpc = channel.unary_unary("/tensorflow.ProfilerService/Profile")
            running = rpc.future(profile("/dev/null", window_ms=20_000, session="long"))
            node.wait_for(lambda: len(node.of("Profile")) == 1)
            code, details = refused(node, "Profile", profile("/dev/null", window_ms=1, session="second"))
            assert (code, details) == (grpc.StatusCode.INTERNAL, "Another profiling session active.")
            call(node, "Terminate", protobuf.field(1, "long"))
            assert protobuf.decode(running.result(timeout=10))[8]
        assert refused(node, "Profile", profile("/dev/null"))[0] == grpc.StatusCode.INTERNAL  # the script's
        call(node, "Terminate", protobuf.field(1, "next"))
        call(node, "Profile", profile("/dev/null", window_ms=20_000, session="next"))
        assert [c.fields["session_id"] for c in node.captures] == ["long", "s1", "next"]


def test_what_is_no_profiler_answers_as_such() -> None:
    """A gRPC server without the service, raw bytes as a reply, an HTTP server, an SSH banner."""
    with TpuNode(profiler=False) as other, TpuNode(Raw(reply=b"\xff\xff")) as garbage:
        assert refused(other, "Monitor", b"") == (grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        assert call(garbage, "Monitor", b"") == b"\xff\xff"
        assert refused(garbage, "EnumSessions", b"")[0] == grpc.StatusCode.UNIMPLEMENTED
    with WrongServer("HTTP") as web, socket.create_connection(web.address.split(":")) as client:  # type: ignore[arg-type]
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400")
        assert (web.connections, web.received[:3]) == (1, b"GET")
    with WrongServer("SSH") as ssh, socket.create_connection(ssh.address.split(":")) as client:  # type: ignore[arg-type]
        assert client.recv(100).startswith(b"SSH-2.0")
    with WrongServer("close") as closing, socket.create_connection(closing.address.split(":")) as client:  # type: ignore[arg-type]
        assert client.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", closed_port()))

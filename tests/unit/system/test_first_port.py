"""Which port of a host was the first, as all tpumons of the host remember it together."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tpumon.system import first_port as ledger
from tpumon.system.first_port import first_port, noted_first_port

DAY_S = 24 * 3600.0


class Clock:
    """Seconds since the boot, as they are set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(ledger, "since_boot_s", clock)
    return clock


def files() -> list[Path]:
    return sorted(Path(os.environ["TPUMON_PAUSE_DIR"]).glob("tpumon-first-*"))


def test_the_first_port_stays_the_first_until_nothing_was_there_for_a_day(clock: Clock) -> None:
    assert first_port([9999]) == 9999
    assert first_port([9012, 9999]) == 9999
    clock.now_s += DAY_S - 1
    assert first_port([9012]) == 9999
    assert first_port([9999]) == 9999
    clock.now_s += DAY_S - 1
    assert first_port([9012]) == 9999
    clock.now_s += 2
    assert first_port([9012]) == 9012
    assert len(files()) == 1


def test_of_several_that_are_new_it_is_the_least() -> None:
    assert first_port([10000, 9999]) == 9999
    assert first_port([10000]) == 9999


def test_a_port_that_a_user_named_is_not_noted(clock: Clock) -> None:
    assert noted_first_port([1234]) == 1234
    assert noted_first_port([1000, 1234]) == 1234
    assert files() == []
    assert first_port([9999]) == 9999


def test_what_is_noted_is_seldom_written(clock: Clock) -> None:
    first_port([9999])
    before = [(file, file.stat().st_ino) for file in files()]
    clock.now_s += 60
    first_port([9999])
    assert [(file, file.stat().st_ino) for file in files()] == before


def put(**changes: object) -> None:
    """A file of this user, changed."""
    said = {"boot": ledger.boot(), "network": ledger.network(), "port": 7, "since_s": 1.0, "seen_s": 999.0}
    Path(os.environ["TPUMON_PAUSE_DIR"], "tpumon-first-x").write_text(json.dumps(said | changes))


@pytest.mark.parametrize(
    ("changes", "is_believed"),
    [
        ({}, True),
        ({"boot": "another"}, False),
        ({"network": 1}, False),  # in a container's network port 7 is another one
        ({"port": 70_000}, False),
        ({"port": True}, False),
        ({"port": "7"}, False),
        ({"since_s": float("nan")}, False),
        ({"seen_s": 1e18}, False),
        ({"seen_s": None}, False),
    ],
)
def test_what_makes_no_sense_is_not_believed(clock: Clock, changes: dict[str, object], is_believed: bool) -> None:
    put(**changes)

    assert first_port([9999]) == (7 if is_believed else 9999)


@pytest.mark.parametrize("text", ["", "{", "[" * 10_000, "[1]", "null", "\udcff"])
def test_nonsense_is_not_believed(text: str) -> None:
    Path(os.environ["TPUMON_PAUSE_DIR"], "tpumon-first-x").write_bytes(text.encode(errors="surrogateescape"))

    assert first_port([9999]) == 9999


@pytest.mark.parametrize(("port", "first"), [(7, 9999), (10000, 10000)])
def test_another_user_can_only_order_the_ports_that_are_there(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, port: int, first: int
) -> None:
    put(port=port)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(ledger._FILES, "read", lambda path: (path.read_text(), 4712))

    assert first_port([9999, 10000]) == first


def test_without_the_directory_each_goes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUMON_PAUSE_DIR", "/proc/self/nowhere")

    assert first_port([10000, 9999]) == 9999

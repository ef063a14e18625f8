"""Files, threads and clocks of tpumons that share a job in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tpumon.collection.sampler import duty, duty_account, host_traces, traced_spans
from tpumon.system import host_files, ledger


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    """A directory for the files; threads and clocks are those of virtual time."""

    async def at_once(function, *, timeout_s):
        return function()

    def since_boot_s():
        return asyncio.get_running_loop().time()

    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    monkeypatch.setattr(duty, "in_thread", at_once)
    monkeypatch.setattr(duty.time, "thread_time", lambda: 0.0)  # looks are as rare as they are dear
    for module in (duty_account, traced_spans, host_traces, ledger, host_files):
        monkeypatch.setattr(module, "since_boot_s", since_boot_s)
    return tmp_path


@pytest.fixture
def starts(monkeypatch):
    """The start of each process is its number."""
    monkeypatch.setattr(duty, "start_ticks_of", lambda pid: pid)

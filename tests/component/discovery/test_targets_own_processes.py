"""The processes of workers that were named by an address, from files as the kernel writes them."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing

import pytest

from fakes.proc import JAX, FakeProc
from tpumon.discovery.dns import DnsNames
from tpumon.discovery.finder import Fixed
from tpumon.discovery.host.own_processes import WithProcesses
from tpumon.model import Target

SSH = "/usr/lib/libcrypto.so"


@pytest.fixture
def proc(tmp_path):
    return FakeProc(tmp_path / "proc")


def first(proc, address):
    """The worker at an address, as it is found first."""

    async def look():
        finder = WithProcesses(Fixed([Target(worker="w", address=address)]), proc=proc.root)
        async with aclosing(finder.watch(lambda: False)) as changes:
            (target,) = (await anext(changes)).targets
            return target

    return asyncio.run(look())


FIB_TRIE = """Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.7
        /32 host LOCAL
     |-- 192.0.2.1
        /32 link UNICAST
"""
IF_INET6 = "fd000000000000000000000000000007 02 40 00 80     eth0\n"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", socket.gethostname(), "10.0.0.7", "[fd00::7]"])
def test_a_worker_of_this_host_has_its_process(proc, host):
    (proc.root / "net" / "fib_trie").write_text(FIB_TRIE)
    (proc.root / "net" / "if_inet6").write_text(IF_INET6)
    proc.process(42, JAX)
    proc.listen(9999, 42)
    found = first(proc, f"{host}:9999")
    assert found.process.pid == 42


@pytest.mark.parametrize("address", ["192.0.2.1:9999", "worker-3.example:9999", "localhost:9998"])
def test_a_worker_elsewhere_and_a_port_where_nobody_listens_have_none(proc, address):
    (proc.root / "net" / "fib_trie").write_text(FIB_TRIE)
    proc.process(42, JAX)
    proc.listen(9999, 42)
    assert first(proc, address).process is None


def test_who_passes_a_connection_on_is_not_the_worker(proc):
    proc.process(42, SSH, program="ssh")
    proc.listen(9999, 42)
    assert first(proc, "localhost:9999").process is None


def test_a_notebook_shows_itself(proc):
    proc.process(42, JAX, cmdline="python -m ipykernel_launcher -f kernel.json")
    proc.listen(9999, 42)
    assert first(proc, "localhost:9999").kind_signs == ("notebook",)


def test_a_job_that_starts_again_is_another_process(proc):
    """Also at addresses that stay, of which the discovery itself has no more to say; between the two there is none."""

    async def look():
        finder = WithProcesses(DnsNames(["127.0.0.1:9999"]), proc=proc.root, every_s=0.01)
        async with aclosing(finder.watch(lambda: False)) as changes:
            for pid in (42, None, 43):
                proc.close(9999)
                if pid is not None:
                    proc.process(pid, JAX)
                    proc.listen(9999, pid)
                (target,) = (await asyncio.wait_for(anext(changes), 10)).targets
                yield None if target.process is None else target.process.pid

    async def pids():
        return [pid async for pid in look()]

    assert asyncio.run(pids()) == [42, None, 43]


def test_workers_elsewhere_are_found_once(proc):
    async def look():
        finder = WithProcesses(Fixed([Target(worker="w", address="192.0.2.1:1")]), proc=proc.root)
        return [workers async for workers in finder.watch(lambda: False)]

    assert len(asyncio.run(look())) == 1

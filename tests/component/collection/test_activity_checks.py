"""Short looks at a job without a device, once its process does not compute, where tracing its host is safe."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from fakes.tpu_node import TpuNode, Trace
from support.traces import Traced
from tpumon.collection.sources import Client, SourceOptions
from tpumon.collection.sources.traces import cpu_use
from tpumon.collection.sources.traces.source import TraceSource
from tpumon.errors import SourceError
from tpumon.model import JobSigns, Query, Target

QUERY = Query(level=2, window_s=0.9, allowed_s=0.01)
MS = 1000  # in us


def host(every_ms, event_ms, for_ms=900):
    """A trace of calls of a function, one after the other."""
    traced = Traced()
    plane = traced.host(None)
    for at_ms in range(0, for_ms - event_ms + 1, every_ms):
        plane.event("python", "PjitFunction(train)", at_ms * MS, event_ms * MS)
    return Trace(xspace=traced.bytes())


class Process:
    """The job's: what is seen of it, and whether it computes."""

    def __init__(self, **signs):
        self.signs = JobSigns(pid=7, **signs)
        self.computes, self.cpu_s = True, 0.0

    def cpu_s_of(self, pid):
        assert pid == 7
        self.cpu_s += self.computes * 1000.0
        return self.cpu_s

    def options(self, host_level=None):
        return SourceOptions(host_level=host_level, signs_at=lambda _address: self.signs, cpu_s_of=self.cpu_s_of)


@pytest.fixture(autouse=True)
def _each_look_counts(monkeypatch):
    monkeypatch.setattr(cpu_use, "_LEAST_S", 0.0)


def with_source(work, process=None, host_level=None, **given):
    """What the work returns, with the usual traces of the node after the probe: each with its length and host level."""
    process = process or Process()

    async def main(node):
        async with Client(node.address) as client:
            source = TraceSource(client, Target(worker="w", address=node.address), process.options(host_level))
            return await work(source, process)

    with TpuNode(**given) as node:
        result = asyncio.run(main(node))
        asked = [(one.fields["opts"]["duration_ms"], one.fields["opts"]["host_tracer_level"]) for one in node.captures]
    return result, [each for each in asked if each[0] > 1]


async def looked(source, process):
    """What short looks cost and tell: while the job computes, and when it does not; if short windows follow silence."""
    costs_s = [source.activity_check_s(QUERY)]
    await source.fetch(QUERY)
    costs_s.append(source.activity_check_s(QUERY))
    process.computes = False
    costs_s.append(source.activity_check_s(QUERY))
    seen = [await source.anything_runs() for _ in range(2 if costs_s[-1] else 0)]
    return costs_s, seen, source.note_silence(QUERY)


def test_a_job_without_a_device_is_looked_at_once_its_process_does_not_compute():
    """The look tells if anything runs, at the level of the usual trace, however long an op takes."""
    ((*before_s, cost_s), seen, is_silent), asked = with_source(
        looked, captures=(host(300, 250), Trace(), Trace(empty=True))
    )
    assert (before_s, seen, is_silent, asked[1:]) == ([0.0, 0.0], [True, False], True, [(200, 1)] * 2)
    assert 0.2 <= cost_s < 0.5


@pytest.mark.parametrize(
    ("generation", "host_level", "signs"),
    [
        ("2025", 1, {}),  # that may hang the job: only as often as the user says
        ("new", 1, {"holds_gpu": True}),  # it may wait for that
        ("new", 1, {"holds_tpu": True}),
    ],
)
def test_no_look_at_the_host_where_that_may_hang_the_job_or_does_not_tell(generation, host_level, signs):
    """Usual traces go on."""
    given = {"generation": generation, "captures": (host(60, 60), Trace())}
    (*told, is_silent), asked = with_source(looked, Process(**signs), host_level, **given)
    assert (told, is_silent, asked) == ([[0.0] * 3, []], False, [(900, 1)])


def test_no_look_at_the_host_of_another_server_that_has_the_port_by_now():
    """Tracing that one may hang its job."""

    async def work(source, process):
        await source.fetch(QUERY)
        process.computes = False
        source.activity_check_s(QUERY)
        assert source.activity_check_s(QUERY) > 0
        source._profiler.forget()
        source._profiler._host_events = replace(source._profiler._host_events, level=0)
        return await source.anything_runs()

    assert with_source(work, captures=(host(60, 60), Trace())) == (True, [(900, 1)])


def test_no_look_where_the_process_is_not_seen():
    """Whether it computes is not known then."""
    process = Process()
    process.signs = JobSigns()
    assert with_source(looked, process, captures=(host(60, 60), Trace()))[0] == ([0.0] * 3, [], False)


def test_a_job_that_does_nothing_is_asked_in_short_windows_until_it_computes():
    """They cost little, so they come often. An empty one while it computes shows no silence: an op may be longer."""

    async def work(source, process):
        await source.fetch(QUERY)
        assert source.activity_check_s(QUERY) == 0.0, "it computes"
        said = []
        for process.computes in (False, False, True, False):
            with pytest.raises(SourceError) as failed:
                await source.fetch(QUERY)
            said.append(failed.value.detail)
        return said

    captures = (host(60, 60), Trace(empty=True))
    said, asked = with_source(work, captures=captures)
    assert said == [None, None, "not-seen", None]
    assert [ms for ms, _ in asked] == [900, 500, 200, 200, 900], "the second is to tell why it idles"

"""What a report of a trace costs is bounded by the trace's size, whatever its programs' HLO calls and its ops hold."""

from __future__ import annotations

import json
import signal
import threading
from functools import partial

import pytest

from support.captures import saved
from support.captures import training as usual
from support.growth import cost
from support.traces import PROGRAM, Op, Traced
from tpumon.cli.commands import analyze
from tpumon.cli.commands import report as report_command
from tpumon.model.documents import encoded
from tpumon.proto.hlo_pb2 import HloProgram
from tpumon.report.profiles import Capture, Choice, HostProfile
from tpumon.report.sections import SECTIONS, needs, report
from tpumon.xspace import files as profiles
from tpumon.xspace.planes import plane
from tpumon.xspace.planes.plane import parsed_metadata
from tpumon.xspace.planes.space import read_space
from tpumon.xspace.profile import profile
from tpumon.xspace.profile.op_times import MOST_CONTENTS
from tpumon.xspace.profile.profile import read_profile
from tpumon.xspace.profile.program_memory import read_programs
from tpumon.xspace.trace_figures import figures_of_hosts

MOST = 5.0  # times the cost of a quarter of the trace; the square of anything would be 16
DEPTH = 10_000


def whole_report(xspace):
    """All sections of a report."""
    read = read_profile(xspace, needs(SECTIONS))
    capture = Capture(hosts=(HostProfile(name="host", profile=read),), figures=figures_of_hosts([read.trace]))
    return json.loads(encoded(report(capture, tuple(SECTIONS), Choice()).document))


class Hlo:
    """A program's HLO in the making, and the fusions that ran of it."""

    def __init__(self, *, ran=8):
        self.program = HloProgram()
        self._ran = ran
        self._fusions = []

    def computation(self, number, count=0, opcode="add"):
        made = self.program.module.computations.add(id=number, name=f"c{number}")
        for i in range(count):
            made.instructions.add(name=f"{opcode}.{number}.{i}", opcode=opcode)
        return made

    def fusion(self, computation, name, calls):
        computation.instructions.add(name=name, opcode="fusion", called_computation_ids=calls)
        self._fusions.append(name)

    def bytes(self):
        """A trace in which the first few fusions ran."""
        traced = Traced()
        core = traced.core(0)
        for i, name in enumerate(self._fusions[: self._ran]):
            core.event("XLA Ops", Op(name, "loop fusion"), 10 * i, 5)
        core.event("XLA Modules", f"jit_f({PROGRAM})", 0, 10 * self._ran)
        plane = traced.named("/host:metadata")
        metadata = plane.plane.event_metadata[plane.event_id(f"jit_f({PROGRAM})")]
        plane.put(metadata.stats, {"Hlo Proto": self.program.SerializeToString()})
        return traced.bytes()

    def contents(self):
        """What a report says the fusions are made of."""
        ops = whole_report(self.bytes())["sections"]["ops"]["ops"]
        return {op["name"]: op["contents"] for op in ops}


def called_by_all(count):
    """One computation, called by as many fusions as it has instructions."""
    hlo = Hlo()
    entry = hlo.computation(1)
    hlo.computation(2, count)
    for i in range(count):
        hlo.fusion(entry, f"fusion.{i}", [2])
    return hlo


def called_again(count):
    """One fusion that calls one computation as often as that has instructions."""
    hlo = Hlo()
    hlo.computation(2, count)
    hlo.fusion(hlo.computation(1), "fusion", [2] * count)
    return hlo


def all_call_all(count):
    """Computations that each call all the others, in several fusions each."""
    hlo = Hlo()
    side = round(count ** (1 / 3))
    for number in range(1, side + 1):
        made = hlo.computation(number, side**2)
        others = [other for other in range(1, side + 1) if other != number]
        for i in range(side):
            hlo.fusion(made, f"fusion.{number}.{i}", others)
    return hlo


def only_parameters(count):
    """Computations of parameters alone, of which nothing is to be listed however many there are."""
    hlo = Hlo()
    entry = hlo.computation(1)
    hlo.computation(2, count, "parameter")
    for i in range(count):
        hlo.fusion(entry, f"fusion.{i}", [2])
    hlo.fusion(entry, "last", [2] * count)
    return hlo


def circle(count):
    """Computations that call the next one, the last one the first, and each itself."""
    hlo = Hlo()
    for number in range(count):
        hlo.fusion(hlo.computation(number, 1), f"fusion.{number}", [(number + 1) % count, number])
    return hlo


def chain(count):
    """Computations that each call the next one."""
    hlo = Hlo()
    for number in range(count):
        hlo.fusion(hlo.computation(number, 1), f"fusion.{number}", [number + 1])
    return hlo


def duplicates(count):
    """Pairs of ops that duplicate each other."""
    traced = Traced()
    core = traced.core(0)
    for i in range(count):
        op = Op(f"fusion.{i}", "loop fusion")
        core.put(core.plane.event_metadata[core.event_id(op)].stats, {"deduplicated_name": f"fusion.{i // 2 * 2}"})
        core.event("XLA Ops", op, 10 * i, 5)
    return traced


HLO_SHAPES = [(called_by_all, 400), (called_again, 2000), (all_call_all, 1000), (only_parameters, 400), (circle, 300)]
SHAPES = [*HLO_SHAPES, (chain, 300), (duplicates, 80)]


@pytest.mark.parametrize(("shape", "count"), SHAPES, ids=[shape.__name__ for shape, _ in SHAPES])
def test_four_times_the_trace_costs_far_less_than_sixteen_times(shape, count):
    whole_report(shape(8).bytes())  # imports what it needs
    once, four_times = (cost(shape(size).bytes(), whole_report) for size in (count, 4 * count))
    assert four_times[0] < MOST * once[0]
    assert four_times[1] < MOST * once[1]


@pytest.mark.parametrize("shape", [called_by_all, called_again, all_call_all], ids=lambda shape: shape.__name__)
def test_a_fusion_lists_its_first_instructions_and_no_more(shape):
    hlo = shape(1000)
    computations = {each.id: each for each in hlo.program.module.computations}
    for name, held in hlo.contents().items():
        (fusion,) = (one for each in computations.values() for one in each.instructions if one.name == name)
        inner = [one.name for called in fusion.called_computation_ids for one in computations[called].instructions]
        assert held == inner[:MOST_CONTENTS]


def test_an_instruction_that_many_ops_hold_is_parsed_once(monkeypatch):
    traced = Traced()
    core = traced.core(0)
    child = core.event_id("child" * 1000)
    for i in range(50):
        op = Op(f"fusion.{i}", "loop fusion")
        core.event("XLA Ops", op, 10 * i, 5)
        core.plane.event_metadata[core.event_id(op)].child_id.extend([child] * 5)
    parsed = []
    monkeypatch.setattr(plane, "parsed_metadata", lambda raw: parsed.append(len(raw)) or parsed_metadata(raw))
    found = whole_report(traced.bytes())["sections"]["ops"]["ops"]
    assert [len(op["contents"]) for op in found] == [5] * len(found)
    # For its name, and to see whether it uses the matrix units.
    assert sum(length >= 5000 for length in parsed) == 2


def test_parameters_are_not_listed_however_many_there_are():
    assert set(map(tuple, only_parameters(200).contents().values())) == {()}


def test_computations_that_call_each_other_in_a_circle_are_listed_one_level_deep():
    found = circle(5).contents()
    assert found["fusion.4"] == ["add.0.0", "fusion.0", "add.4.0", "fusion.4"]


def test_a_chain_of_calls_is_listed_one_level_deep_however_long_it_is():
    hlo = chain(DEPTH)
    assert hlo.contents()["fusion.0"] == ["add.1.0", "fusion.1"]
    metadata = read_space(memoryview(hlo.bytes())).metadata
    assert [program.program_id for program in read_programs(metadata)] == [PROGRAM]


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """A file whose reading never ends, and a usual one."""
    first, second = saved(tmp_path, Traced(), usual(cores=1))
    first.write_bytes(b"")
    monkeypatch.setattr(profiles, "_CPU_S", 0.2)
    monkeypatch.setattr(profiles, "_CPU_S_PER_MB", 100.0)  # the usual one has its time on a slow machine, too

    def endless(read, *arguments):
        while not arguments[0].seek(0, 2):
            pass
        arguments[0].seek(0)
        return read(*arguments)

    for place, name in ((analyze, "read_host_totals"), (profile, "read_profile")):
        usually = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *arguments, usually=usually: endless(usually, *arguments))
    return first, second


def test_reading_a_file_that_takes_too_long_is_given_up(odd, capsys):
    """It is named, with what to do; the other one is read."""
    before = signal.getsignal(signal.SIGPROF)
    paths = [str(file) for file in odd]
    for run in (
        partial(analyze.run, paths=paths),
        partial(report_command.run, report_command.ReportSettings(paths=paths)),
    ):
        assert run() == 1
        out, (said,) = (text.splitlines() for text in capsys.readouterr())
        assert said.startswith(f"tpumon: {odd[0]}: reading these 0.0 MB was given up after 0 s of processor time")
        assert said.endswith("take one of a shorter window")
        assert any("tep time" in line for line in out)
    assert signal.getsignal(signal.SIGPROF) is before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_file_is_read_in_a_thread_too(tmp_path):
    (file,) = saved(tmp_path, usual(cores=1))
    found = []
    thread = threading.Thread(target=lambda: found.append(analyze.read_host(file)))
    thread.start()
    thread.join()
    assert found[0].sample.figures.step_time_s is not None

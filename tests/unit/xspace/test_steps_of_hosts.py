"""What a host calls is a step only as it runs: hosts are ahead of their devices, and a step may have several runs."""

from __future__ import annotations

import pytest

from support.captures import real_trace
from support.traces import CONV, Traced
from tpumon.proto.xplane_pb2 import XSpace
from tpumon.xspace.host_totals import host_totals_of, read_host_totals
from tpumon.xspace.planes.space import read_space
from tpumon.xspace.profile.step_times import step_table
from tpumon.xspace.steps.functions import TOO_FEW
from tpumon.xspace.trace_figures import figures_of_hosts
from tpumon.xspace.wire import stored


def of(space):
    return figures_of_hosts([read_host_totals(space.SerializeToString())])


def avg_us(found):
    return found.figures.step_time_s and 1e6 * found.figures.step_time_s.avg


class OnCpu:
    """A job on the host's own processors, as JAX 0.10 leaves it: calls on one thread, ops that name module and run."""

    def __init__(self):
        self.traced = Traced()
        self.host = self.traced.named("/host:CPU")
        self.runs = 0

    def call(self, function, at_us, length_us=30):
        self.host.event("python", f"PjitFunction({function})", at_us, length_us)
        self.host.event("python", f"PjitFunction({function})", at_us + 1, length_us - 2)

    def run(self, function, at_us, length_us, *, ops=4, of_ops=4, device=0):
        """A run, of which only the last ops may be in the trace; two threads take turns."""
        self.runs += 1
        for i in range(of_ops - ops, of_ops):
            self.op(function, i, at_us + i * length_us / of_ops, length_us / of_ops, device=device)

    def op(self, function, i, at_us, length_us, *, device=0):
        """An op of the last run."""
        numbers = {"run_id": 7_000 + self.runs, "device_ordinal": device}
        event = self.host.event(f"tf_XLAPjRtCpuClient/{self.runs % 2}", f"fusion.{i}", at_us, length_us, **numbers)
        module = self.host.stat_id(f"jit_{function}")
        event.stats.add(metadata_id=self.host.stat_id("hlo_module"), ref_value=module)

    def idle_until(self, at_us):
        """Another thread's event, so that the window is so long."""
        self.host.event("other", "tick", at_us, 1)


def test_a_burst_of_calls_is_as_long_as_its_runs():
    """Ten calls within a millisecond, and a wait for the last of them: a run takes 10.4 ms."""
    job = OnCpu()
    for burst in range(3):
        for i in range(10):
            job.call("train_step", 110_000 * burst + 90 * i)
            job.run("train_step", 110_000 * burst + 100 + 10_400 * i, 10_400)
    found = of(job.traced.space)
    assert avg_us(found) == pytest.approx(10_600, abs=250)
    assert (found.figures.step_source, found.figures.step_name) == ("host", "train_step")


@pytest.mark.parametrize("bursts", [1, 2])
@pytest.mark.parametrize("marked", [False, True])
def test_a_burst_whose_runs_nobody_tells_is_no_step(bursts, marked):
    job = OnCpu()
    for i in range(10 * bursts):
        at_us = 200_000 * (i // 10) + 90 * (i % 10)
        job.call("train_step", at_us)
        if marked and bursts == 1:
            job.host.event("python", "train", at_us - 5, 50, step_num=i)
    job.idle_until(390_000)
    found = of(job.traced.space)
    assert avg_us(found) is None
    assert "far ahead" in found.figures.absent["step_time_s"]
    assert not found.stepless, "a longer window may show more"


@pytest.mark.parametrize("begun_s", [-7.5, -6, -5, -3, -1, -0.1, 0.5, 1.9])
@pytest.mark.parametrize("repeats", [False, True])
def test_steps_nearly_as_long_as_the_window(begun_s, repeats):
    """8 s of 10 s: by two begins, or by ops that both runs have; where these repeat within a run, by begins alone."""
    job, begins = OnCpu(), 0
    for at_s in (begun_s, begun_s + 8, begun_s + 16):
        job.runs += 1
        if 0 <= at_s < 10:
            begins += 1
            job.call("train_step", at_s * 1e6)
        for i in range(160):
            if 0 <= (op_s := at_s + i / 20) < 9.95:
                job.op("train_step", i % 7 if repeats else i, op_s * 1e6, 50_000)
    job.idle_until(9.99e6)
    found = of(job.traced.space)
    assert avg_us(found) == (pytest.approx(8e6) if begins > 1 or not repeats else None)


def test_a_first_run_of_which_the_trace_has_but_the_end_does_not_count():
    job = OnCpu()
    job.run("train_step", 0, 80_000, ops=1)
    for i in range(1, 5):
        job.call("train_step", 80_000 * i - 10)
        job.run("train_step", 80_000 * i, 80_000)
    assert avg_us(of(job.traced.space)) == pytest.approx(80_000)


def test_devices_that_run_at_once_take_a_step_together():
    job = OnCpu()
    for i in range(6):
        job.call("train_step", 5_000 * i)
        for device in range(4):
            job.run("train_step", 5_000 * i + 100 + device, 4_500, device=device)
    assert avg_us(of(job.traced.space)) == pytest.approx(5_000)


@pytest.mark.parametrize("parts", [2, 4, 16])
@pytest.mark.parametrize("update_us", [300, 2_000])
@pytest.mark.parametrize("on_device", [False, True])
def test_gradients_that_are_accumulated_make_one_step(parts, update_us, on_device):
    """16 ms for each part, called at once, and an update: the step is from update to update."""
    job, at_us = OnCpu(), 1_000.0
    plane = Traced(job.traced.space).core(0) if on_device else None
    for number in range(5):
        for part, (function, length_us) in enumerate([*[("micro", 16_000)] * parts, ("apply", update_us)]):
            job.call(function, at_us if part == 0 else at_us + 1)
            if plane is None:
                job.run(function, at_us, length_us)
            elif (number, part) != (0, 0):  # the window begins within a step
                plane.event("XLA Modules", f"jit_{function}({len(function)})", at_us, length_us)
                plane.event("XLA Ops", CONV, at_us, length_us)
            at_us += length_us
    found = of(job.traced.space)
    assert avg_us(found) == pytest.approx(16_000 * parts + update_us)
    assert found.figures.step_name == ("jit_apply" if on_device else "apply")


@pytest.mark.parametrize("other", ["jit_log(3)", "jit_mean(3)"])
def test_what_takes_next_to_no_time_does_not_close_a_step(other):
    traced, at_us = Traced(), 100.0
    plane = traced.core(0)
    for i in range(40):
        plane.event("XLA Modules", "jit_train_step(1)", at_us, 9_900)
        plane.event("XLA Ops", CONV, at_us, 9_900)
        if i % 10 == 9:
            plane.event("XLA Modules", other, at_us + 9_910, 40)
        at_us += 10_000
    assert avg_us(of(traced.space)) == pytest.approx(10_000)


def test_evaluation_in_between_does_not_close_a_step():
    """Several batches in a row, after every twenty steps."""
    traced, at_us = Traced(), 100.0
    plane = traced.core(0)
    for _ in range(4):
        for name in [*["jit_train_step(1)"] * 20, *["jit_eval_step(2)"] * 5]:
            plane.event("XLA Modules", name, at_us, 9_900)
            plane.event("XLA Ops", CONV, at_us, 9_900)
            at_us += 10_000
    assert of(traced.space).figures.step_name == "jit_train_step"


@pytest.mark.parametrize(("every", "wrong"), [(573, True), (784, False), (2 * 784, False)])
def test_steps_that_a_host_marks_count_on_a_tpu_if_its_programs_keep_step(every, wrong):
    """Nothing else tells what a step is: no function runs as often as the host marks steps."""
    traced = Traced()
    plane = traced.core(0)
    for i in range(40):
        for part in range(2):
            plane.event("XLA Modules", f"jit_f{part}({part})", 784 * i + 200 * part, 190)
            plane.event("XLA Ops", CONV, 784 * i + 200 * part, 190)
    host = traced.host()
    for i in range(30):
        host.event("python", "train", every * i, 30, step_num=i)
    found = of(traced.space)
    assert (avg_us(found) is None) is wrong
    if not wrong:
        assert avg_us(found) == pytest.approx(every)


@pytest.mark.parametrize("emptied", [1, 4])
def test_the_real_trace_without_some_devices_never_shows_the_hosts_steps(emptied):
    """Its host calls every 0.572 s at first, and is ahead; the devices run every 0.784 s."""
    space = XSpace.FromString(real_trace().read_bytes())
    for plane in [plane for plane in space.planes if plane.name.startswith("/device:TPU:")][:emptied]:
        del plane.lines[:]
    found = of(space)
    if emptied == 1:
        assert avg_us(found) == pytest.approx(784_517, abs=100)
    else:
        assert (avg_us(found), found.figures.absent["step_time_s"]) == (None, "no program ran in the window")


def test_few_runs_are_too_few_however_many_calls():
    job = OnCpu()
    for i in range(20):
        job.call("train_step", 90 * i)
    job.run("train_step", 100, 400_000)
    assert of(job.traced.space).figures.absent["step_time_s"] == TOO_FEW


LENGTHS_US = [25_000 + 1_700 * (i * 7 % 5) for i in range(40)]
"""Steps of one job, uneven; begins are sums of them, on all hosts at once."""


def window_of(first, count, *, way, slow_us=0, by_op=False):
    """Some steps of the job on one host, whose clock begins with the window; `way`: how they are numbered."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    at_us = 40.0
    for number in range(first, first + count):
        length_us = LENGTHS_US[number] + (slow_us if number % 2 else 0)
        core.event("XLA Modules", "jit_train_step(42)", at_us, length_us, _ct=1, _c=number)
        core.event("Steps", str(1000 + number) if way == "names" else "train", at_us, length_us)
        core.event("XLA Ops", CONV, at_us, length_us)
        if way == "host":
            host.event("python", "train", at_us - 30, 200, step_num=1000 + number, _r=1)
            host.event("python", "PjitFunction(train_step)", at_us - 20, 100, _pt=1, _p=number)
        at_us += 40_000
    return host_totals_of(read_space(stored(traced.bytes())), by_op=by_op)


@pytest.mark.parametrize("way", ["host", "names"])
@pytest.mark.parametrize(("first", "second"), [(0, 3), (5, 2), (4, 4), (0, 9)])
def test_hosts_whose_windows_are_steps_apart_are_matched_by_the_programs_own_numbers(way, first, second):
    found = figures_of_hosts([window_of(first, 12, way=way), window_of(second, 12, way=way, slow_us=500)])
    common = range(max(first, second), min(first, second) + 12)
    slowest_us = [LENGTHS_US[number] + (500 if number % 2 else 0) for number in common]
    assert found.figures.step_time_s.count == len(common)
    assert avg_us(found) == pytest.approx(sum(slowest_us) / len(slowest_us))


def test_the_time_of_ops_is_that_of_the_steps_in_common():
    """Steps that only one host has count nowhere."""
    table = step_table([window_of(first, 9, way="names", slow_us=500, by_op=True) for first in (0, 3)], ())
    (op,) = set(table.ops.key.tolist())
    lengths_us = [LENGTHS_US[number] + (500 if number % 2 else 0) for number in range(3, 9)]
    assert [1e6 * time_s for time_s in table.ops_s([op])] == pytest.approx(lengths_us)


def test_hosts_without_a_step_in_common_have_no_step_time():
    found = figures_of_hosts([window_of(0, 5, way="host"), window_of(9, 5, way="host")])
    assert (avg_us(found), found.figures.absent["step_time_s"]) == (None, "no step that all hosts saw")


def test_numbers_that_count_from_the_windows_begin_match_nothing():
    traces = []
    for skipped in (0, 1):
        traced = Traced()
        core = traced.core(0)
        for number in range(6):
            core.event("Steps", str(number), 40_000 * (number + skipped), LENGTHS_US[number + skipped])
            core.event("XLA Ops", CONV, 40_000 * (number + skipped), LENGTHS_US[number + skipped])
        traces.append(read_host_totals(traced.bytes()))
    found = figures_of_hosts(traces)
    assert found.figures.step_time_s.count == 5
    assert avg_us(found) == pytest.approx(sum(LENGTHS_US[1:6]) / 5)


def test_nor_do_they_where_the_first_ones_are_cut_away():
    """The profiler dropped events between the second and the third: what is left begins with a greater number."""
    traces = []
    for skipped in (0, 1):
        traced = Traced()
        core = traced.core(0)
        for number in range(10):
            begin_us, length_us = 40_000 * (number + skipped), LENGTHS_US[number + skipped]
            core.event("Steps", str(number), begin_us, length_us)
            core.event("XLA Ops", CONV, begin_us, length_us)
        core.event("XLA TraceMe", "Trace Buffers Dropped", 40_000 * (2 + skipped) - 1000, 500)
        traces.append(read_host_totals(traced.bytes()))
    found = figures_of_hosts(traces)
    assert found.truncated is not None
    assert found.figures.step_time_s.count == 7
    assert avg_us(found) == pytest.approx(sum(LENGTHS_US[3:10]) / 7)

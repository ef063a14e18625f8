"""Samples of a simulated job, without servers: each from the bytes of a trace and the runtime's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from tpumon.errors import Reason
from tpumon.model import DeviceFigures, Failure, Figures, RuntimeFigures, Sample, Spread, StepTimes, Target, Workers
from tpumon.simulator.expected_figures import measure, window_events
from tpumon.simulator.profiler import OVERFLOW_SHARE
from tpumon.simulator.scenario import USABLE_HBM_RATIO, SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace_writer import TraceOptions, build_trace
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

BEGIN_UNIX_S = 1_800_000_000.0
NS = 1_000_000_000


class Scene:
    """A simulated job that is sampled at a steady pace, worker after worker within each interval.

    Args:
        scenario: terms of the simulator.
        topology: for example v6e-16.
        interval_s: from one sample of a worker to its next one.
        window_s: length of each trace.
        host_level: host tracer level of the traces.
        computed: whether figures come from the simulator's own numbers, without a trace: not all of them, but many
            times faster. Not for JAX programs.
    """

    def __init__(
        self, scenario: str, topology: str = "v6e-16", *, seed: int = 1, interval_s: float = 10.0,
        window_s: float = 0.35, host_level: int = 0, computed: bool = False,
    ) -> None:  # fmt: skip
        self.job = SimulatedJob(topology=parse_topology(topology), scenario=scenario, seed=seed)
        self.interval_s, self.window_s = interval_s, window_s
        self._computed = computed
        self._options = TraceOptions(host_tracer_level=host_level)
        self.names = [self.job.topology.worker_name(worker) for worker in range(self.job.topology.hosts)]

    @property
    def workers(self) -> Workers:
        """All of them, of one slice."""
        return Workers(targets=tuple(Target(worker=n, address=f"{n}:9999", slice="s") for n in self.names))

    def round(self, number: int) -> Iterator[Sample]:
        """One sample of each worker, in order of time."""
        for worker in range(len(self.names)):
            yield self.sample(worker, self.interval_s * (number + worker / len(self.names)))

    def sample(self, worker: int, at_s: float) -> Sample:
        """The sample of one worker whose window begins at a moment of the job."""
        start_ns = int(at_s * NS)
        if self.job.up_since_ns(worker, start_ns) is None:
            return self._failed(worker, at_s, "unavailable")
        if self._computed:
            return self._from_numbers(worker, at_s, start_ns)
        trace = build_trace(
            self.job, worker, start_ns=start_ns, stop_ns=start_ns + int(self.window_s * NS),
            epoch_unix_ns=int(BEGIN_UNIX_S) * NS, options=self._options,
            full_ns=start_ns + int(OVERFLOW_SHARE * self.window_s * NS) if self.job.overflow(start_ns) else None,
        )  # fmt: skip
        if trace.empty:
            return self._failed(worker, at_s, "empty-trace", self._devices(worker, start_ns))
        found = figures_of_hosts([read_host_totals(trace.xspace)])
        values = {name: getattr(found.figures, name) for name in Figures.__struct_fields__}
        values |= {"devices": self._devices(worker, start_ns), "runtime": self._runtime(worker, start_ns)}
        return self._sample(
            worker, at_s, window_s=found.window_s, source="trace", device_type=found.device_type,
            cores=found.core_count, truncated=found.truncated, figures=Figures(**values),
        )  # fmt: skip

    def _from_numbers(self, worker: int, at_s: float, start_ns: int) -> Sample:
        devices = self._devices(worker, start_ns)
        events = window_events(self.job, worker, start_ns, start_ns + int(self.window_s * NS))
        if not any(events):
            return self._failed(worker, at_s, "empty-trace", devices)
        numbers = measure(self.job, events)
        whole: dict[int, list[int]] = {}
        for core in events:
            for one in core:
                if one.partial is None:
                    whole.setdefault(one.step.number, []).append(
                        one.parts.busy - one.parts.all_reduce - one.parts.infeed
                    )
        work_ns = [max(cores) for cores in whole.values() if len(cores) == len(events)]
        step, infeed = numbers.step_s, numbers.infeed_ratio
        found = Figures(
            mxu_utilization_ratio=numbers.mxu_ratio, mxu_method="counter", idle_ratio=numbers.idle_ratio,
            duty_cycle_ratio=None if numbers.idle_ratio is None else 1 - numbers.idle_ratio,
            step_time_s=None if step is None else StepTimes(avg=step.avg, min=step.min, max=step.max),
            step_source=None if step is None else "steps", step_work_s=mean(work_ns) / NS if work_ns else None,
            infeed_ratio=None if infeed is None else Spread(avg=infeed.avg, min=infeed.min, max=infeed.max),
            programs=(str(events[0][0].step.work.program.number),) if events[0] else (),
            devices=devices, runtime=self._runtime(worker, start_ns),
        )  # fmt: skip
        return self._sample(worker, at_s, window_s=self.window_s, source="trace", figures=found)

    def _devices(self, worker: int, at_ns: int) -> tuple[DeviceFigures, ...]:
        job = self.job
        idle_s = (at_ns - job.last_busy_ns(worker, at_ns)) / NS
        total = int(job.topology.device_hbm_bytes * USABLE_HBM_RATIO)
        return tuple(
            DeviceFigures(
                device=str(worker * job.topology.devices_per_host + device),
                hbm_used_bytes=job.hbm_used_bytes(worker, device, at_ns), hbm_total_bytes=total,
                runtime_duty_cycle_ratio=0.0 if idle_s > 1 else 0.9, runtime_tensorcore_idle_s=idle_s,
                runtime_hlo_queue_size=job.queue_size(worker, at_ns),
            )
            for device in range(job.topology.devices_per_host)
        )  # fmt: skip

    def _runtime(self, worker: int, at_ns: int) -> RuntimeFigures:
        return RuntimeFigures(uptime_s=(at_ns - (self.job.up_since_ns(worker, at_ns) or 0)) / NS)

    def _failed(self, worker: int, at_s: float, reason: Reason, devices: tuple[DeviceFigures, ...] = ()) -> Sample:
        given = {"source": "runtime", "companions_only": True} if devices else {}
        runtime = self._runtime(worker, int(at_s * NS)) if devices else RuntimeFigures()
        failure = Failure(source="trace", reason=reason, message=reason)
        return self._sample(
            worker, at_s, window_s=self.window_s, errors=(failure,),
            figures=Figures(devices=devices, runtime=runtime), **given,
        )  # fmt: skip

    def _sample(self, worker: int, at_s: float, **given) -> Sample:  # type: ignore[no-untyped-def]
        name = self.names[worker]
        return Sample(
            worker=name, address=f"{name}:9999", time_unix_s=BEGIN_UNIX_S + at_s, took_s=self.window_s,
            interval_s=self.interval_s, traced_s=self.window_s, **given,
        )  # fmt: skip

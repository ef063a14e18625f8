"""The simulated job: a pure function of scenario, seed, worker and time since its start.

fault_table.py  the table of faults and scenarios: the effect of each on the job
faults.py       a fault with its times and parameters; the text of `--scenario`
step_work.py    the work of a step: the program, its ops, the length of each part
core_steps.py   one step on one core
clock.py        the times of steps
job.py          the job: all of these, and its memory, its processes, its failing calls
basics.py       units of time, numbers that look random
"""

from tpumon.simulator.scenario.basics import MS, SECOND, to_ns
from tpumon.simulator.scenario.clock import CHAPTER_NS, Interval, Step
from tpumon.simulator.scenario.core_steps import STEP_GAP_NS, CoreStepParts, Slot, layout
from tpumon.simulator.scenario.fault_table import KINDS, SCENARIOS
from tpumon.simulator.scenario.faults import Fault
from tpumon.simulator.scenario.job import BATCH, USABLE_HBM_RATIO, SimulatedJob
from tpumon.simulator.scenario.step_work import HLO_CATEGORIES, OPS, StepPart, StepProgram, Stop

__all__ = [
    "BATCH",
    "CHAPTER_NS",
    "HLO_CATEGORIES",
    "KINDS",
    "MS",
    "OPS",
    "SCENARIOS",
    "SECOND",
    "STEP_GAP_NS",
    "USABLE_HBM_RATIO",
    "CoreStepParts",
    "Fault",
    "Interval",
    "SimulatedJob",
    "Slot",
    "Step",
    "StepPart",
    "StepProgram",
    "Stop",
    "layout",
    "to_ns",
]

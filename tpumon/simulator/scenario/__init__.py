"""What the simulated job does: a pure function of scenario, seed, worker and time since its start.

kinds.py     the table of faults: what each does to the job
faults.py    a fault with its times and parameters; the text of `--scenario`
work.py      what a step consists of: the program, its ops, the length of each part
clock.py     when steps run
parts.py     how one core spends one step
job.py       the job: all of these, and its memory, its processes, its failing calls
basics.py    units of time, numbers that look random
"""

from tpumon.simulator.scenario.basics import MS, SECOND, to_ns
from tpumon.simulator.scenario.clock import CHAPTER_NS, Piece, Step
from tpumon.simulator.scenario.fault_table import KINDS, PRESETS, SCENARIOS
from tpumon.simulator.scenario.faults import Fault
from tpumon.simulator.scenario.job import USABLE_HBM_RATIO, Job
from tpumon.simulator.scenario.job_work import HLO_CATEGORIES, OPS, Part, Program, Stop, Work
from tpumon.simulator.scenario.parts import STEP_GAP_NS, Parts, Slot, layout

__all__ = [
    "CHAPTER_NS",
    "HLO_CATEGORIES",
    "KINDS",
    "MS",
    "OPS",
    "PRESETS",
    "SCENARIOS",
    "SECOND",
    "STEP_GAP_NS",
    "USABLE_HBM_RATIO",
    "Fault",
    "Job",
    "Part",
    "Parts",
    "Piece",
    "Program",
    "Slot",
    "Step",
    "Stop",
    "Work",
    "layout",
    "to_ns",
]

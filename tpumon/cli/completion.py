"""Values that a shell completes. Each takes what is typed so far; Typer drops what does not begin with it."""

import glob
import os

_SMALLEST = 8


def topologies() -> list[str]:
    """Names of TPUs; of a generation with too many sizes, those that are powers of two."""
    from tpumon.simulator.topology import GENERATIONS  # here, as below: heavy, and only a shell asks

    powers = [_SMALLEST << power for power in range(12)]
    return [
        f"{one.name}-{size}"
        for one in GENERATIONS.values()
        for size in one.sizes or [size for size in powers if size <= one.largest]
    ]


def scenarios(incomplete: str) -> list[tuple[str, str]]:
    """Scenarios and what they are, also behind others: `straggler+`."""
    from tpumon.simulator.scenario.fault_table import listed

    others, plus, _ = incomplete.rpartition("+")
    return [(f"{others}{plus}{one.name}", one.about) for one in listed()]


def sections(incomplete: str) -> list[str]:
    """Sections of a report, also behind others: `ops,`."""
    from tpumon.report.sections import SECTIONS

    others, comma, _ = incomplete.rpartition(",")
    return [f"{others}{comma}{name}" for name in (*SECTIONS, "all")]


def exporters() -> list[str]:
    """Installed exporters, as `--export` wants them."""
    from tpumon.outputs import output_names

    return [f"{name}=" for name in output_names()]


def outputs() -> list[str]:
    """Outputs that can write to stdout."""
    from tpumon.outputs import stdout_names

    return ["auto", "live", "text", *stdout_names()]


def recordings(incomplete: str) -> list[str]:
    """Recorded files, and directories in which they may be."""
    from tpumon.collection.recording import PACKED, PACKED_BY_OTHERS, PLAIN

    paths = glob.glob(f"{glob.escape(incomplete)}*")  # noqa: PTH207 - completes what was typed, as it was typed
    folders = [f"{path}/" for path in paths if os.path.isdir(path)]  # noqa: PTH112
    return folders + [path for path in paths if path.endswith((PLAIN, PACKED, PACKED_BY_OTHERS))]

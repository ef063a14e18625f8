"""Values that a shell completes. Each takes what is typed so far; Typer drops what does not begin with it."""

import glob
import os
from collections.abc import Callable
from contextlib import suppress

from tpumon.system.console import show

_SMALLEST = 8
_OLD_NAME = {
    "bash": "complete -o default -F _tpumon_completion capture_tpu_profile",
    "zsh": "compdef _tpumon_completion capture_tpu_profile",
    "fish": "complete --command capture_tpu_profile --wraps tpumon",
}


def print_script(shell: str, ask: Callable[[], None]) -> None:
    """Prints a shell's script, for both names of the program.

    Args:
        shell: bash, zsh or fish.
        ask: runs the program as a shell does that asks for its script.
    """
    os.environ["_TPUMON_COMPLETE"] = f"source_{shell}"
    with suppress(SystemExit):
        ask()
    show(_OLD_NAME[shell])


def join_options() -> None:
    """Makes of `--option = value`, as bash parts what is typed, the two words that Typer can complete."""
    words, place = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    if place.isdecimal():
        os.environ["COMP_CWORD"] = str(int(place) - words[: int(place)].count("="))
        os.environ["COMP_WORDS"] = "\n".join(word for word in words if word != "=")


def topologies() -> list[str]:
    """Names of TPUs; for a generation with too many sizes, only the powers of two."""
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

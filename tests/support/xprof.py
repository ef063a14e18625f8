"""What XProf, the program that users open traces with, makes of them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fakes.run import environment
from support import REPOSITORY, require
from support.captures import Choice, section

OLDER = REPOSITORY / ".venvs" / "xprof-2-23-1" / "bin" / "python"
"""Has XProf 2.23.1, the last one whose source is public."""
_MIB, _SHOWN = 1 << 20, 1 << 14  # bytes; the memory viewer adds up smaller buffers


def open_with_xprof(
    files: Sequence[Path], tool: str, *, older: bool = False, options: Mapping[str, str] | None = None
) -> Any:
    """The JSON of one of XProf's tools (`overview_page`, `trace_viewer`, ...) for the traces of one session."""
    return open_tools(files, [tool], older=older, options=options)[0]


def open_tools(
    files: Sequence[Path], tools: Sequence[str], *, older: bool = False, options: Mapping[str, str] | None = None
) -> list[Any]:
    """The same of several tools.

    In a process of its own, because a broken trace may end XProf the hard way, and on a copy, because XProf keeps
    its results beside the trace.
    """
    require(OLDER.exists() if older else importlib.util.find_spec("xprof"), "XProf 2.23.1" if older else "XProf")
    with TemporaryDirectory() as directory:
        copies = [shutil.copy(file, directory) for file in files]
        command = [OLDER if older else sys.executable, "-I", Path(__file__).with_name("xprof_tool.py"), ",".join(tools)]
        command += [json.dumps(options or {}), *copies]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=environment(Path(directory))
        )
    assert done.returncode == 0, f"XProf does not open {[file.name for file in files]}:\n{done.stderr[-4000:]}"
    shown: list[Any] = json.loads(done.stdout)
    return shown


def overview(files: Sequence[Path], *, older: bool = False) -> dict[str, Any]:
    """The overview page's properties, of all its parts together."""
    return page_of(open_with_xprof(files, "overview_page", older=older))


def page_of(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Those of its JSON."""
    return {name: value for part in parts for name, value in (part.get("p") or {}).items()}


def step_rows(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The input pipeline analyzer's rows of single steps."""
    return rows_of(open_with_xprof(files, "input_pipeline_analyzer"))


def rows_of(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those of its JSON."""
    for part in parts:
        names = [column["id"] for column in part["cols"]]
        if "stepnum" in names:
            return [{name: cell["v"] for name, cell in zip(names, row["c"], strict=True)} for row in part["rows"]]
    raise AssertionError("XProf shows no table of steps")


def ratio(page: dict[str, Any], name: str) -> float:
    """A property that is shown as a percentage."""
    return float(page[name].removesuffix("%")) / 100


def host_events(file: Path) -> list[dict[str, Any]]:
    """The events on the host's threads in XProf's trace viewer; times in microseconds, of instants no duration.

    It draws allocations as a counter.
    """
    events = open_with_xprof([file], "trace_viewer")["traceEvents"]
    hosts = {
        event["pid"]
        for event in events
        if event.get("name") == "process_name" and event["args"]["name"].startswith("/host:")
    }
    return [event for event in events if event.get("ph") in {"X", "i"} and event.get("pid") in hosts]


def host_event_names(file: Path) -> set[str]:
    """Names of the events on the host's threads in XProf's trace viewer."""
    return {event["name"] for event in host_events(file)}


def same_schedules(file: Path) -> list[int]:
    """Compares memory over the schedules of the largest programs with the memory viewer; returns their changes."""
    programs = section([file], "memory", Choice(top=4))["programs"]
    for program in programs:
        options = {"module_name": f"{program['name']}({program['program_id']})", "memory_space": "0"}
        theirs, ours = open_with_xprof([file], "memory_viewer", options=options), program["schedule"]
        assert ours["peak_bytes"] == _MIB * theirs.get("peakHeapMib", 0)
        sizes = [ours["lasting_bytes"] + temporary for temporary in ours["temporary_bytes"]]
        assert sizes == [_MIB * size for size in theirs.get("heapSizes", [])[1:]]
        names = theirs.get("hloInstructionNames", [None])
        assert ours["peak_at"] == names[theirs.get("peakHeapSizePosition", 0)]
        shown = [
            (each["instructionName"].partition("{")[0], each.get("tfOpName", ""), each["groupName"].lower(),
             _MIB * each["logicalBufferSizeMib"])
            for each in theirs["maxHeap"] if each["logicalBufferId"] != -1
        ]  # fmt: skip
        own = [
            (each["name"], each["path"], each["kind"].replace("argument", "parameter"), each["size_bytes"])
            for each in ours["at_peak"]
        ]
        assert sorted(each for each in own if each[3] >= _SHOWN) == sorted(shown)
        small = sum(_MIB * each["logicalBufferSizeMib"] for each in theirs["maxHeap"] if each["logicalBufferId"] == -1)
        assert sum(each[3] for each in own if each[3] < _SHOWN) == small
    return [program["schedule"]["changes"] for program in programs]

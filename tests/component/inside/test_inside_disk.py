"""A disk that is full for a moment: what was written is whole, and what follows is, too."""

from __future__ import annotations

import csv
import io
import json
import os
import select
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support import require
from support.samples import sample
from support.wired import wired
from tpumon.collection.recording import Recording
from tpumon.model import Sample

ROOT = Path(__file__).parents[3]
# On a file system of its own: writes samples until it is full, and goes on when there is room.
FILL = """
import json, os, sys
from support.samples import sample
from support.wired import wired
name, disk, where = sys.argv[1:]
output = wired(name, where)
written, number = [], 0
def write():
    global number
    number += 1
    output.add(sample(f"w{number}", step_name=os.urandom(40).hex(), slice="s" * SIZE))
    output.tick(1000.0 + number)
    written.append(number)
for _ in range(3):
    write()
with open(f"{disk}/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
failed = 0
while failed < 3:
    try:
        write()
    except OSError as error:
        assert error.strerror == "No space left on device", error
        failed += 1
os.unlink(f"{disk}/filler")
write()
output.close()
print(json.dumps(written), file=sys.stderr)
"""


def filled(name, directory, *, stdout, size):
    """The numbers of the samples that were written without an error, to `directory / "out"`."""
    disk = directory / "disk"
    disk.mkdir()
    require(shutil.which("unshare"), "unshare, to mount a small disk")
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    then = '"$3" -c "$4" "$2" "$1" - > "$1/out"' if stdout else '"$3" -c "$4" "$2" "$1" "$1/out"'
    mount = f'mount -t tmpfs -o size=160k none "$1" || exit 99; {then} && cp -r "$1/out" "$1/.."'
    done = subprocess.run(
        [*unshare, "sh", "-c", mount, "sh", str(disk), name, sys.executable, FILL.replace("SIZE", str(size))],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    require(done.returncode != 99 and "unshare failed" not in done.stderr, "the right to mount a small disk")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr)


@pytest.mark.parametrize("size", [0, 9000])
@pytest.mark.parametrize(
    ("name", "stdout"), [("jsonl", False), ("csv", False), ("record", False), ("jsonl", True), ("csv", True)]
)
def test_a_full_disk_tears_no_line(tmp_path, name, stdout, size, said):
    """Of a line that does not fit nothing stays; the lines before and after it are whole."""
    written = filled(name, tmp_path, stdout=stdout, size=size)
    out = tmp_path / "out"
    if name == "record":
        moments = Recording(str(out)).moments()
        found = [moment.event.worker for moment in moments if isinstance(moment.event, Sample)]
        assert said == []
        assert found == [f"w{number}" for number in range(1, written[-1] + 1)]  # what had no room has waited for it
        return
    if name == "jsonl":
        found = [json.loads(line)["worker"] for line in out.read_text().splitlines()]
    else:
        header, *rows = csv.reader(io.StringIO(out.read_text()))
        assert {len(row) for row in rows} == {len(header)}
        found = [row[header.index("worker")] for row in rows]
    assert found == [f"w{number}" for number in written]


def test_a_line_that_a_pipe_has_half_of_stands_alone(tmp_path):
    """Its reader went away meanwhile; who reads then gets the other lines whole."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    output = wired("jsonl", str(fifo))
    failed = []

    def write():
        try:
            output.add(sample("torn", slice="s" * 300_000))
        except BrokenPipeError as error:
            failed.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    assert select.select([reader], [], [], 10)[0]
    os.close(reader)
    writing.join(10)
    assert len(failed) == 1
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    output_lines = threading.Thread(target=lambda: (output.add(sample("whole")), output.close()))
    output_lines.start()
    os.set_blocking(reader, True)
    with os.fdopen(reader) as lines:
        *_, last = lines.read().splitlines()
    output_lines.join(10)
    assert json.loads(last)["worker"] == "whole"

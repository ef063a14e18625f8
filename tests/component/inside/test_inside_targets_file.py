"""Files of workers that would take all memory or time are refused in one line."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tpumon.discovery.target_file import TargetFile
from tpumon.errors import UsageError

LAUGHS = "\n".join(
    f"  {name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BOMBS = {
    "a target of lists within lists": f"- x:\n  a: &a [lol, lol]\n{LAUGHS}\n  targets: [*i]\n",
    "a label of lists within lists": f"- x:\n  a: &a [lol, lol]\n{LAUGHS}\n  targets: [h]\n  labels: {{slice: *i}}\n",
    "merged mappings": "- x: &a {b: c}\n"
    + "".join(f"- x: &a{i} {{<<: [{', '.join([f'*a{i - 1}' if i else '*a'] * 9)}]}}\n" for i in range(20))
    + "- targets: [h]\n  labels: {<<: *a19}\n",
    "groups times targets": f"- &g {{targets: [{', '.join(['h:1'] * 1000)}]}}\n" + "- *g\n" * 30_000,
    "a number that takes long to read": f"- targets: [h]\n  labels: {{slice: {'1:' * 200_000}1}}\n- {{}}\n",
    "lists that never end": "[" * 500_000,
    "megabytes of it": "- {targets: [h]}\n" * 100_000,
}
MOST_BYTES = 400 << 20


def read(path):
    async def first():
        async for workers in TargetFile(str(path)).watch(lambda: False):
            return workers
        return None

    return asyncio.run(first())


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_once(name, tmp_path):
    """In a process of its own, whose memory is limited: less than what is usual for a program with gRPC."""
    path = tmp_path / "targets.yml"
    path.write_text(BOMBS[name])
    program = (
        "import resource, sys; sys.path.insert(0, 'tests/component/inside')\n"
        "from tpumon.errors import UsageError\n"
        "from test_inside_targets_file import read\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: read(sys.argv[1])\n"
        "except UsageError as error: print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True, timeout=100
    )
    *words, grown_kib = done.stdout.splitlines()
    assert len(words) == 1, done.stdout
    assert "--targets" in words[0]
    assert len(words[0]) < 500
    assert int(grown_kib) << 10 < MOST_BYTES


@pytest.mark.parametrize("address", ['[["h"]]', "[{}]", "[1]", "[true]"])
def test_a_target_that_is_no_text_is_refused(address, tmp_path):
    """Also in JSON."""
    path = tmp_path / "targets.json"
    path.write_text(f'[{{"targets": {address}}}]')
    with pytest.raises(UsageError, match="not text"):
        read(path)


def test_aliases_of_labels_still_work(tmp_path):
    """What people use them for is no bomb."""
    path = tmp_path / "targets.yml"
    path.write_text("- targets: [h]\n  labels: &l {slice: 12}\n- targets: [g]\n  labels: *l\n")
    assert [target.slice for target in read(path).targets] == ["12", "12"]

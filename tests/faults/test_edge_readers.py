"""Foreign data that cannot be read: a refresh that fails, with a line about it, never the end."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.error
import urllib.request

import pytest

from fakes.run import Tpumon, tpumon
from fakes.tpu_node import LEVEL_2, Answer, Figures, TpuNode
from support import wait_until

BAD_AT_START = {"missing": None, "half-written": '[{"targets": ["127.0.0.1:', "empty": ""}


def get(url):
    """The page at this address; empty where it is refused."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError:
        return ""


@pytest.mark.parametrize("what", BAD_AT_START)
def test_a_service_waits_for_a_file_that_is_missing_or_half_written_at_the_start(what, tmp_path):
    """One line names it and what is wrong; the figures come once it is whole. Status 2 would end it for good."""
    path = tmp_path / "targets.json"
    if BAD_AT_START[what] is not None:
        path.write_text(BAD_AT_START[what])
    with TpuNode(Answer(text=LEVEL_2, figures=Figures())) as node, Tpumon(
        "serve", "--targets", str(path), "--listen", "127.0.0.1:0", "--duration-ms", "50", "--interval", "0.1"
    ) as serve:  # fmt: skip
        serve.wait_for(lambda: "listening on" in serve.err)
        base = serve.err.split("listening on ")[1].split("/metrics")[0]
        serve.wait_for(lambda: get(f"{base}/-/ready"))
        up = 'tpumon_discovery_up{finder="targets-file"}'
        assert f"{up} {float(what == 'empty')}" in get(f"{base}/metrics")
        path.write_text(json.dumps([{"targets": [node.address]}]))
        serve.wait_for(lambda: "tpu_mxu_utilization_ratio{" in get(f"{base}/metrics"))
        assert f"{up} 1.0" in get(f"{base}/metrics")
        result = serve.signal(signal.SIGTERM).end(20).ended(0)
    (line,) = [line for line in result.messages if "targets.json" in line]
    assert {"missing": "No such file", "half-written": "no JSON", "empty": "names no workers"}[what] in line


@pytest.mark.parametrize("command", [["once"], ["--level", "2", "--output", "jsonl"]])
def test_whoever_types_a_command_is_told_of_a_wrong_file_at_once(command, tmp_path):
    """As a usage error."""
    result = tpumon(*command, "--targets", str(tmp_path / "targets.json")).ended(2)
    assert "No such file" in result.err

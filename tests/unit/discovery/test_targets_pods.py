"""The pod of a node's workers, from a kubelet on a Unix socket."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import aclosing
from pathlib import Path

import pytest

from fakes.kubelet import OTHERS, devices, holder, kubelet, pod
from tpumon.analysis import Analysis
from tpumon.discovery.finder import Fixed
from tpumon.discovery.pods import WithPods
from tpumon.model import Pod, Target, Workers
from tpumon_exporters.exposition import Exposition

WORKERS = Workers(targets=(Target(worker="w", address="127.0.0.1:9999"),))
TRAIN = Pod(namespace="team-a", name="train-0-abcde", container="main")


def first(answer):
    """The pods of the first workers, with a kubelet that answers so."""

    async def look():
        with kubelet(lambda: answer) as socket:
            finder = WithPods(Fixed([*WORKERS.targets]), socket=socket)
            async with aclosing(finder.watch(lambda: False)) as changes:
                (target,) = (await anext(changes)).targets
                return target.pod

    return asyncio.run(look())


def test_the_pod_that_holds_the_node_s_tpus(quiet):
    asked = []

    async def look():
        with kubelet(lambda: OTHERS + holder(TRAIN), asked) as socket:
            async with aclosing(WithPods(Fixed(WORKERS.targets), socket=socket).watch(bool)) as changes:
                return await anext(changes)

    (target,) = asyncio.run(look()).targets
    assert target.pod == TRAIN
    assert asked == [b""]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        OTHERS,
        pod("a", "p", "c", devices("google.com/tpu")),
        holder(TRAIN) + holder(Pod(namespace="team-b", name="p", container="c"), "2"),
        holder(TRAIN) + holder(Pod(namespace=TRAIN.namespace, name=TRAIN.name, container="sidecar"), "2"),
    ],
    ids=["nothing", "others only", "no device", "two pods", "two containers"],
)
def test_no_pod_rather_than_a_wrong_one(answer, said):
    assert first(answer) is None
    assert said == []


def test_names_are_made_safe():
    odd = first(holder(Pod(namespace="a\x1b[31m", name="n" * 5000, container="c\nd")))
    assert (odd.namespace, len(odd.name), odd.container) == ("a", 253, "c d")


@pytest.mark.parametrize("answer", [b"\xff\xff", bytes(5 << 20)], ids=["malformed", "too large"])
def test_a_bad_answer_is_said_and_workers_are_there(answer, said):
    assert first(answer) is None
    assert len(said) == 1
    assert "kubelet.sock: " in said[0]
    assert "\n" not in said[0]


class Changing:
    """A discovery that yields these."""

    def __init__(self, *workers):
        self._workers = workers

    async def watch(self, _all_gone):
        for workers in self._workers:
            yield workers
        await asyncio.Event().wait()


def test_an_absent_socket_is_nothing_to_say(tmp_path, quiet):
    async def look():
        async def ask(_path):
            pytest.fail("there is nobody to ask")

        finder = WithPods(Fixed(WORKERS.targets), socket=tmp_path / "none" / "kubelet.sock", ask=ask)
        async with aclosing(finder.watch(bool)) as changes:
            return await anext(changes)

    assert asyncio.run(look()) == WORKERS


def test_a_dead_socket_is_said_once(said):
    more = Workers(targets=(*WORKERS.targets, Target(worker="v", address="127.0.0.1:9998")))

    async def look():
        with tempfile.TemporaryDirectory() as directory:
            dead = Path(directory) / "kubelet.sock"
            dead.touch()
            async with aclosing(WithPods(Changing(WORKERS, more), socket=dead).watch(bool)) as changes:
                return [await anext(changes), await anext(changes)]

    assert asyncio.run(look()) == [WORKERS, more]
    assert len(said) == 1
    assert "workers go without the names of their pods" in said[0]


def test_a_job_that_starts_again_in_another_pod(quiet):
    """Workers stay as they are; the pod is another one."""
    later = Pod(namespace="team-a", name="train-0-fghij", container="main")
    answers = [holder(TRAIN), holder(TRAIN), holder(later)]

    async def look():
        with kubelet(lambda: answers.pop(0) if len(answers) > 1 else answers[0]) as socket:
            finder = WithPods(Changing(WORKERS), socket=socket, every_s=0.01)
            async with aclosing(finder.watch(bool)) as changes:
                return [(await anext(changes)).targets[0].pod for _ in range(2)]

    assert asyncio.run(look()) == [TRAIN, later]


def test_the_metric():
    fleet = Analysis()
    fleet.add(Workers(targets=(Target(worker="w", address="a:1", pod=TRAIN), Target(worker="v", address="b:1"))))
    text = Exposition("prometheus").render(fleet.status(0.0))
    series = [line for line in text.splitlines() if line.startswith("tpumon_target_pod_info")]
    assert series == [
        'tpumon_target_pod_info{worker="w",tpu_namespace="team-a",tpu_pod="train-0-abcde",tpu_container="main"} 1.0'
    ]

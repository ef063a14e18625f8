"""The DaemonSet and the fleet's process as deploy/ has them, on nodes that have a kubelet and a job each.

A node is a loopback address of this machine. Its exporter reads a /proc of its own, where the job listens on port 9999
and no process can be seen, as in a container.
"""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes.kubelet import OTHERS, holder, kubelet
from fakes.proc import FakeProc
from fakes.run import Tpumon, tpumon
from fakes.tpu_node import LEVEL_2, Answer, Figures, TpuNode
from support import wait_until
from support.deploy import manifest
from tpumon.model import Pod

JOB, OTHER_JOB = "team-a/gemma-workers", "team-b/gemma-workers"
PODS = [
    Pod(namespace=namespace, name=f"gemma-workers-3-{number}-x2k4z", container="main")
    for namespace, count in (("team-a", 4), ("team-b", 2))
    for number in range(count)
]
NODES = [f"node-{number}" for number in range(len(PODS))]
FOUR, LAST = NODES[:4], NODES[3]
FLEET = "127.0.2.1"


def answer(idle: float, **figures) -> Answer:
    """What a profiler says of steps of 100 ms, of which the devices wait for `idle` percent."""
    known = {"idle": idle, "step": (100.0, 99.0, 101.0), "infeed": (0.0, 0.0, 0.0)} | figures
    return Answer(text=LEVEL_2, figures=Figures(**known))


USUAL, SLOW, OF_OTHER_JOB = answer(30.0), answer(2.0), answer(5.0)
SILENT = answer(100.0, mxu=0.0, step=(0.0, 0.0, 0.0))

NODE_OF_ITS_OWN = """
import socket, sys
from pathlib import Path
from tpumon.__main__ import main
from tpumon.discovery.host import servers as local
from tpumon.discovery import pods
name, proc, kubelet = sys.argv[1:4]
del sys.argv[1:4]
socket.gethostname = lambda: name
local.LocalDiscovery.__init__.__kwdefaults__["proc"] = Path(proc)
pods.WithPods.__init__.__kwdefaults__["socket"] = Path(kubelet)
main()
"""

HEADLESS_SERVICE = """
import socket, sys
from tpumon.__main__ import main
addresses = sys.argv.pop(1).split(",")
resolve = socket.getaddrinfo
def resolved(host, *args, **more):
    if host != "tpumon-headless":
        return resolve(host, *args, **more)
    return [found for each in addresses for found in resolve(each, *args, **more)]
socket.getaddrinfo = resolved
main()
"""


def recommended(name: str, address: str, state: Path) -> list[str]:
    """The arguments of a manifest, for this address and directory."""
    (container,) = manifest(name)["spec"]["template"]["spec"]["containers"]
    return [one.replace("0.0.0.0", address).replace("/var/lib/tpumon", str(state)) for one in container["args"]]


class Cluster:
    """Six nodes: four of one job, two of another one whose pods have the same names in another namespace."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.addresses = {name: f"127.0.1.{number}" for number, name in enumerate(NODES, 1)}
        self.jobs, self.exporters = {}, {}
        for name, pod in zip(NODES, PODS, strict=True):
            address, proc = self.addresses[name], FakeProc(directory / name)
            proc.listen(9999, ip=address)
            first = USUAL if pod.namespace == "team-a" else OF_OTHER_JOB
            self.jobs[name] = stack.enter_context(TpuNode(first, host=address, port=9999))
            socket = stack.enter_context(kubelet(lambda pod=pod: OTHERS + holder(pod)))
            args = [*recommended("daemonset", address, directory / f"state of {name}"), "--interval", "1"]
            given = (name, str(proc.root), str(socket))
            self.exporters[name] = stack.enter_context(Tpumon(*given, *args, program=("-c", NODE_OF_ITS_OWN)))
        args = recommended("fleet/deployment", FLEET, directory / "state")
        self.fleet = stack.enter_context(
            Tpumon(",".join(self.addresses.values()), *args, program=("-c", HEADLESS_SERVICE))
        )

    def found(self, address: str = FLEET) -> dict[str, dict[str, float]]:
        """Severities on a page, by finding and worker: 0 is judged and absent. Each is of its job and of slice 3."""
        with urllib.request.urlopen(f"http://{address}:10466/metrics", timeout=20) as page:
            families = list(text_string_to_metric_families(page.read().decode()))
        found: dict[str, dict[str, float]] = {}
        for family in families:
            for one in family.samples if family.name == "tpumon_finding_severity" else ():
                worker, finding = one.labels["worker"], one.labels["finding"]
                job = JOB if worker in FOUR else OTHER_JOB
                assert (one.labels["tpu_job"], one.labels["tpu_slice"]) == (job, "3")
                found.setdefault(finding, {})[worker] = one.value
        return found

    def present(self, finding: str) -> set[str]:
        """The workers that have a finding, as the fleet's process says."""
        return {worker for worker, value in self.found().get(finding, {}).items() if value}

    def listens(self) -> bool:
        """All of them do."""
        return all("listening on" in one.err for one in (*self.exporters.values(), self.fleet))

    def why(self) -> dict:
        """What the fleet's process answers to `why`."""
        done = tpumon("why", "--from", f"{FLEET}:10466", "--output", "json", "--fail-on", "never").ended(0)
        return json.loads(done.out)


@pytest.mark.nightly
def test_a_daemonset_of_four_nodes_and_the_fleets_process(tmp_path):
    """One job, one slice; a straggler, a hang and an exporter that dies, each said of those whom it concerns."""
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path)

        def until(condition: Callable[[], bool]) -> None:
            wait_until(
                condition, 60, lambda: "\n".join(one.err for one in (cluster.fleet, *cluster.exporters.values()))
            )

        until(cluster.listens)
        until(lambda: cluster.found().get("straggler") == dict.fromkeys(NODES, 0.0))

        cluster.jobs["node-1"].answers(SLOW)
        until(lambda: any(cluster.found()["straggler"].values()))
        assert cluster.present("straggler") == {"node-1"}
        for name in FOUR:
            own = cluster.found(cluster.addresses[name])
            assert own["hang"] == {name: 0.0}
            assert "straggler" not in own, "no exporter of one worker can judge that"

        for name in FOUR:
            cluster.jobs[name].answers(SILENT)
        until(lambda: cluster.present("hang") == set(FOUR))
        (found,) = cluster.why()["findings"]
        assert (found["finding"], found["job"], found["slice"]) == ("hang", JOB, "3")
        assert sorted(found["workers"]) == FOUR

        cluster.exporters[LAST].signal(signal.SIGKILL)
        until(lambda: LAST not in cluster.present("hang"))
        answered = cluster.why()
        assert answered["workers"] == len(NODES)
        assert [(one["finding"], sorted(one["workers"])) for one in answered["findings"]] == [("hang", FOUR[:3])]
        assert cluster.present("hang") == set(FOUR[:3])
        assert not any(value for each in cluster.found().values() for one, value in each.items() if one not in FOUR)

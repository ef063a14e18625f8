"""Which job and slice a worker belongs to: who says so, and who is believed first."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from support import REPOSITORY
from tpumon.discovery.finder import Fixed
from tpumon.discovery.host.processes import environment_of
from tpumon.discovery.identity import (
    POD_LABELS,
    VARIABLES,
    Identified,
    JobNames,
    identified,
    names,
    of_environment,
    of_labels,
    of_pod_name,
    with_several,
)
from tpumon.discovery.selection import Selection, open_discovery
from tpumon.model import Pod, Target, Workers

HERE = Target(worker="w", address="127.0.0.1:9999", independent=True)
JOBSET_POD = Pod(namespace="team", name="gemma-workers-3-0-x2k4z", container="main")


@pytest.mark.parametrize(
    ("name", "job", "slice_name"),
    [
        ("gemma-workers-3-0-x2k4z", "gemma-workers", "3"),  # JobSet
        ("run-7-workers-12-31-bcdfg", "run-7-workers", "12"),
        ("llama-2-5", "llama", "2"),  # LeaderWorkerSet: its worker 5, and its leader
        ("llama-2", "llama", "2"),
        ("sweep-4-x2k4z", "sweep", None),  # an indexed Job
        ("server-7d9f8c6b5d-x2k4z", None, None),  # a Deployment, whose pods work each for itself
        ("notebook", None, None),
        ("train-24567", None, None),  # random, though all digits
        ("-0", None, None),
        ("", None, None),
    ],
)
def test_what_the_name_of_a_pod_says(name: str, job: str | None, slice_name: str | None) -> None:
    assert of_pod_name(name) == JobNames(job=job, slice=slice_name)


@pytest.mark.parametrize(
    ("labels", "job", "slice_name"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "g", "jobset.sigs.k8s.io/replicatedjob-name": "w",
          "jobset.sigs.k8s.io/job-index": "0", "batch.kubernetes.io/job-name": "g-w-0"}, "g-w", "0"),
        ({"leaderworkerset.sigs.k8s.io/name": "l-7", "leaderworkerset.sigs.k8s.io/group-index": "2"}, "l-7", "2"),
        ({"ray.io/cluster": "ray", "replicaIndex": "tpu-group-1"}, "ray", "tpu-group-1"),
        ({"batch.kubernetes.io/job-name": "sweep"}, "sweep", None),
        ({"kueue.x-k8s.io/pod-group-name": "group"}, "group", None),
        ({}, None, None),
    ],
)  # fmt: skip
def test_what_the_labels_of_a_sidecars_pod_say(labels: dict[str, str], job: str | None, slice_name: str | None) -> None:
    """The downward API gives an empty text for a label that is not there."""
    environment = {variable: labels.get(label, "") for variable, label in POD_LABELS.items()}

    assert of_labels(environment) == JobNames(job=job, slice=slice_name)


@pytest.mark.parametrize(
    ("environment", "job", "slice_name"),
    [
        ({"TPU_WORKER_HOSTNAMES": "g-w-1-0.g,g-w-1-1.g", "MEGASCALE_SLICE_ID": "1"}, "g-w", "1"),
        ({"JOBSET_NAME": "g", "REPLICATED_JOB_NAME": "w", "MEGASCALE_SLICE_ID": "1"}, "g-w", "1"),
        ({"JOBSET_NAME": "g", "HOSTNAME": "g-w-x-4-0"}, "g-w-x", "4"),
        ({"JOBSET_NAME": "g"}, "g", None),
        ({"LWS_LEADER_ADDRESS": "llama-2-3.llama-2.team"}, "team/llama-2", "3"),
        ({"LWS_LEADER_ADDRESS": "elsewhere.llama.team"}, None, None),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "run-7-3", "TPU_NAME": "pool"}, "run-7", "pool"),
        ({"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "run-7"}, None, None),
        ({"RAY_CLUSTER_NAME": "ray", "TPU_NAME": "tpu-group-0"}, "ray", "tpu-group-0"),
        ({"TPU_NAME": "my-tpu"}, None, "my-tpu"),
        ({"MEGASCALE_SLICE_ID": "0"}, None, "0"),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "HOSTNAME": "vm"}, None, None),
        ({}, None, None),
    ],
)
def test_what_the_environment_of_a_job_says(
    environment: dict[str, str], job: str | None, slice_name: str | None
) -> None:
    assert set(environment) <= set(VARIABLES)
    assert of_environment(environment) == JobNames(job=job, slice=slice_name)


@pytest.mark.parametrize(
    ("environment", "workers", "slices"),
    [
        ({"TPUMON_LISTED_WORKERS": "64", "MEGASCALE_NUM_SLICES": "4"}, 64, 4),
        ({"TPU_PROCESS_BOUNDS": "2,2,1", "TPUMON_LISTED_WORKERS": "1"}, 4, None),
        ({"TPU_HOST_BOUNDS": "4,4,4"}, 64, None),
        ({"TPU_HOST_BOUNDS": "4,x,4", "TPUMON_LISTED_WORKERS": "0", "MEGASCALE_NUM_SLICES": "-1"}, None, None),
        ({"TPU_HOST_BOUNDS": "9999,9999", "MEGASCALE_NUM_SLICES": "9" * 5000}, None, None),
        ({}, None, None),
    ],
)
def test_how_many_workers_and_slices_there_are(environment: dict[str, str], workers: int, slices: int) -> None:
    assert set(environment) <= set(VARIABLES)
    target = replace(HERE, environment=tuple(environment.items()))
    one = identified(target, given=JobNames(), labelled=JobNames(), own={}, inferred=JobNames())
    assert (one.slice_workers, one.job_slices) == (workers, slices)


@pytest.mark.parametrize("name", ["TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES"])
def test_a_list_of_workers_is_counted_before_it_is_cut(name: str, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    hosts = ",".join(f"a-host-of-a-large-slice-{number}" for number in range(2304))
    (tmp_path / "7" / "environ").write_text(f"A=b\0{name}={hosts}\0")
    found = environment_of(7, VARIABLES, tmp_path, "TPUMON_LISTED_WORKERS")
    assert found["TPUMON_LISTED_WORKERS"] == "2304"
    assert max(map(len, found.values())) < 1000


def test_the_first_who_says_so_is_believed() -> None:
    """Each of them is taken away in turn; the next one then counts, for job and slice alike."""
    own = {"TPUMON_POD_NAMESPACE": "ns", "TPUMON_POD_NAME": "named-5-0-x2k4z",
           "TPUMON_POD_JOBSET": "label", "TPUMON_POD_JOB_INDEX": "4"}  # fmt: skip
    environment = {"TPUMON_JOB": "announced", "TPUMON_SLICE": "3", "JOBSET_NAME": "env", "MEGASCALE_SLICE_ID": "6"}
    sources = {
        "labelled": JobNames(job="of-file", slice="1"),
        "given": JobNames(job="option", slice="2"),
        "own": own,
        "inferred": JobNames(job="queued", slice="7"),
    }

    def now() -> tuple[str | None, str | None]:
        one = identified(replace(HERE, environment=tuple(environment.items())), **sources)  # type: ignore[arg-type]
        assert not one.environment
        return one.job, one.slice

    seen = [now()]
    for name in ("labelled", "given"):
        sources[name] = JobNames()
        seen.append(now())
    del environment["TPUMON_JOB"], environment["TPUMON_SLICE"]
    seen.append(now())
    del own["TPUMON_POD_JOBSET"], own["TPUMON_POD_JOB_INDEX"]
    seen.append(now())
    own["TPUMON_POD_NAME"] = "any"
    seen.append(now())
    environment.clear()
    seen.append(now())
    own.clear()
    sources["inferred"] = JobNames()
    seen.append(now())

    assert seen == [
        *(("of-file", "1"), ("ns/option", "2"), ("ns/announced", "3"), ("ns/label", "4"), ("ns/named", "5")),
        *(("ns/env", "6"), ("queued", "7"), (None, None)),
    ]


def test_any_other_pod_is_a_job_of_one() -> None:
    pod = Pod(namespace="team", name="notebook", container="main")
    one = identified(replace(HERE, pod=pod), given=JobNames(), labelled=JobNames(), own={}, inferred=JobNames())

    assert (one.job, one.slice, one.independent) == ("team/notebook", None, False)


def test_the_kubelets_pod_gives_job_and_slice_by_its_name() -> None:
    one = identified(replace(HERE, pod=JOBSET_POD), given=JobNames(), labelled=JobNames(), own={}, inferred=JobNames())

    assert (one.job, one.slice) == ("team/gemma-workers", "3")


def test_a_job_that_names_its_namespace_keeps_it() -> None:
    given = names("other/gemma")
    one = identified(replace(HERE, pod=JOBSET_POD), given=given, labelled=JobNames(), own={}, inferred=JobNames())

    assert one.job == "other/gemma"


def test_tpumons_own_pod_says_nothing_of_workers_elsewhere() -> None:
    own = {"TPUMON_POD_NAMESPACE": "ns", "TPUMON_POD_NAME": "tpumon"}
    elsewhere = replace(HERE, address="10.0.0.2:9999", independent=False)
    one = identified(elsewhere, given=JobNames(), labelled=JobNames(), own=own, inferred=JobNames())

    assert (one.job, one.slice) == (None, None)


@pytest.mark.parametrize("text", ["a\x1b[31mb\nc\u202e", "x" * 100_000])
def test_names_of_others_are_safe_and_bounded(text: str) -> None:
    environment = (("TPUMON_JOB", text), ("MEGASCALE_SLICE_ID", text))
    one = identified(
        replace(HERE, environment=environment), given=JobNames(), labelled=JobNames(), own={}, inferred=JobNames()
    )

    for name in (one.job, one.slice):
        assert name is not None
        assert len(name) <= 200
        assert name.isprintable()


def found(targets: list[Target], **given: object) -> list[Target]:
    """What a discovery's workers become."""

    async def first() -> Workers:
        discovery = Identified(Fixed(targets), names(), **{"environment": {}, **given})  # type: ignore[arg-type]
        async with aclosing(discovery.watch(lambda: False)) as changes:
            return await anext(changes)

    return list(asyncio.run(first()).targets)


def test_only_those_of_whom_nothing_is_known_are_independent() -> None:
    with_slice = replace(HERE, worker="x", environment=(("TPU_NAME", "t"),))

    assert [one.independent for one in found([HERE, with_slice])] == [True, False]


def selected(selection: Selection) -> list[Target]:
    async def first() -> Workers:
        async with AsyncExitStack() as stack:
            discovery = await open_discovery(selection, stack)
            async with aclosing(discovery.watch(lambda: False)) as changes:
                return await anext(changes)

    return list(asyncio.run(first()).targets)


def test_options_count_for_workers_named_together_and_labels_before_them(tmp_path: Path) -> None:
    addresses = ("10.0.0.2:1", "10.0.0.3:1")
    file = tmp_path / "targets.json"
    groups = [
        {"targets": [addresses[0]], "labels": {"tpu_job": "a", "tpu_slice": "0", "slice": "1"}},
        {"targets": [addresses[1]], "labels": {"slice": "1"}},
    ]
    file.write_text(json.dumps(groups))

    named = selected(Selection(addresses=addresses, job="j", slice="s"))
    assert [(one.job, one.slice, one.independent) for one in named] == [("j", "s", False)] * 2
    listed = selected(Selection(targets_file=str(file), job="j", slice="s"))
    assert [(one.job, one.slice) for one in listed] == [("a", "0"), ("j", "1")]
    nothing = selected(Selection(addresses=addresses))
    assert [(one.job, one.slice, one.independent) for one in nothing] == [(None, None, False)] * 2


@pytest.mark.parametrize("name", ["sidecar.yaml", "attached.yaml"])
def test_the_sidecars_know_their_pod(name: str) -> None:
    """Every variable is set, from the field that it is named after."""
    job = yaml.safe_load((REPOSITORY / "deploy" / "kubernetes" / name).read_text())
    containers = job["spec"]["template"]["spec"]["initContainers"]
    (tpumon,) = (one for one in containers if one["name"] == "tpumon")
    fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in tpumon["env"] if "valueFrom" in one}

    labels = {variable: f"metadata.labels['{label}']" for variable, label in POD_LABELS.items()}
    assert fields == labels | {"TPUMON_POD_NAMESPACE": "metadata.namespace", "TPUMON_POD_NAME": "metadata.name"}


JOBSET = {"JOBSET_NAME": "llm", "REPLICATED_JOB_NAME": "w", "HOSTNAME": "llm-w-0-3"}


@pytest.mark.parametrize(
    ("target", "own", "signs"),
    [
        ({}, {}, ()),
        ({"attached": True}, {}, ("job",)),
        ({"kind_signs": ("notebook",)}, {}, ("notebook",)),
        ({"environment": tuple(JOBSET.items())}, {}, ("job",)),
        ({"address": "127.0.0.1:1"}, {"TPUMON_POD_JOB": "train"}, ("job",)),
        ({"address": "10.0.0.1:1"}, {"TPUMON_POD_JOB": "train"}, ()),
        ({"pod": Pod(namespace="ml", name="llm-w-0-1-bcdfg", container="c")}, {}, ("job",)),
        ({"pod": Pod(namespace="ml", name="server-7f9c-bcdfg", container="c")}, {}, ()),
    ],
)
def test_what_was_started_as_a_job(target: dict[str, Any], own: dict[str, str], signs: tuple[str, ...]) -> None:
    """By `tpumon run`, a JobSet or a Job; an address, or a Deployment's pod, says nothing."""
    found = identified(
        Target(**{"worker": "w", "address": "10.0.0.1:1"} | target),
        given=JobNames(),
        labelled=JobNames(),
        own=own,
        inferred=JobNames(),
    )
    assert found.kind_signs == signs


def test_several_workers_of_a_slice_are_a_job_where_there_are_no_pods() -> None:
    """One worker alone may be a server, and so may be workers that are merely found on one host."""

    def signs(*targets: Target) -> list[tuple[str, ...]]:
        return [target.kind_signs for target in with_several(targets)]

    one, two = Target(worker="a", address="a:1"), Target(worker="b", address="b:1")
    assert signs(one) == [()]
    assert signs(one, two) == [("job",), ("job",)]
    assert signs(replace(one, independent=True), replace(two, independent=True)) == [(), ()]
    assert signs(replace(one, slice="s"), replace(two, slice="t")) == [(), ()]
    assert signs(replace(one, slice_workers=2)) == [("job",)]
    pod = Pod(namespace="ml", name="server-7f9c-bcdfg", container="c")
    assert signs(replace(one, pod=pod), replace(two, pod=pod)) == [(), ()]

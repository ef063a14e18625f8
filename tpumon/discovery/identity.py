"""The one place that decides which job and which slice a worker belongs to, and what was started as a job.

For job and slice each, the first of these counts: the labels of a targets file, --job and --slice, what the job
announces, the labels of its pod, the name of its pod, the environment of its process, the TPU API. All of these are
untrusted text: they are cut to a limit, and control characters are removed.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tpumon.discovery.finder import Completed, Discovery
from tpumon.model import Address, JobKindName, Target
from tpumon.untrusted_text import one_line

_LONGEST = 200

JOB_VARIABLE, SLICE_VARIABLE = "TPUMON_JOB", "TPUMON_SLICE"
"""By these a job announces itself; for tpumon itself they are its options."""

LISTED_VARIABLE = "TPUMON_LISTED_WORKERS"
"""Stands for how many workers a variable lists: such lists are too long to be kept."""

_MOST = 100_000  # workers or slices

VARIABLES = (
    *(JOB_VARIABLE, SLICE_VARIABLE, "HOSTNAME", "JOB_COMPLETION_INDEX", "JOBSET_NAME", "REPLICATED_JOB_NAME"),
    *("LWS_LEADER_ADDRESS", "RAY_CLUSTER_NAME", "TPU_NAME", "TPU_WORKER_HOSTNAMES", "MEGASCALE_SLICE_ID"),
    *("TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS", "MEGASCALE_NUM_SLICES", LISTED_VARIABLE),
)
"""All that names a job in its environment; tpumon/attach/pythonpath/tpumon_attach/announcement.py has the same list."""

POD_LABELS: Mapping[str, str] = {
    "TPUMON_POD_JOBSET": "jobset.sigs.k8s.io/jobset-name",
    "TPUMON_POD_REPLICATED_JOB": "jobset.sigs.k8s.io/replicatedjob-name",
    "TPUMON_POD_JOB_INDEX": "jobset.sigs.k8s.io/job-index",
    "TPUMON_POD_LWS": "leaderworkerset.sigs.k8s.io/name",
    "TPUMON_POD_LWS_GROUP": "leaderworkerset.sigs.k8s.io/group-index",
    "TPUMON_POD_RAY_CLUSTER": "ray.io/cluster",
    "TPUMON_POD_RAY_REPLICA": "replicaIndex",
    "TPUMON_POD_JOB": "batch.kubernetes.io/job-name",
    "TPUMON_POD_KUEUE_GROUP": "kueue.x-k8s.io/pod-group-name",
}
"""Variables by which a sidecar knows labels of its pod, from the downward API."""

NAMESPACE_VARIABLE, POD_VARIABLE = "TPUMON_POD_NAMESPACE", "TPUMON_POD_NAME"

_RANDOM = r"[bcdfghjklmnpqrstvwxz2456789]{5}"  # what Kubernetes makes random names of
_OF_JOBSET = re.compile(rf"(?P<job>.+)-(?P<slice>\d+)-\d+-{_RANDOM}")
_OF_INDEXED_JOB = re.compile(rf"(?P<job>.+)-\d+-{_RANDOM}")
_OF_LEADER_WORKER_SET = re.compile(r"(?P<job>.+?)-(?P<slice>\d{1,4})(-\d{1,4})?")  # no random digits


class JobNames(Struct, frozen=True, kw_only=True):
    """Names of a job and a slice by one source; None: the source names none."""

    job: str | None = None
    slice: str | None = None

    def within(self, namespace: str | None) -> JobNames:
        """The names with the namespace in front of the job's, as Kubernetes has it."""
        if self.job is None or not namespace or "/" in self.job:
            return self
        return replace(self, job=f"{namespace}/{self.job}")


def first_of(*names: JobNames) -> JobNames:
    """The first job and the first slice that are named."""
    return JobNames(
        job=next((one.job for one in names if one.job is not None), None),
        slice=next((one.slice for one in names if one.slice is not None), None),
    )


def names(job: str | None = None, slice_name: str | None = None) -> JobNames:
    """Job and slice as names that can be shown; an empty name counts as none."""
    return JobNames(job=_tame(job), slice=_tame(slice_name))


def announced(environment: Mapping[str, str]) -> JobNames:
    """Names that a job announces."""
    return names(environment.get(JOB_VARIABLE), environment.get(SLICE_VARIABLE))


def of_labels(environment: Mapping[str, str]) -> JobNames:
    """Names by the labels of tpumon's own pod, which the variables of `POD_LABELS` hold."""
    label = {name: environment.get(name) or None for name in POD_LABELS}
    jobset, replicated = label["TPUMON_POD_JOBSET"], label["TPUMON_POD_REPLICATED_JOB"]
    if jobset is not None:
        job = jobset if replicated is None else f"{jobset}-{replicated}"
        return names(job, label["TPUMON_POD_JOB_INDEX"])
    if label["TPUMON_POD_LWS"] is not None:
        return names(label["TPUMON_POD_LWS"], label["TPUMON_POD_LWS_GROUP"])
    if label["TPUMON_POD_RAY_CLUSTER"] is not None:
        return names(label["TPUMON_POD_RAY_CLUSTER"], label["TPUMON_POD_RAY_REPLICA"])
    return names(label["TPUMON_POD_JOB"] or label["TPUMON_POD_KUEUE_GROUP"])


def of_pod_name(name: str) -> JobNames:
    """Names by that of a pod which a JobSet, an indexed Job or a LeaderWorkerSet has made; none for any other."""
    for form in (_OF_JOBSET, _OF_INDEXED_JOB, _OF_LEADER_WORKER_SET):
        match = form.fullmatch(name)
        if match is not None:
            return names(match["job"], match.groupdict().get("slice"))
    return JobNames()


def of_job(own: Mapping[str, str], pod_name: str | None, environment: Mapping[str, str]) -> bool:
    """True if a worker's pod is one of a JobSet or of a Job, by the same signs as its name.

    Args:
        own: variables that hold labels of its pod.
        pod_name: the name of its pod, if known.
        environment: of its process.
    """
    by_labels = any(own.get(name) for name in ("TPUMON_POD_JOBSET", "TPUMON_POD_JOB"))
    by_name = any(form.fullmatch(pod_name or "") for form in (_OF_JOBSET, _OF_INDEXED_JOB))
    return by_labels or by_name or _of_jobset(environment) != JobNames() or _of_indexed_job(environment) != JobNames()


def of_environment(environment: Mapping[str, str]) -> JobNames:
    """Names by the environment of a job's process: of Kubernetes' kinds of jobs, of Google's webhook, of libtpu."""
    made = first_of(_of_jobset(environment), _of_leader_worker_set(environment), _of_indexed_job(environment))
    return first_of(
        made,
        names(
            environment.get("RAY_CLUSTER_NAME"), environment.get("TPU_NAME") or environment.get("MEGASCALE_SLICE_ID")
        ),
    )


def workers_of(environment: Mapping[str, str]) -> int | None:
    """The number of workers of the slice of a job's process; None: not known."""
    bounds = environment.get("TPU_PROCESS_BOUNDS") or environment.get("TPU_HOST_BOUNDS") or ""
    sides = [side for text in bounds.split(",") if (side := number(text)) is not None]
    product = number(str(math.prod(sides))) if len(sides) == len(bounds.split(",")) else None
    return product or number(environment.get(LISTED_VARIABLE, ""))


def number(text: str) -> int | None:
    """A number of workers or slices; None: it is none."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 and 0 < int(text) <= _MOST else None


def _of_jobset(environment: Mapping[str, str]) -> JobNames:
    """A JobSet gives its pods the host names JOBSET-REPLICATEDJOB-JOB-POD, and its own name as their domain."""
    host, _, domain = environment.get("TPU_WORKER_HOSTNAMES", "").partition(",")[0].partition(".")
    host = host or environment.get("HOSTNAME", "")
    jobset = environment.get("JOBSET_NAME") or domain.partition(".")[0]
    replicated = environment.get("REPLICATED_JOB_NAME")
    match = re.fullmatch(rf"(?P<job>{re.escape(jobset)}-.+)-(?P<slice>\d+)-\d+", host) if jobset else None
    if match is not None:
        return names(match["job"], match["slice"])
    if environment.get("JOBSET_NAME"):
        return names(f"{jobset}-{replicated}" if replicated else jobset, environment.get("MEGASCALE_SLICE_ID"))
    return JobNames()


def _of_leader_worker_set(environment: Mapping[str, str]) -> JobNames:
    """The leader of each group is NAME-GROUP.NAME.NAMESPACE."""
    leader, _, domain = environment.get("LWS_LEADER_ADDRESS", "").partition(".")
    name, _, namespace = domain.partition(".")
    group = leader.removeprefix(f"{name}-")
    if not name or not group.isdecimal():
        return JobNames()
    return names(name, group).within(namespace.partition(".")[0])


def _of_indexed_job(environment: Mapping[str, str]) -> JobNames:
    """An indexed Job gives its pods the host names NAME-INDEX."""
    index, host = environment.get("JOB_COMPLETION_INDEX", ""), environment.get("HOSTNAME", "")
    return names(host.removesuffix(f"-{index}")) if index.isdecimal() and host.endswith(f"-{index}") else JobNames()


def identified(
    target: Target, *, given: JobNames, labelled: JobNames, own: Mapping[str, str], inferred: JobNames
) -> Target:
    """A worker with its job and slice.

    Args:
        target: as it was found, with its pod and its job's environment where they are known.
        given: by options.
        labelled: by the labels of a targets file.
        own: tpumon's own environment, which names its pod where that is the worker's, too.
        inferred: by the TPU API.
    """
    if not _shares_pod(target):
        own = {}
    pod = target.pod
    namespace = own.get(NAMESPACE_VARIABLE) or (None if pod is None else pod.namespace)
    pod_name = own.get(POD_VARIABLE) or (None if pod is None else pod.name)
    environment = dict(target.environment)
    named = first_of(
        labelled,
        given.within(namespace),
        announced(environment).within(namespace),
        of_labels(own).within(namespace),
        of_pod_name(pod_name or "").within(namespace),
        of_environment(environment).within(namespace),
        inferred,
        names(pod_name).within(namespace),  # any other pod is a job of one
    )
    named = names(named.job, named.slice)
    alone = target.independent and named == JobNames()
    of_run = target.attached or of_job(own, pod_name, environment)
    return replace(
        target,
        job=named.job,
        slice=named.slice,
        independent=alone,
        environment=(),
        slice_workers=workers_of(environment) or target.slice_workers,
        kind_signs=(*target.kind_signs, *(("job",) if of_run else ())),
        job_slices=number(environment.get("MEGASCALE_NUM_SLICES", "")) or target.job_slices,
    )


def with_several(targets: Sequence[Target]) -> Iterator[Target]:
    """Workers outside Kubernetes, with the sign of a job where their slice has several."""
    followed = Counter((target.job, target.slice) for target in targets if not target.independent)
    for target in targets:
        several = (target.slice_workers or followed[target.job, target.slice]) > 1
        if several and target.pod is None and "job" not in target.kind_signs:
            yield replace(target, kind_signs=(*target.kind_signs, "job"))
        else:
            yield target


def _shares_pod(target: Target) -> bool:
    return target.pod is None and Address.parse(target.address).is_this_host


class Identified(Completed):
    """Another discovery's workers with their job and slice.

    Args:
        discovery: finds the workers.
        given: job and slice by options.
        job_kind: the kind of job, by an option.
        by_labels: whether the slices and jobs that it names come from labels, which count before options; else they
            count after everything else.
        environment: tpumon's own; None: as it is.
    """

    def __init__(
        self,
        discovery: Discovery,
        given: JobNames,
        *,
        job_kind: JobKindName | None = None,
        by_labels: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(discovery)
        self._given = given
        self._job_kind = job_kind
        self._by_labels = by_labels
        self._environment = os.environ if environment is None else environment
        self._in_kubernetes = "KUBERNETES_SERVICE_HOST" in self._environment

    def _complete(self, targets: Sequence[Target]) -> Iterable[Target]:
        known = tuple(map(self._identified, targets))
        return known if self._in_kubernetes else with_several(known)

    def _identified(self, target: Target) -> Target:
        said, nothing = names(target.job, target.slice), JobNames()
        return identified(
            replace(target, job_kind=self._job_kind or target.job_kind),
            given=self._given,
            labelled=said if self._by_labels else nothing,
            own=self._environment,
            inferred=nothing if self._by_labels else said,
        )


def _tame(text: str | None) -> str | None:
    return one_line(text, limit=_LONGEST) or None if text else None

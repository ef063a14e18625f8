"""The relabelling of deploy/ on a real Prometheus that scrapes a real exporter.

Targets are static; their labels are those that discovery in Kubernetes finds, which Debian's Prometheus cannot do.
"""

from __future__ import annotations

import time

import pytest

from support.deploy import relabel_configs
from support.prometheus import running_prometheus
from support.samples import sample
from support.wired import wired
from tpumon.model import Target, Workers

pytestmark = pytest.mark.real

POD = "__meta_kubernetes_pod"
OURS = {"__meta_kubernetes_namespace": "ml", f"{POD}_node_name": "node-1", f"{POD}_container_port_name": "tpumon"}

PODS = {
    "ours": OURS | {f"{POD}_name": "train-0", f"{POD}_label_jobset_sigs_k8s_io_jobset_name": "other"},
    "another port": OURS | {f"{POD}_name": "train-other", f"{POD}_container_port_name": "http"},
    "that has ended": OURS | {f"{POD}_name": "train-old", f"{POD}_phase": "Succeeded"},
}


def test_pod_and_node_stand_beside_tpumon_s_own_labels(tmp_path):
    """Job and slice are what tpumon says, from /metrics and /probe; pods that are not ours or have ended are none."""
    target = Target(worker="host-1", address="127.0.0.1:9999", job="ml/train", slice="0")
    output = wired("prometheus", "127.0.0.1:0")
    try:
        output.add(Workers(targets=(target,)))
        output.add(sample("host-1", time_unix_s=time.time(), interval_s=600, mxu_utilization_ratio=0.4))
        targets = [{"targets": [output.address], "labels": labels} for labels in PODS.values()]
        *steps, to_exporter = relabel_configs("probe")
        given = {"tpu_job": "ml/train", "slice": "0", "worker": "host-1"}  # as in a file of --targets
        jobs = [
            {"job_name": "tpumon", "static_configs": targets, "relabel_configs": relabel_configs()},
            {
                "job_name": "probe",
                "metrics_path": "/probe",
                "static_configs": [{"targets": [target.address], "labels": given}],
                "relabel_configs": [*steps, to_exporter | {"replacement": output.address}],
            },
        ]
        with running_prometheus(tmp_path, jobs) as server:
            server.wait_for("count(tpu_mxu_utilization_ratio) == 2")
            found = {row["metric"]["job"]: row["metric"] for row in server.query("tpu_mxu_utilization_ratio")}
    finally:
        output.close()

    own = {"__name__": "tpu_mxu_utilization_ratio", "worker": "host-1", "tpu_job": "ml/train", "tpu_slice": "0"}
    pod = {"namespace": "ml", "pod": "train-0", "node": "node-1"}
    assert found == {
        "tpumon": own | pod | {"job": "tpumon", "instance": output.address},
        "probe": own | {"job": "probe", "instance": target.address},
    }

"""The relabelling of deploy/ on a real Prometheus that scrapes a real exporter.

Targets are static; their labels are those that discovery in Kubernetes finds, which Debian's Prometheus cannot do.
"""

from __future__ import annotations

import time

import pytest

from support.deploy import relabel_configs
from support.prometheus import running_prometheus
from support.samples import sample
from tpumon.model import Target, Workers
from tpumon.outputs import OutputOptions
from tpumon_exporters.prometheus import open_prometheus

pytestmark = pytest.mark.real

POD = "__meta_kubernetes_pod"
OURS = {"__meta_kubernetes_namespace": "ml", f"{POD}_node_name": "node-1", f"{POD}_container_port_name": "tpumon"}
POOL = "__meta_kubernetes_node_label_cloud_google_com_gke_nodepool"

PODS = {
    "in a JobSet": OURS
    | {
        f"{POD}_name": "train-slice-1-0",
        f"{POD}_label_batch_kubernetes_io_job_name": "train-slice-1",
        f"{POD}_label_jobset_sigs_k8s_io_jobset_name": "train",
        f"{POD}_label_jobset_sigs_k8s_io_replicatedjob_name": "slice",
        f"{POD}_label_jobset_sigs_k8s_io_job_index": "1",
        POOL: "pool-b",
    },
    "in a Job": OURS | {f"{POD}_name": "tune-x", f"{POD}_label_batch_kubernetes_io_job_name": "tune"},
    "of the DaemonSet": OURS | {f"{POD}_name": "tpumon-abcde", POOL: "pool-b"},
    "another port": OURS | {f"{POD}_name": "train-other", f"{POD}_container_port_name": "http"},
    "that has ended": OURS | {f"{POD}_name": "train-old", f"{POD}_phase": "Succeeded"},
}


def test_pod_job_and_slice_stand_beside_worker(tmp_path):
    """As far as the pod knows them; pods that are not ours or have ended are left alone; nothing is `exported_`."""
    output = open_prometheus("127.0.0.1:0", OutputOptions())
    try:
        output.follow(Workers(targets=(Target(worker="host-1", address="127.0.0.1:9999"),)))
        output.write(
            sample(
                "host-1",
                time_unix_s=time.time(),
                interval_s=600,
                slice="named-by-tpumon",
                mxu_utilization_ratio=0.4,
            )
        )
        targets = [{"targets": [output.address], "labels": labels} for labels in PODS.values()]
        job = {"job_name": "tpumon", "static_configs": targets, "relabel_configs": relabel_configs()}
        with running_prometheus(tmp_path, [job]) as server:
            server.wait_for("count(tpu_mxu_utilization_ratio) == 3")
            found = {row["metric"].pop("pod"): row["metric"] for row in server.query("tpu_mxu_utilization_ratio")}
            sliced = server.query('tpu_worker_info{pod="train-slice-1-0"}')
    finally:
        output.close()

    always = {
        "__name__": "tpu_mxu_utilization_ratio",
        "instance": output.address,
        "job": "tpumon",
        "namespace": "ml",
        "node": "node-1",
        "worker": "host-1",
    }
    assert found == {
        "train-slice-1-0": always | {"tpu_job": "train", "tpu_slice": "slice-1"},
        "tune-x": always | {"tpu_job": "tune"},
        "tpumon-abcde": always | {"tpu_slice": "pool-b"},
    }
    assert sliced[0]["metric"]["slice"] == "named-by-tpumon"

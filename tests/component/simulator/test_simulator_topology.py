"""Names of TPUs and what they stand for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tpumon.errors import UsageError
from tpumon.simulator.topology import GENERATIONS, parse_topology


@pytest.mark.parametrize(
    ("name", "hosts", "chips_per_host", "cores_per_host", "devices_per_host", "device_type"),
    [
        ("v2-8", 1, 4, 8, 8, "TPU v2"),
        ("v3-32", 4, 4, 8, 8, "TPU v3"),
        ("v4-16", 2, 4, 8, 4, "TPU v4"),
        ("v5e-1", 1, 1, 1, 1, "TPU v5 Lite"),
        ("v5e-8", 1, 8, 8, 8, "TPU v5 Lite"),
        ("v5e-16", 4, 4, 4, 4, "TPU v5 Lite"),
        ("v5p-128", 16, 4, 8, 4, "TPU v5"),
        ("v6e-256", 64, 4, 4, 4, "TPU v6 Lite"),
        ("7x-8", 1, 4, 8, 8, "TPU v7x"),
    ],
)
def test_a_name_stands_for_hosts_chips_and_devices(
    name, hosts, chips_per_host, cores_per_host, devices_per_host, device_type
):
    topology = parse_topology(name)
    assert (topology.hosts, topology.chips_per_host) == (hosts, chips_per_host)
    assert (topology.cores_per_host, topology.devices_per_host) == (cores_per_host, devices_per_host)
    assert topology.generation.device_type == device_type


def test_peaks_are_shared_by_the_devices_of_a_chip():
    assert parse_topology("v3-8").device_peak_flops == pytest.approx(61.5e12)
    assert parse_topology("v3-8").device_hbm_bytes == 16 << 30
    assert parse_topology("v4-8").device_peak_flops == pytest.approx(275e12)
    assert parse_topology("v6e-8").device_peak_flops == pytest.approx(918e12)
    assert parse_topology("v6e-8").device_hbm_bandwidth_bytes_per_s == pytest.approx(1640e9)


def test_only_tpu_nodes_answer_monitor():
    assert [name for name, generation in GENERATIONS.items() if generation.answers_monitor] == ["v2", "v3"]


@pytest.mark.parametrize(
    ("alias", "name"), [("v5litepod-8", "v5e-8"), ("tpu7x-16", "7x-16"), (" V6E-4 ", "v6e-4"), ("v4-8", "v4-8")]
)
def test_other_spellings(alias, name):
    assert parse_topology(alias).name == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("", "v5e-8"),
        ("v5e", "GENERATION-SIZE"),
        ("v5e8", "GENERATION-SIZE"),
        ("v9-8", "did you mean v4-8"),
        ("v6-8", "did you mean v6e-8"),
        ("v5-16", "v5p-16"),
        ("v5e-7", "v5e-4, v5e-8"),
        ("v5e-512", "v5e-128, v5e-256"),
        ("v4-12", "v4-8, v4-16"),
        ("v4-0", "v4-8"),
        ("v4-100000", "v4-8192"),
        ("v2-16", "v2-8, v2-32"),
        ("v5e-8\nx", "GENERATION-SIZE"),
    ],
)
def test_a_bad_name_is_refused_in_one_line_that_shows_a_good_one(name, hint):
    with pytest.raises(UsageError) as refused:
        parse_topology(name)
    assert hint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_topologies_scenarios_and_settings_need_no_grpc():
    code = (
        "import sys, tpumon.simulator.topology, tpumon.simulator.scenario, tpumon.simulator.simulator_settings;"
        "sys.exit(any(name.split('.')[0] in ('grpc', 'google') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

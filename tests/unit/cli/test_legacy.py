"""capture_tpu_profile's command lines."""

from __future__ import annotations

import pytest

from tpumon.cli.legacy import translate


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "--service_addr=10.0.0.2:8466 --monitoring_level=2",
            "--service-addr 10.0.0.2:8466 --monitoring-level 2",
        ),
        ("--tpu=name --tpu_zone us-b --gcp_project p", "--tpu name --zone us-b --project p"),
        ("--tpu_name=name", "--tpu name"),
        ("-monitoring_level 1 -num_queries=7", "--monitoring-level 1 --num-queries 7"),
        ("--workers_list=a,b --logdir=/tmp/x", "--workers-list a,b --logdir /tmp/x"),
        ("--duration_ms=0", "--duration-ms 1000"),
        ("--duration_ms -5", "--duration-ms 1000"),
        ("--duration_ms=250 --num_tracing_attempts=5", "--duration-ms 250 --num-tracing-attempts 5"),
        ("--host_tracer_level=3", "--host-tracer-level 3"),
        ("--level 2 --duration-ms 100 simulate v5e-8", "--level 2 --duration-ms 100 simulate v5e-8"),
        ("--service_addr", "--service-addr"),
        ("serve --web.listen-address=:1 --web.config.file f", "serve --listen :1 --web-config f"),
        ("run x --service_addr=x -display_timestamp", "run x --service_addr=x -display_timestamp"),
        ("-- --service_addr=x", "-- --service_addr=x"),
    ],
)
def test_old_spellings_become_new_ones(old, new):
    """Flags with underscores, one dash or two, `=` or a space, become tpumon's; everything else stays."""
    assert translate(old.split()) == (new.split(), [])


@pytest.mark.parametrize(
    "flag",
    [
        "--include_dataset_ops", "--noinclude_dataset_ops", "--include_dataset_ops=false",
        "--display_timestamp=true", "--nodisplay_timestamp", "-display_timestamp",
    ],
)  # fmt: skip
def test_deprecated_flags_are_dropped_with_a_note(flag):
    """A flag that no longer means anything is accepted, and the user is told."""
    arguments, notes = translate([flag, "--level", "2"])
    assert arguments == ["--level", "2"]
    assert len(notes) == 1
    assert "deprecated" in notes[0]

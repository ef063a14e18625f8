"""A host that was profiled twice: `report` and `analyze` make no figures of both together."""

from __future__ import annotations

import json
import shutil

import pytest

from support.captures import simulated_session
from tpumon.cli.commands import analyze
from tpumon.cli.process import command_of
from tpumon.errors import UsageError
from tpumon.simulator.scenario import SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology

JOB = SimulatedJob(topology=parse_topology("v5e-16"), scenario="steady", seed=3)


@pytest.fixture
def sessions(tmp_path):
    """Profiles of the same two workers, three seconds apart, in directories with a space in their names."""
    made = []
    for name, at_s in (("the new", 13), ("the old", 10)):
        made.append(tmp_path / name)
        made[-1].mkdir()
        simulated_session(made[-1], JOB, start_ns=at_s * SECOND)
    return made


def report(*arguments):
    return command_of(["report", *map(str, arguments)])()


def test_two_profiles_of_one_host_are_not_reported_as_one(sessions):
    new, old = sessions
    with pytest.raises(UsageError) as told:
        report(new, old)
    assert str(told.value) == (
        f"{new} and {old} are two profiles of sim-v5e-16-w0, taken at 2023-11-14 22:13:33 and 2023-11-14 22:13:30 "
        f"(UTC); compare them: tpumon report '{new}' --against '{old}'"
    )
    # In whatever order, and on either side of a comparison.
    with pytest.raises(UsageError, match=f"tpumon report '{new}' --against '{old}'"):
        report(old, new)
    with pytest.raises(UsageError) as told:
        report(new, "--against", old, "--against", new)
    assert told.value.option == "against"
    assert report(new, "--against", old) == 0


def test_a_comparison_says_what_is_before_and_what_is_after(sessions, capsys):
    new, old = sessions
    before, after = f"{old} (2023-11-14 22:13:30 UTC)", f"{new} (2023-11-14 22:13:33 UTC)"
    assert report(new, "--against", old) == 0
    assert capsys.readouterr().out.splitlines()[3:6] == ["Profiles", f"  Before  {before}", f"  After   {after}"]
    assert report(new, "--against", old, "--output", "html") == 0
    shown = capsys.readouterr().out
    assert f"<title>{after}, compared with {before}</title>" in shown
    assert f"<dt>Before</dt><dd>{before}</dd>\n<dt>After</dt><dd>{after}</dd>" in shown


def test_one_path_is_one_profile_with_a_caution(sessions, tmp_path, capsys):
    """A worker may have answered late."""
    new, old = sessions
    assert report(new) == 0
    assert capsys.readouterr().err == ""
    shutil.copy(old / "sim-v5e-16-w0.xplane.pb", new / "earlier.xplane.pb")
    assert report(new) == 0
    said = capsys.readouterr().err
    assert f"{new}/sim-v5e-16-w0.xplane.pb and {new}/earlier.xplane.pb are two profiles of sim-v5e-16-w0" in said


def test_the_files_of_one_session_are_one_profile(sessions):
    assert report(*sorted(sessions[0].iterdir())) == 0


def test_windows_that_meet_are_of_one_profile(sessions, tmp_path):
    """Several servers of a host do not begin at the same moment."""
    later = tmp_path / "later"
    later.mkdir()
    simulated_session(later, JOB, start_ns=13 * SECOND + SECOND // 2)
    assert report(sessions[0], later) == 0


def test_analyze_tells_two_profiles_of_one_host_apart(sessions, capsys):
    new, old = (directory / "sim-v5e-16-w0.xplane.pb" for directory in sessions)
    assert analyze.run(paths=[str(new), str(old)]) == 0
    out, said = capsys.readouterr()
    assert [line for line in out.splitlines() if line.startswith("Worker: ")] == [
        f"Worker: sim-v5e-16-w0 ({new})",
        f"Worker: sim-v5e-16-w0 ({old})",
    ]
    assert f"all hosts: {new} and {old} are two profiles of sim-v5e-16-w0" in said
    assert analyze.run(paths=[str(new), str(old)], output="json") == 0
    assert json.loads(capsys.readouterr().out)["combined"] is None


def test_of_simulated_profiles_it_is_said_that_they_are(sessions, capsys):
    new, old = sessions
    assert report(new, "--against", old, "--fail-above", "5%") == 0
    assert "which is not above 5%; this is no proof: tpumon simulated them, or one of them" in capsys.readouterr().err

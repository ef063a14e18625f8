"""The workflows: what they run is there, what they use is pinned, and no job may do more than it needs."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest
import yaml

from support import REPOSITORY

FILES = {path.stem: path for path in (REPOSITORY / ".github" / "workflows").glob("*.yml")}
WORKFLOWS = {name: yaml.safe_load(path.read_text()) for name, path in FILES.items()}
JOBS = {(name, job): what for name, workflow in WORKFLOWS.items() for job, what in workflow["jobs"].items()}
READ = {"contents": "read"}

# what a job may do beyond reading; all others inherit READ
ALLOWED = {
    ("docs", "publish"): {"id-token": "write", "pages": "write"},
    ("release", "attest"): {"attestations": "write", "id-token": "write"},
    ("release", "pypi"): {"id-token": "write"},
    ("release", "github"): {"contents": "write"},
    ("release", "image"): {**READ, "packages": "write"},
}
BUILDS_WHAT_IT_PUBLISHES = {("release", "image")}
OF_THE_RUNNER = {"mkdir", "cp", "gh", "echo", "sudo"}

every_job = pytest.mark.parametrize("at", JOBS, ids="-".join)


def steps(at, key):
    return [step[key] for step in JOBS[at]["steps"] if key in step]


def test_there_are_three():
    assert set(WORKFLOWS) == {"test", "docs", "release"}


@every_job
def test_what_a_step_runs_is_there(at):
    targets = set(re.findall(r"^([a-z][\w-]*):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for line in steps(at, "run"):
        assert "${{" not in line, "an expression becomes part of the command; give it as a variable"
        for command in line.split("&&"):
            program, *words = shlex.split(command)
            if program == "make":
                assert set(words) <= targets
            else:
                assert program in OF_THE_RUNNER or (REPOSITORY / program).is_file()
    for with_ in steps(at, "with"):
        assert "file" not in with_ or (REPOSITORY / with_["file"]).is_file()


@every_job
def test_a_job_may_do_what_it_needs_and_no_more(at):
    """Who may write runs nothing of the repository; but for the image, which is built where it is pushed."""
    assert WORKFLOWS[at[0]]["permissions"] == READ
    assert JOBS[at].get("permissions") == ALLOWED.get(at)
    assert JOBS[at]["timeout-minutes"] <= 120
    if at in ALLOWED and at not in BUILDS_WHAT_IT_PUBLISHES:
        assert not [action for action in steps(at, "uses") if action.startswith("actions/checkout@")]
        assert not [line for line in steps(at, "run") if line.startswith(("make", "scripts/"))]
    for step in JOBS[at]["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("name", FILES)
def test_actions_are_pinned(name):
    """To a commit, with its version beside it, the same everywhere."""
    used = re.findall(r"uses: (.*)", FILES[name].read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
    everywhere = {action for path in FILES.values() for action in re.findall(r"uses: (.*)", path.read_text())}
    assert len(everywhere) == len({action.partition("@")[0] for action in everywhere})


@pytest.mark.parametrize("name", FILES)
def test_nobody_else_s_code_runs_with_our_rights(name):
    events = WORKFLOWS[name][True]  # `on`, as YAML 1.1 reads it
    assert set(events) <= {"push", "pull_request"}
    if set(events) != {"push"}:
        assert not [at for at in ALLOWED if at[0] == name]


def test_every_python_that_is_claimed_is_tested():
    about = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["classifiers"]
    claimed = {match[1] for line in about if (match := re.search(r":: (3\.\d+)$", line))}
    assert set(JOBS["test", "wheel"]["strategy"]["matrix"]["python"]) == claimed == {"3.11", "3.12", "3.13", "3.14"}

"""The kind of a job, by its samples and its processes, and the findings that are no more than info without it."""

from __future__ import annotations

import pytest

from support.samples import failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.analysis.job_kind import KindOfWorker
from tpumon.model import FunctionFigures, JobKind, Process, ServerFigures, StepTimes, Target, Workers

HERE = Process(pid=7)
NAMELESS = {"step_time_s": StepTimes(avg=0.1, min=0.1, max=0.1), "step_source": "modules", "step_name": "jit_f"}


def kind_after(*samples, **target):
    """The kind of a worker's job after some samples."""
    kind = KindOfWorker()
    for one in samples:
        kind.note(one, Target(worker="w0", address="w0:1", **target))
    return kind.known


def ran(*names, **given):
    """A sample of these programs, with or without figures of a server."""
    server = {name: given.pop(name) for name in ("requests_running", "requests_waiting", "busy_ratio") if name in given}
    functions = tuple(FunctionFigures(name=name, runs=3) for name in names)
    return sample(functions=functions, server=ServerFigures(**server) if server else None, **given)


def steps(*averages_s, **figures):
    return [
        sample(**{**NAMELESS, "step_time_s": StepTimes(avg=avg, min=avg, max=avg), **figures}) for avg in averages_s
    ]


@pytest.mark.parametrize(
    ("samples", "target", "kind"),
    [
        pytest.param([sample()], {}, "unknown", id="nothing is seen"),
        pytest.param([sample(**NAMELESS)] * 2, {"process": HERE}, "unknown", id="two samples are too few"),
        pytest.param([sample(**NAMELESS)] * 3, {"process": HERE}, "training", id="the same step three times"),
        pytest.param([sample(**NAMELESS)] * 3, {}, "unknown", id="in another container a server steps alike"),
        pytest.param([sample(**NAMELESS)] * 3, {"kind_signs": ("job",)}, "training", id="but not if it is a job"),
        pytest.param(steps(0.1, 0.15, 0.1), {"process": HERE}, "unknown", id="steps differ"),
        pytest.param(
            steps(0.1, 0.1, 0.1, 0.15, 0.1, 0.3), {"process": HERE}, "training", id="steps were alike, and differ now"
        ),
        pytest.param(
            steps(0.1, 0.1) + steps(0.1, step_name="jit_g"), {"process": HERE}, "unknown", id="another program"
        ),
        pytest.param(steps(0.1, step_source="steps"), {}, "training", id="step markers"),
        pytest.param(steps(0.1, step_source="server"), {}, "training", id="the Monitor RPC's steps"),
        *(
            pytest.param(steps(0.1, step_name=name), {}, "training", id=name)
            for name in ("jit_train_step", "train_step", "p_train_step", "jit_train", "jit__train_step", "pretrain")
        ),
        *(
            pytest.param(steps(*[0.1] * 5, step_name=name), {"process": HERE}, "unknown", id=name)
            for name in ("jit_generate", "jit_prefill_fn", "jit_decode", "jit_run_model")
        ),
        pytest.param(
            steps(0.1, step_name="jit_generate") + steps(0.1, step_name="jit_train_step"), {}, "mixed", id="RL"
        ),
        pytest.param(
            steps(0.1, step_name="jit_decode") + steps(0.1, step_source="steps", step_name="3"), {}, "unknown",
            id="a server with markers",
        ),
        pytest.param(steps(0.1, step_name="jit_constrained"), {}, "unknown", id="train within a word"),
        pytest.param([failed_sample(reason="empty-trace")], {"kind_signs": ("job",)}, "training", id="never active"),
        pytest.param(
            steps(0.1, step_source="steps"), {"kind_signs": ("notebook", "job")}, "interactive", id="a notebook"
        ),
        pytest.param(steps(0.1, step_source="steps"), {"kind_signs": ("server",)}, "serving", id="a server"),
        *(
            pytest.param([one], {"server_metrics": "http://h/metrics", **more}, kind, id=f"a page, {name}")
            for one, more, kind, name in (
                (sample(), {}, "serving", "and nothing yet"),
                (sample(**NAMELESS), {}, "unknown", "and something runs"),
                (sample(), {"kind_signs": ("job",)}, "training", "of a host's jobs"),
            )
        ),
        pytest.param([sample()], {"job_kind": "batch", "kind_signs": ("server",)}, "batch", id="an option"),
    ],
)  # fmt: skip
def test_the_kind_of_a_job_by_what_is_seen(samples, target, kind):
    found = kind_after(*samples, **target)
    assert found.kind == kind
    assert found.evidence or kind == "unknown"


TPU_INFERENCE = ("jit_run_model_impl", "jit_sample", "jit_run_compute_logits")
MAX_ENGINE = ("jit__prefill_jit", "jit__insert_jit", "jit__generate_jit")
SGLANG = ("jit_jitted_run_model", "jit_jitted_sampler")


@pytest.mark.parametrize(
    ("samples", "target", "kind"),
    [
        *(
            pytest.param([ran(*names)], {}, "serving", id=names[0])
            for names in (TPU_INFERENCE, MAX_ENGINE, SGLANG, ("execute_model: 3 reqs, 48 toks",), ("run_batch",))
        ),
        pytest.param([ran("jit_prefill"), ran("jit_generate")], {}, "serving", id="one after the other"),
        pytest.param([ran("jit_f", requests_running=0.0)], {}, "serving", id="its own metrics"),
        pytest.param([ran("jit_f", requests_waiting=0.0)], {}, "serving", id="the metrics of JetStream"),
        pytest.param([ran("jit_f", busy_ratio=0.5)], {}, "unknown", id="figures without requests"),
        pytest.param([ran("jit_decode", "jit_train_step")], {}, "training", id="the decoder of an autoencoder"),
        pytest.param([ran("jit_forward", "jit_eval_step")] * 4, {}, "unknown", id="evaluation only"),
        pytest.param([ran("jit_decode", "jit_copy", "jit_select")] * 4, {}, "unknown", id="what any job has beside"),
        pytest.param([ran("jit_sample", "jit_insert")] * 4, {}, "unknown", id="what runs beside models, alone"),
        pytest.param([ran("run_batches", "execute_models")], {}, "unknown", id="longer words"),
        pytest.param(
            [ran(*TPU_INFERENCE, requests_running=3.0), ran("jit_train_step")], {}, "mixed",
            id="RL with a server for its rollout",
        ),
        pytest.param([ran("jit_train_step")], {"kind_signs": ("server",)}, "mixed", id="RL within a server"),
        pytest.param(
            [ran(*SGLANG), *steps(0.1, step_source="steps", step_name="update_policy")], {}, "mixed",
            id="RL, its training by markers",
        ),
        pytest.param(
            [ran(*SGLANG), ran(*SGLANG, **{**NAMELESS, "step_source": "steps"})], {}, "serving",
            id="markers around a server's programs",
        ),
        pytest.param([ran(*SGLANG, busy_ratio=0.99)], {"kind_signs": ("job",)}, "batch", id="offline inference"),
        pytest.param([ran(*SGLANG, busy_ratio=0.99)], {}, "serving", id="full, but no job"),
        pytest.param([ran(*SGLANG, busy_ratio=0.5)], {"kind_signs": ("job",)}, "serving", id="a job that is not full"),
        pytest.param(
            [ran(*SGLANG, busy_ratio=0.99, requests_running=9.0)], {"kind_signs": ("job",)}, "serving",
            id="a full server of a job",
        ),
    ],
)  # fmt: skip
def test_servers_and_jobs_that_infer_are_told_apart(samples, target, kind):
    assert kind_after(*samples, **target).kind == kind


def test_a_kind_is_that_of_the_last_hour_in_which_something_ran():
    kind, target = KindOfWorker(), Target(worker="w0", address="w0:1")
    assert kind.note(ran("jit_train_step", time_unix_s=0.0), target).kind == "training"
    known = kind.note(ran(*SGLANG, time_unix_s=60.0), target)
    assert (known.kind, known.since_unix_s) == ("mixed", 60.0)
    assert known.evidence == ("jit_train_step is a program of training", "programs of inference: sample, step")
    assert kind.note(ran(*SGLANG, time_unix_s=3500.0), target) == known
    known = kind.note(ran(*SGLANG, time_unix_s=3700.0), target)
    assert (known.kind, known.since_unix_s) == ("serving", 3700.0)
    quiet = failed_sample(reason="empty-trace", time_unix_s=40_000.0)
    assert kind.note(quiet, target) == known, "a quiet night changes nothing"
    decodes = {**NAMELESS, "functions": (FunctionFigures(name="jit_step", runs=3),), "step_name": "jit_step"}
    kind, target = KindOfWorker(), Target(worker="w0", address="w0:1", process=HERE)
    for at in (0.0, 10.0, 20.0):
        kind.note(sample(time_unix_s=at, **decodes), target)
        known = kind.note(ran(*SGLANG, time_unix_s=at + 1), target)
    assert known.kind == "serving"
    assert kind.note(quiet, target) == known, "nor where its steps were alike before"


def test_offline_inference_stays_batch_over_a_short_pause():
    kind, target = KindOfWorker(), Target(worker="w0", address="w0:1", kind_signs=("job",))
    assert kind.note(ran(*SGLANG, busy_ratio=0.99), target).kind == "batch"
    idle = failed_sample(reason="empty-trace", server=ServerFigures(busy_ratio=0.1))
    assert kind.note(idle, target).kind == "batch"
    assert kind.note(ran(*SGLANG, busy_ratio=0.8), target).kind == "batch"
    assert kind.note(ran(*SGLANG, busy_ratio=0.4), target).kind == "serving"


def test_an_option_counts_while_it_is_given():
    kind, target = KindOfWorker(), Target(worker="w0", address="w0:1")
    assert kind.note(ran("jit_train_step"), Target(worker="w0", address="w0:1", job_kind="serving")).kind == "serving"
    assert kind.note(ran("jit_train_step"), target).kind == "training"


def test_a_kind_holds_until_something_stronger_is_seen_or_the_job_begins_anew():
    kind, target = KindOfWorker(), Target(worker="w0", address="w0:1")
    kind.note(sample(time_unix_s=1.0, **{**NAMELESS, "step_name": "train_step"}), target)
    known = kind.note(sample(time_unix_s=2.0, **{**NAMELESS, "step_source": "steps"}), target)
    assert (known.kind, known.since_unix_s) == ("training", 1.0)
    known = kind.note(sample(time_unix_s=3.0), Target(worker="w0", address="w0:1", kind_signs=("notebook",)))
    assert (known.kind, known.since_unix_s) == ("interactive", 3.0)
    assert kind.note(sample(time_unix_s=4.0), target, restarted=True).kind == "unknown"


def test_the_kind_of_before_a_restart_of_tpumon_holds_until_something_is_seen():
    kept = JobKind(kind="training", evidence=("step markers",), since_unix_s=1.0)
    kind, target = KindOfWorker(kept), Target(worker="w0", address="w0:1")
    assert kind.note(failed_sample(reason="empty-trace"), target) == kept
    assert kind.note(sample(), Target(worker="w0", address="w0:1", kind_signs=("notebook",))).kind == "interactive"


@pytest.mark.parametrize(
    ("kept", "later"),
    [
        (JobKind(kind="serving", evidence=("a server of models in its process tree",)), "serving"),
        (JobKind(kind="unknown", evidence=("jit_decode is a program of inference",)), "unknown"),
        (JobKind(kind="unknown"), "training"),
        (JobKind(kind="serving", evidence=("--job-kind",)), "training"),
        (JobKind(kind="batch", evidence=("programs of inference: sample, step",)), "batch"),
    ],
)
def test_what_was_seen_before_a_restart_of_tpumon_counts_more_than_how_the_job_was_started(kept, later):
    """What an option said counts while it is given."""
    target = Target(worker="w0", address="w0:1", kind_signs=("job",))
    assert KindOfWorker(kept).note(failed_sample(reason="empty-trace"), target).kind == later


def test_one_program_of_a_server_ends_no_kept_kind():
    kept = JobKind(kind="serving", evidence=("programs of inference: decode, prefill",))
    assert KindOfWorker(kept).note(ran("jit_decode"), Target(worker="w0", address="w0:1")) == kept


def hang_after(minutes, **target):
    """The hang of a worker that has had nothing to do for some minutes, and its sample."""
    fleet, now = Analysis(), 1000.0
    fleet.add(Workers(targets=(Target(worker="w0", address="w0:1", **target),)))
    update = None
    for number in range(4 + minutes * 2):
        now += 30.0
        silent = failed_sample(reason="empty-trace", time_unix_s=now, interval_s=30.0)
        update = fleet.add(sample(time_unix_s=now, interval_s=30.0, **NAMELESS) if number < 4 else silent)
    status, kind = fleet.status(now + 1), update.sample.job_kind.kind
    if not status.findings:
        return {one.finding: one.reason for one in status.not_judged()}["hang"], kind
    (found,) = status.findings
    assert found.finding == "hang"
    assert ("--job-kind" in found.sentence) == (kind == "unknown")
    return found.severity, kind


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"kind_signs": ("job",)}, ("critical", "training")),
        ({"process": HERE}, ("critical", "training")),
        ({}, ("info", "unknown")),
        ({"kind_signs": ("notebook",)}, ("info", "interactive")),
        ({"kind_signs": ("server", "job")}, ("a server waits for requests", "serving")),
        ({"job_kind": "training"}, ("critical", "training")),
        ({"job_kind": "interactive", "kind_signs": ("job",)}, ("info", "interactive")),
    ],
)
def test_a_hang_pages_for_a_job_that_trains_only(target, said):
    assert hang_after(15, **target) == said


def test_the_kind_is_kept_over_a_restart_of_tpumon():
    fleet, targets = Analysis(), Workers(targets=(Target(worker="w0", address="w0:1"),))
    fleet.add(targets)
    fleet.add(sample(step_source="steps", step_time_s=NAMELESS["step_time_s"]))
    again = Analysis()
    again.resume(fleet.kept(1010.0), 1020.0)
    again.add(targets)
    known = again.add(failed_sample(reason="empty-trace", time_unix_s=1020.0)).sample.job_kind
    assert known == JobKind(kind="training", evidence=("step markers",), since_unix_s=1000.0)

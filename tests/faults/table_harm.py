"""Rows of docs/reliability.md: what tpumon does to a job, and what it does where a server shows or answers nothing."""

ROWS = (
    (
        "a job that can use a GPU is sampled",
        "no default command loads CUDA or CUPTI into it",
        "every probe and sample asks for TPUs only; stand-ins for both libraries count 0 calls",
        "test_harm_gpu.py::test_no_default_command_calls_cuda_or_cupti",
    ),
    (
        "a TPU's profiler does not know its type of device",
        "the TPU is seen all the same",
        "one more probe without the restriction, only where the process holds a TPU and no GPU",
        "test_harm.py::test_a_tpu_that_does_not_answer_to_its_type_gets_one_more_probe",
    ),
    (
        "several tpumons of a host trace one job, or one that is restarted again and again",
        "together they trace it for one share of its time",
        "1 % and a credit of 1 s, by files that all of them read; it holds for one that was killed, too",
        "test_harm_duty.py::test_a_tpumon_that_was_killed_is_no_reason_to_trace_more",
    ),
    (
        "a query is cut off before it traced",
        "the job's budget is charged for tracing alone",
        "the first sample of a worker that flaps comes at once",
        "test_harm.py::test_a_worker_that_flaps_has_its_first_sample_at_once",
    ),
    (
        "a job is started with `--name tpumon`",
        "it is found",
        "the program counts, behind an interpreter too, not its arguments",
        "test_harm.py::test_a_job_that_names_tpumon_is_no_tpumon",
    ),
    (
        "a server accepts and never answers",
        "it is named within 10 s, in every output",
        "first calls of a method have a deadline of 10 s, a probe 3 to 10 s; it is asked again at the next interval",
        "test_harm.py::test_a_server_that_never_answers_is_soon_named",
    ),
    (
        "the 1 ms probe shows no device plane, later traces do",
        "a TPU job's host is not traced",
        "host level 0 from the first trace with a device plane on",
        "test_harm.py::test_a_device_plane_seen_later_ends_host_events",
    ),
    (
        "a server can show neither devices nor host events",
        "its job is not traced for nothing",
        "4 traces, then one after 1, 2, 4, ... minutes, each hour at last; at once on a new connection",
        "test_harm.py::test_a_server_that_can_show_nothing_is_left_alone",
    ),
    (
        "every trace of a job is too large to receive or to read",
        "its job is not traced for nothing",
        "8 traces, each lighter, then one after 1, 2, 4, 5, 5, ... minutes; at once on a new connection",
        "test_harm.py::test_a_job_whose_traces_cannot_be_received_or_read_is_traced_ever_more_rarely",
    ),
    (
        "the owner's continuous session runs for days",
        "it is left alone, and its data are not taken",
        "state `continuous` after 5 minutes, no GetSnapshot, a look every 5 minutes; figures 5 minutes after its end",
        "test_harm.py::test_a_continuous_session_of_the_owner_is_a_state_of_its_own",
    ),
    (
        "a subprocess has a profiler server beside its parent's",
        "the parent's traces stay whole",
        "only the parent is sampled",
        "test_harm.py::test_a_subprocess_server_is_not_sampled_beside_its_parent",
    ),
    (
        "a PyTorch/XLA job maps NCCL without a GPU",
        "it is found at any port",
        "only a process with a GPU open is left alone for NCCL",
        "test_harm.py::test_a_pytorch_job_is_found_at_any_port",
    ),
    (
        "a job is started where modules have names of tpumon's",
        "none of them runs in tpumon",
        "what tpumon starts imports nothing from the working directory, nor by an empty entry of PYTHONPATH",
        "test_run_monitor.py::test_nothing_is_imported_from_the_working_directory",
    ),
    (
        "the system refuses `tpumon run --monitor` a process",
        "the program runs all the same",
        "one line says so; there are no figures",
        "test_run_monitor.py::test_where_the_system_refuses_the_program_runs_all_the_same",
    ),
    (
        "containers with attached jobs share /tmp",
        "each finds its own jobs",
        "a process number counts in its own namespace and boot only; files of others are left alone",
        "test_targets_announced.py::test_containers_with_one_directory_leave_each_other_alone",
    ),
)

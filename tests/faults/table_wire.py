"""What meets tpumon from servers that are hostile, hung or merely large, and what then holds."""

from __future__ import annotations

ROWS = (
    (
        "a small trace that is slow to analyze",
        "nobody else loses a sample",
        "The analysis grows with the trace's size; it is given up after 1 s and 0.1 s per MB of processor time.",
        "test_wire_cost.py::test_four_times_the_trace_costs_far_less_than_sixteen_times",
    ),
    (
        "a trace that cannot be read in time",
        "nobody else loses a sample",
        "Its reader is ended, another reads the next trace; that worker then waits for others like it only.",
        "test_wire_cost.py::test_a_trace_that_takes_too_long_is_given_up",
    ),
    (
        "a process that reads traces hangs",
        "nobody else loses a sample",
        "It is ended after a minute plus the processor time that its trace may take; another reads the next trace.",
        "test_wire_cost.py::test_a_reader_that_hangs_is_ended",
    ),
    (
        "a process that reads traces dies, as when memory runs out",
        "nobody else loses a sample",
        "Its own trace is one failed sample; another reads the next trace.",
        "test_wire_cost.py::test_a_reader_that_dies_costs_its_own_trace_alone",
    ),
    (
        "workers whose traces cannot be read",
        "nobody else loses a sample",
        "They delay the others by one interval at most, once.",
        "test_wire_one_interval.py::test_a_worker_that_cannot_be_read_costs_the_others_one_interval_at_most",
    ),
    (
        "a trace that takes too much memory to read",
        "nobody else loses a sample",
        "Its process has a limit of its own; the monitor goes on.",
        "test_wire_cost.py::test_a_trace_that_takes_too_much_memory_is_given_up",
    ),
    (
        "a hundred servers whose Profile hangs",
        "nobody else loses a sample",
        "Who never answered, or not in time, waits among its like, with turns of 0.25 s after the window.",
        "test_wire_fairness.py::test_healthy_workers_keep_their_turns",
    ),
    (
        "a hundred hung servers beside a few that answer, at the start, in a reload, during restarts",
        "nobody else loses a sample",
        "First figures within 5 s, after a restart at the next interval (of 300 whose traces hang: 15 s).",
        "test_wire_new_workers.py::test_workers_that_answer_do_not_queue_behind_those_that_hang",
    ),
    (
        "a targets file that adds a hundred hung servers",
        "nobody else loses a sample",
        "Workers that answered before wait for none of them.",
        "test_wire_new_workers.py::test_a_reload_that_adds_hung_servers_costs_no_worker_a_sample",
    ),
    (
        "a server that hung restarts, others go on hanging",
        "it is sampled again",
        "It waits no longer than 20 s among those that hang.",
        "test_wire_new_workers.py::test_a_server_that_hung_and_restarts_is_one_of_the_others",
    ),
    (
        "hundreds of new names a second, more than the processor has time for",
        "threads and memory are bounded",
        "32 are connected to at a time, for about 0.25 s each; workers that are or were connected do not wait.",
        "test_connecting.py::test_few_connections_are_made_at_a_time_and_all_are_made",
    ),
    (
        "servers that take a connection and say nothing",
        "nobody else loses a sample",
        "Each takes one turn at connecting from other new ones, of a quarter of a second, and then no more.",
        "test_connecting.py::test_hung_servers_take_one_turn_from_the_others_and_then_none",
    ),
    (
        "a worker waits for its turn",
        "nobody else loses a sample",
        "The wait counts in the interval that is shown and exported.",
        "test_wire_fairness.py::test_the_wait_for_a_turn_is_part_of_the_interval",
    ),
    (
        "a probe, Monitor or runtime metrics answered with megabytes of empty messages",
        "the loop goes on",
        "It is refused before an object is made of any; the loop is held up for some ms.",
        "test_wire_answers.py::test_a_hostile_answer_holds_nobody_up",
    ),
    (
        "compressed answers",
        "memory is bounded",
        "None is opened, and the words say so.",
        "test_wire_answers.py::test_a_bomb_is_not_opened",
    ),
    (
        "large answers where small ones are expected",
        "memory is bounded",
        "4 MB for Monitor and runtime metrics, 8 MB for a probe, --max-trace-mb for traces.",
        "test_wire_answers.py::test_each_method_has_a_limit_of_its_own",
    ),
    (
        "a trace with millions of planes, lines, ids, roots or events",
        "nothing false is shown; memory and time are bounded",
        "A warning says what is left out; where figures would be false, the trace is refused and the next one shorter.",
        "test_wire_caps.py::test_what_is_left_out_is_said",
    ),
    (
        "a trace larger than --max-trace-mb",
        "memory is bounded",
        "It is not received, its cost is counted, and the next window is shorter.",
        "test_wire_size.py::test_a_larger_trace_is_refused_and_the_next_window_is_shorter",
    ),
    (
        "thousands of different warnings",
        "the log is readable, memory constant",
        "At most 20 a sample, and one new kind a minute for each worker; the rest are counted.",
        "test_wire_runtime.py::test_made_up_errors_make_few_lines",
    ),
    (
        "absurd numbers from a runtime",
        "nothing false is shown",
        "Every number shown is finite and below 2^60.",
        "test_wire_runtime.py::test_any_answer_makes_a_sample_that_can_be_shown",
    ),
    (
        "thousands of devices, cores, chips",
        "series are bounded",
        "At most 64 devices and 64 cores a worker, their numbers in range; the rest are left out, and this is said.",
        "test_wire_runtime.py::test_more_devices_than_a_host_has_are_left_out_and_said",
    ),
    (
        "memory of large traces",
        "it fits the limits of deploy/",
        "A trace of 60 MB takes less than 0.7 GB; under a smaller limit fewer are taken at a time.",
        "test_wire_size.py::test_an_ordinary_large_trace_fits_the_limits_of_deploy",
    ),
    (
        "FLOPs of 2^60 and more",
        "nothing false is shown, the others are analyzed",
        "They count as unknown.",
        "test_wire_size.py::test_absurd_flops_make_no_figure",
    ),
    (
        "more hung workers than descriptors",
        "/metrics and /-/healthy answer",
        "Some are kept back for scrapes, files and processes; workers without one say so.",
        "test_wire_fairness.py::test_descriptors_are_kept_back",
    ),
)

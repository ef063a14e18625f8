"""What holds against servers that are hostile, hung or merely large. docs/reliability.md is made from these rows."""

ROWS = (
    (
        "1: a small trace that is slow to analyze",
        "the analysis grows with the trace's size; it is given up after 1 s and 0.1 s per MB of processor time",
        "others keep their interval; the worker says too-large and is read in a lane of its own",
        "test_wire_cost.py::test_twice_the_trace_costs_less_than_three_times",
    ),
    (
        "1: a trace that cannot be read in time",
        "the process that reads it is ended; the next trace is read by another",
        "at once, 0.3 s for a new process",
        "test_wire_cost.py::test_a_trace_that_takes_too_long_is_given_up",
    ),
    (
        "1: a trace that takes too much memory to read",
        "its process has a limit of its own; the monitor goes on",
        "at once",
        "test_wire_cost.py::test_a_trace_that_takes_too_much_memory_is_given_up",
    ),
    (
        "2: a hundred servers whose Profile hangs",
        "four healthy workers are sampled as if they were alone",
        "after the first round: 3 s for 24 hung probes, 10 s for 24 hung traces",
        "test_wire_fairness.py::test_healthy_workers_keep_their_interval",
    ),
    (
        "2: a worker waits for its turn",
        "the wait counts in the interval that is shown and exported",
        "with the next sample",
        "test_wire_fairness.py::test_the_wait_for_a_turn_is_part_of_the_interval",
    ),
    (
        "3: a probe, Monitor or runtime metrics answered with megabytes of empty messages",
        "it is refused before an object is made of any; the loop is held up for less than 0.2 s",
        "at once",
        "test_wire_answers.py::test_a_hostile_answer_holds_nobody_up",
    ),
    (
        "4: compressed answers",
        "none is opened, and the words say so",
        "at once",
        "test_wire_answers.py::test_a_bomb_is_not_opened",
    ),
    (
        "4: large answers where small ones are expected",
        "4 MB for Monitor and runtime metrics, 8 MB for a probe, --max-trace-mb for traces",
        "at once",
        "test_wire_answers.py::test_each_method_has_a_limit_of_its_own",
    ),
    (
        "4: a trace larger than --max-trace-mb",
        "it is not received, its cost is counted, and the next window is shorter",
        "with the next query",
        "test_wire_size.py::test_a_larger_trace_is_refused_and_the_next_window_is_shorter",
    ),
    (
        "5: thousands of different warnings",
        "at most 20 a sample, and one new kind a minute for each worker; the rest are counted",
        "at once",
        "test_wire_runtime.py::test_made_up_errors_make_few_lines",
    ),
    (
        "6: absurd numbers from a runtime",
        "every number shown is finite and below 2^60",
        "at once",
        "test_wire_runtime.py::test_any_answer_makes_a_sample_that_can_be_shown",
    ),
    (
        "14: thousands of devices, cores, chips",
        "at most 64 devices and 64 cores a worker, their numbers in range; the rest are left out, and this is said",
        "at once",
        "test_wire_runtime.py::test_more_devices_than_a_host_has_are_left_out_and_said",
    ),
    (
        "15: memory of large traces",
        "a trace of 60 MB takes less than 0.7 GB; fewer are taken at a time where a control group allows less",
        "at once",
        "test_wire_size.py::test_an_ordinary_large_trace_fits_the_limits_of_deploy",
    ),
    (
        "20: FLOPs of 2^60 and more",
        "they count as unknown",
        "at once",
        "test_wire_size.py::test_absurd_flops_make_no_figure",
    ),
    (
        "24: more hung workers than descriptors",
        "descriptors are kept back for scrapes, files and processes; workers without one say so",
        "with the next query",
        "test_wire_fairness.py::test_descriptors_are_kept_back",
    ),
)
"""Fault, promise, what holds or how soon, test."""

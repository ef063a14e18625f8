"""The faults within: figures, notices, pauses, files, clocks. A row: fault, promise, what holds, its test."""

ROWS = (
    (
        "a server sends new warnings without end",
        "no server floods a log",
        "ten lines about a worker at once, then one a minute that says how many were left out; memory constant",
        "test_inside_log.py::test_an_hour_of_new_warnings_is_a_line_a_minute",
    ),
    (
        "a server sends new warnings without end",
        "no server floods a log",
        "a worker that flaps is limited in the same way and silences no other",
        "test_inside_log.py::test_a_worker_that_flaps_all_the_time_is_a_line_a_minute",
    ),
    (
        "names of workers that come and go without end",
        "no server floods a log",
        "two hundred lines at once about all workers, then ten a minute; how many were left out is said",
        "test_inside_log.py::test_a_churn_of_names_is_a_few_lines_a_minute",
    ),
    (
        "figures of any size, from 5e-324 to 1.7e308",
        "no figure ends the monitor",
        "every screen at every size draws any finite sample, from 5e-324 to 1.7e308",
        "test_inside_figures.py::test_every_screen_draws_any_finite_sample",
    ),
    (
        "figures of any size, from 5e-324 to 1.7e308",
        "no figure is impossible",
        "2^60 bytes and more, steps below 1 ns or above 1e6 s are absent with a reason",
        "test_inside_figures.py::test_what_no_worker_can_have_is_absent_with_a_reason",
    ),
    (
        "figures of any size, from 5e-324 to 1.7e308",
        "no figure ends the monitor",
        "JSON, CSV, text, fleet and page hold finite numbers only",
        "test_inside_figures.py::test_every_output_writes_finite_numbers_of_any_finite_sample",
    ),
    (
        "figures of any size, from 5e-324 to 1.7e308",
        "a fault in drawing ends nothing",
        "a line on the screen, sampling and outputs go on; the next picture if the fault is gone",
        "test_inside_figures.py::test_a_view_that_cannot_draw_says_so_and_goes_on",
    ),
    (
        "foreign, forged or 50,000 files in the pause directory",
        "nobody holds up sampling",
        "50,000 foreign files: the event loop goes on while a thread looks, and looking takes a twentieth of a core",
        "test_inside_pause.py::test_a_crowded_directory_neither_holds_up_sampling_nor_hides_a_pause",
    ),
    (
        "foreign, forged or 50,000 files in the pause directory",
        "a pause is the user's own",
        "no other user can block, end or forge it",
        "test_inside_pause.py::test_nobody_can_take_another_users_place",
    ),
    (
        "a targets file that expands to gigabytes",
        "no file takes all memory",
        "a file of workers that would is refused in one line, within 400 MB",
        "test_inside_targets_file.py::test_a_bomb_is_refused_at_once",
    ),
    (
        "the clock is set back while a worker is silent",
        "nothing old counts as live",
        "stale 2.5 intervals and a window after its start, wherever the wall clock is set to",
        "test_inside_clock.py::test_a_sample_is_live_for_two_and_a_half_intervals_whatever_the_wall_clock_says",
    ),
    (
        "the clock is set back while a worker is silent",
        "nothing old counts as live",
        "the view goes STALE in time on a clock set back; the next sample is live at once",
        "test_inside_clock.py::test_the_view_goes_stale_and_comes_back_on_a_clock_set_back",
    ),
    (
        "one worker of a level 0 capture fails oddly, or memory is short",
        "one worker costs no other its profile",
        "an unexpected error is that worker's failure; the other profiles are saved",
        "test_inside_commands.py::test_one_workers_bug_costs_no_other_its_profile",
    ),
    (
        "one worker of a level 0 capture fails oddly, or memory is short",
        "a slice's profiles fit into memory",
        "where there is memory for fewer profiles than workers, they are taken in groups, and a line says so",
        "test_inside_commands.py::test_no_more_profiles_are_held_than_there_is_memory_for",
    ),
    (
        "a file that cannot be analyzed among others",
        "one file hides no other",
        "a file that meets a bug is absent with a reason; the other hosts' figures are printed",
        "test_inside_commands.py::test_a_file_that_meets_a_bug_does_not_hide_the_others",
    ),
    (
        "a FIFO or an endless device instead of a file",
        "reading ends",
        "pipes and devices are refused at once",
        "test_inside_commands.py::test_what_never_ends_is_not_read",
    ),
    (
        "the clock is set back under graphs and pauses",
        "no clock stops a graph",
        "a point per interval, also after the clock was set back",
        "test_inside_clock.py::test_the_fleets_graph_goes_on_after_the_clock_was_set",
    ),
    (
        "the clock is set back under graphs and pauses",
        "a pause lasts as long as it was meant to",
        "a day, however the wall clock is set meanwhile",
        "test_inside_pause.py::test_a_pause_of_a_day_survives_the_clock_being_set",
    ),
    (
        "a hundred thousand worker names over time",
        "memory is constant",
        "names and texts of workers that are gone are forgotten with the next change of workers",
        "test_inside_log.py::test_neither_texts_nor_names_are_kept_for_good",
    ),
)

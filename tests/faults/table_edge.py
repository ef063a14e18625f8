"""What meets the exporter's endpoint, readers of foreign data, stderr and text files, and what then holds."""

from __future__ import annotations

ROWS = (
    (
        "the file of --targets is missing or half-written when the service starts",
        "tpumon serve ends by being stopped alone",
        "It waits, and a line names the file and what is wrong; figures come within 2 s of the file's being whole.",
        "test_edge_readers.py::test_a_service_waits_for_a_file_that_is_missing_or_half_written_at_the_start",
    ),
    (
        "an error that nobody foresaw in a reader: of an exporter, names, the TPU API, the kubelet, files",
        "nothing foreign ends the monitor",
        "The refresh has failed, which one line says; what was known stays, and it is tried again.",
        "test_edge_readers.py::test_samples_of_an_exporter",
    ),
    (
        "stderr is a pipe that is never read",
        "sampling goes on",
        "Only the main thread waits, once and for 0.5 s; the newest 1,000 lines are kept; SIGTERM ends the process.",
        "test_edge_messages.py::test_sampling_goes_on_when_stderr_is_no_longer_read",
    ),
    (
        "stderr is full before the first line",
        "sampling starts",
        "As above; the first line that is read then says how many were lost.",
        "test_edge_messages.py::test_sampling_starts_and_ends_though_stderr_is_full",
    ),
    (
        "the sampling loop is stuck",
        "/-/healthy tells the truth",
        "503 after 15 s, 200 once it runs again.",
        "test_edge_http.py::test_health_tells_whether_sampling_runs",
    ),
    (
        "200 idle connections a second to the exporter",
        "scrapes are served",
        "Every scrape of another address is answered; those of the attacker's own one after the other.",
        "test_edge_http.py::test_idle_connections_shut_no_scrape_out",
    ),
    (
        "30 clients without credentials",
        "scrapes are served; the host is not loaded",
        "401 without a password check; every scrape is answered.",
        "test_edge_http.py::test_clients_without_credentials_cost_little",
    ),
    (
        "30 clients that guess passwords from one address",
        "scrapes are served, the first one too",
        "One check at a time, with rests of four times its length: a fifth of a core at most.",
        "test_edge_http.py::test_wrong_passwords_do_not_take_the_scraper_s_turn",
    ),
    (
        "a web page whose name is made to point at 127.0.0.1 (DNS rebinding)",
        "figures are for those who may connect",
        "421 on loopback addresses for any Host but localhost, IP addresses and this host's names; 401 with users.",
        "test_edge_host.py::test_other_names_are_refused_with_the_way_out",
    ),
    (
        "web-config and certificates are replaced, in any order",
        "a revoked user is refused",
        "From the first connection 10 s after the last file, however long they did not match before.",
        "test_edge_reload.py::test_a_revoked_user_is_refused_whatever_order_files_come_in",
    ),
    (
        "min_version above max_version in web-config",
        "what protects nothing or nobody can use is refused",
        "A usage error at the start; later, the previous settings remain.",
        "test_webconfig.py::test_what_is_not_understood_is_refused",
    ),
    (
        "the exporter behind --from drips or loops, in any state of HTTP or TLS",
        "an unreachable exporter is named",
        "One deadline of 10 s for the whole exchange; nothing waits for it any longer; tried again after 1 s.",
        "test_edge_remote.py::test_an_exchange_without_end_is_given_up",
    ),
    (
        "of many exporters behind --from one is down, drips, sends garbage, 33 MB or 20,000 workers, or restarts",
        "only its own workers are stale",
        "Each is asked by itself; answers beyond 1 MiB take turns; 10,000 workers in all, of each exporter its part.",
        "test_many_exporters.py::test_who_does_not_do_well_concerns_its_own_workers",
    ),
    (
        "the samples of an exporter behind --from come through this tpumon itself",
        "nothing goes round",
        "It is left out, and a line says so; it is looked at again every minute or two.",
        "test_many_exporters.py::test_a_loop_is_refused",
    ),
    (
        "the exporter behind --from names ever new workers",
        "memory stays flat",
        "Only workers that are followed are remembered.",
        "test_edge_remote.py::test_only_names_that_are_followed_are_kept",
    ),
    (
        "a link lies at the text file's temporary name",
        "no other file is written to",
        "It is removed, and the new file is made exclusively.",
        "test_edge_messages.py::test_what_lies_at_the_temporary_name_of_the_text_file_is_not_written_to",
    ),
    (
        "a password in the URL of --from",
        "no other user sees it",
        "Given in TPUMON_FROM, it is on no command line.",
        "test_edge_remote.py::test_a_password_need_not_be_on_the_command_line",
    ),
    (
        "escape sequences and line ends in names of files, hosts, operations and workers",
        "no terminal obeys foreign text",
        "What is printed goes through one place that removes them; a name stays in one line.",
        "test_edge_foreign_text.py::test_traces",
    ),
    (
        "escape sequences in what a recording holds",
        "no terminal obeys foreign text",
        "As above, in text, JSON and CSV of all commands.",
        "test_edge_foreign_text.py::test_recordings",
    ),
)
"""(fault, promise, what holds the test)"""

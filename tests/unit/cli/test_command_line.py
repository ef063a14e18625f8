"""The command line: options and their environment variables, help pages, and the settings that come of them."""

from __future__ import annotations

import re
import shlex
from types import SimpleNamespace

import pytest
import typer.main
from msgspec.structs import asdict, replace

from tpumon.analysis.findings import Thresholds
from tpumon.cli.app import app
from tpumon.cli.config_file import options_of
from tpumon.cli.process import command_of
from tpumon.collection.event_sources import ExportersSource, SamplingSource
from tpumon.discovery.selection import Selection
from tpumon.errors import UsageError
from tpumon.outputs import Export
from tpumon.pipeline import FeedSettings

GROUP = typer.main.get_command(app)
COMMANDS = {"": GROUP, **GROUP.commands}
ARGUMENTS = {
    "completion": ["bash"],
    "simulate": ["v5e-8"],
    "export": ["rec"],
    "analyze": ["host.xplane.pb"],
    "report": ["host.xplane.pb"],
    "pause": ["10m"],
    "run": ["true"],
}
PANELS = ["Options", "Targets", "What to measure", "Output", "Appearance of the live view", "Thresholds", "Commands"]


def visible_options(command):
    return [one for _, one in options_of(command)]


EVERY_OPTION = [(name, option.opts[0]) for name, command in COMMANDS.items() for option in visible_options(command)]


# metavar: a value, where not every text is one
SAMPLES = {
    "HOST:PORT": ":7",
    "HOST:PORT,...": "a:7 b:7",
    "NAME=WHERE": "csv=a jsonl=b",
    "SHARE": "50%",
    "SIZE": "7M",
    "TIME": "7s",
    "TOPOLOGY": "v5e-8",
    "[WORKER=]URL": "http://a:7",
}


def sample_of(option):
    """A text that an option takes, and the value that it gives."""
    kind = option.type_descriptor
    if option.is_flag:
        return "1", True
    if kind.choices:
        value = next(choice for choice in kind.choices if choice != option.default)
        return str(value), value
    if isinstance(option.default, str):
        return option.default, option.default
    text = SAMPLES.get(option.metavar, "7" if kind.annotation is int else "a")
    return text, {int: int, str: str, list[str]: str.split}[kind.annotation](text)


def settings(*arguments):
    """What a command line hands to its command."""
    command = command_of(list(arguments))
    return command.args[0] if command.args else SimpleNamespace(**command.keywords)


@pytest.fixture
def page(monkeypatch, capsys):
    """Returns the help of a command at a width, as it is printed."""

    def printed(command, width):
        monkeypatch.setenv("COLUMNS", str(width))
        assert command_of([*command.split(), "--help"])() == 0
        return capsys.readouterr().out

    return printed


@pytest.mark.parametrize("command", ["once", "why"])
def test_a_level_that_a_judgement_does_not_use_is_said_and_no_error(command, capsys):
    """Old lines of cron have one."""
    command_of([command, "--level", "1", "--service-addr", "a:1"])
    assert capsys.readouterr().err == f"tpumon: --level 1 is not used: {command} judges at level 2\n"


@pytest.mark.parametrize(("command", "name"), EVERY_OPTION, ids=lambda value: value or "tpumon")
def test_every_option_has_an_environment_variable_that_sets_it(command, name, monkeypatch):
    """TPUMON_<NAME>, for the options of every command."""
    variable = "TPUMON_" + name.removeprefix("--").upper().replace("-", "_")
    (option,) = (one for one in visible_options(COMMANDS[command]) if one.opts[0] == name)
    text, value = sample_of(option)
    monkeypatch.setenv(variable, text)
    context = COMMANDS[command].make_context("tpumon", list(ARGUMENTS.get(command, [])))
    set_to = context.params[option.name]
    assert (list(set_to) if isinstance(set_to, tuple) else set_to) == value
    assert context.get_parameter_source(option.name).name == "ENVIRONMENT"


def test_a_commands_variable_does_not_upset_the_options_before_it(monkeypatch):
    """A command with an --output of its own: TPUMON_OUTPUT=json is an error only to the monitor."""
    monkeypatch.setenv("TPUMON_OUTPUT", "json")
    assert settings("analyze", "x").output == "json"
    assert settings("doctor").output == "json"
    with pytest.raises(UsageError, match=r"TPUMON_OUTPUT=json: did you mean jsonl\? choose one of auto, live, text"):
        settings()


@pytest.mark.parametrize(
    ("option", "value"),
    [("--sort", "cpu"), ("--infeed-limits", "0.2,0.1"), ("--duration-ms", "soon"), ("--output", "prometheus"),
     ("--level", "two"), ("--color", "green")],
)  # fmt: skip
def test_a_wrong_value_is_named_as_it_was_given(monkeypatch, option, value):
    """By the option, or by its variable if the value came from there."""
    with pytest.raises(UsageError, match=f"^{option}(: | {value}: )"):
        settings("--simulate", "v5e-8", option, value)
    variable = f"TPUMON_{option[2:].upper().replace('-', '_')}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError, match=f"^{variable}(: |={value}: )"):
        settings("--simulate", "v5e-8")


def test_a_wrong_variable_of_the_monitor_does_not_upset_a_command(monkeypatch):
    """One that the command does not have; before and after, it is the monitor's."""
    monkeypatch.setenv("TPUMON_LEVEL", "two")
    for _ in range(2):
        assert settings("doctor").output == "text"
        with pytest.raises(UsageError, match="TPUMON_LEVEL"):
            settings()


def test_a_typed_name_for_the_web_config_wins_over_the_variable(monkeypatch):
    """Whatever its spelling."""
    monkeypatch.setenv("TPUMON_WEB_CONFIG", "variable.yml")

    def chosen(*arguments):
        return settings("serve", "--simulate", "v5e-8", *arguments).output_settings.web_config

    assert chosen() == "variable.yml"
    assert chosen("--web.config.file", "typed.yml") == "typed.yml"
    assert chosen("--web-config", "typed.yml") == "typed.yml"
    assert chosen("--web.config.file", "other.yml", "--web-config", "typed.yml") == "typed.yml"


def test_stdout_takes_outputs_that_can_write_there_with_their_options():
    """An endpoint or a file that is replaced cannot."""
    chosen = settings("--simulate", "v5e-8", "--output", "fleet-summary[interval_s=5]").output
    assert chosen == Export(name="fleet-summary", where="-", options={"interval_s": "5"})
    for name in ("prometheus", "textfile", "something"):
        with pytest.raises(UsageError, match=r": choose one of auto, live, text, csv, fleet-summary, jsonl$"):
            settings("--simulate", "v5e-8", "--output", name)
    for name, near in (("cvs", "csv"), ("jsonl=file", "jsonl"), ("fleet-summary[interval_s", "fleet-summary")):
        with pytest.raises(UsageError, match=rf": did you mean {near}\? choose one of auto, live, text, csv, "):
            settings("--simulate", "v5e-8", "--output", name)
    with pytest.raises(UsageError, match=r"--output jsonl\[a\]: 'a' is not an option; write key=value"):
        settings("--simulate", "v5e-8", "--output", "jsonl[a]")


def test_a_variable_meant_for_the_monitor_leaves_a_report_as_text(monkeypatch):
    """TPUMON_OUTPUT=jsonl stands in a service's environment; `tpumon doctor` there still prints text."""
    monkeypatch.setenv("TPUMON_OUTPUT", "jsonl")
    assert settings("doctor").output == "text"
    with pytest.raises(UsageError, match="choose one of text, json"):
        settings("doctor", "--output", "jsonl")


def test_serve_hands_thresholds_to_its_outputs():
    """`serve --export fleet-summary=` judges by the thresholds that were given."""
    feed = settings("serve", "--simulate", "v5e-8", "--export", "fleet-summary=f.jsonl", "--hbm-limits", "0.5,0.6",
                    "--idle-limit", "0.3", "--sustained", "2")  # fmt: skip
    assert isinstance(feed, FeedSettings)
    assert list(feed.exports) == [
        Export(name="prometheus", where="127.0.0.1:10466", given="listen"),
        Export(name="fleet-summary", where="f.jsonl"),
    ]  # fmt: skip
    thresholds = feed.output_settings.thresholds
    assert (thresholds.hbm_warn_ratio, thresholds.hbm_critical_ratio) == (0.5, 0.6)
    assert (thresholds.idle_below_ratio, thresholds.sustained) == (0.3, 2)
    assert thresholds.infeed_critical_ratio == 0.20


def test_every_threshold_can_be_given():
    given = "--infeed-limits=0.3,0.4 --hbm-limits=0.3,0.4 --step-limits=3,4 --idle-limit=0.3 --sustained=5"
    thresholds = settings("serve", "--simulate=v5e-8", *given.split()).output_settings.thresholds
    usual = asdict(Thresholds())
    assert [name for name, value in asdict(thresholds).items() if value == usual[name]] == []


def test_what_is_exposed_of_workers_of_exporters():
    """Findings unless all is asked for, which makes sense with exporters only."""
    feeds = [settings("serve", "--from", "h:1", *more) for more in ([], ["--expose", "all"])]
    assert [feed.output_settings.expose for feed in feeds] == ["findings", "all"]
    with pytest.raises(UsageError, match="--expose requires --from: of workers that this process samples itself"):
        settings("serve", "--expose", "all")
    with pytest.raises(UsageError, match="--expose most: choose one of findings, all"):
        settings("serve", "--from", "h:1", "--expose", "most")
    with pytest.raises(UsageError, match="no such option: --expose"):
        settings("--from", "h:1", "--expose", "all")


def test_the_live_view_and_the_outputs_judge_alike():
    """One set of thresholds for the display and every output."""
    monitor = settings("--simulate", "v5e-8", "--step-limits", "1.5,2", "--level", "1")
    assert monitor.display.thresholds == monitor.feed.output_settings.thresholds
    assert monitor.display.thresholds.step_warn_ratio == 1.5
    assert monitor.display.level == monitor.feed.output_settings.level == monitor.feed.source.query.level == 1


def test_limits_may_be_percentages():
    """5% is 0.05."""
    thresholds = settings("--simulate", "v5e-8", "--infeed-limits", "5%, 20%", "--step-limits", "120%,1.5")
    limits = thresholds.display.thresholds
    assert (limits.infeed_warn_ratio, limits.infeed_critical_ratio) == (0.05, 0.20)
    assert (limits.step_warn_ratio, limits.step_critical_ratio) == (1.2, 1.5)


def test_a_simulated_tpu_is_asked_every_second():
    """Defaults depend on where samples come from."""
    simulated, real = settings("--simulate", "v5e-8").feed.source, settings("--service-addr", "h:1").feed.source
    assert isinstance(simulated, SamplingSource)
    assert (simulated.pace.interval_s, simulated.pace.max_duty_ratio) == (1.0, 1.0)
    assert (real.pace.interval_s, real.pace.max_duty_ratio) == (None, 0.01)


def test_the_old_spelling_of_the_level_brings_text_and_a_hundred_queries():
    """Whoever types --monitoring_level reads the old blocks."""
    old = settings("--monitoring_level=2", "--service_addr=h:1")
    assert (old.output, old.number_samples, old.feed.source.pace.num_queries) == ("text", True, 100)
    new = settings("--level", "2", "--service-addr", "h:1")
    assert (new.output, new.number_samples, new.feed.source.pace.num_queries) == ("auto", False, 0)


def test_an_old_command_line_with_a_zone_of_no_tpu_goes_on(said):
    """And says that the zone is for nothing."""
    assert settings("--service_addr=h:1", "--tpu_zone=z", "--gcp_project=p").feed.source.selection.addresses == ("h:1",)
    assert said == ["ignoring --zone and --project: there is no --tpu NAME"]


def test_once_samples_at_its_own_pace(monkeypatch):
    """Not at a monitor's: only what is typed counts, and --max-duty."""
    monkeypatch.setenv("TPUMON_INTERVAL", "60")
    monkeypatch.setenv("TPUMON_NUM_QUERIES", "100")
    here = ("once", "--service-addr", "h:1")
    chosen = settings(*here)
    assert (chosen.needs.samples, chosen.feed.source.pace.interval_s) == (3, 1.0)
    assert (chosen.feed.source.pace.num_queries, chosen.feed.source.pace.max_duty_ratio) == (0, 0.01)
    typed = settings(*here, "--num-queries", "1", "--interval", "5", "--sustained", "4")
    assert (typed.needs.samples, typed.feed.source.pace.interval_s) == (1, 5.0)
    assert not settings("serve", "--from", "h:1").source.keeps_apart  # Prometheus gets the names of the hosts
    assert settings("once", "--from", "h:1").feed.source == ExportersSource("http://h:1", keeps_apart=True)


@pytest.mark.parametrize("command", ["once", "why"])
def test_kept_state_of_a_check_is_where_any_option_says(command, monkeypatch, tmp_path):
    """What cron runs may have it in the environment or the file; a recording has no next run."""
    assert settings(command).feed.state_dir is None
    monkeypatch.setenv("TPUMON_STATE", "e")
    assert settings(command).feed.state_dir == "e"
    assert settings(command, "--state", "d").feed.state_dir == "d"
    assert settings(command, "--from", str(tmp_path)).feed.state_dir is None
    with pytest.raises(UsageError, match="--from a recording is over: leave out one of them"):
        settings(command, "--from", str(tmp_path), "--state", "d")
    monkeypatch.setenv("TPUMON_STATE", "")
    assert settings(command).feed.state_dir is None


def test_how_a_server_is_asked_belongs_to_from(tmp_path):
    """Typed without --from, or with a recording, it is a mistake."""
    assert settings("once", "--from", "h:1", "--from-auth", "f").feed.source == ExportersSource(
        "http://h:1", "f", keeps_apart=True
    )
    for command in ([], ["once"], ["why"], ["events"], ["mcp"]):
        with pytest.raises(UsageError, match="requires --from URL"):
            settings(*command, "--from-auth", "f")
    with pytest.raises(UsageError, match="names recorded samples"):
        settings("once", "--from", str(tmp_path), "--from-auth", "f")


@pytest.mark.parametrize("command", [[], ["serve"], ["once"], ["why"], ["mcp"]])
def test_job_and_slice_go_to_exporters_workers_of_unknown_ones(command):
    """What an exporter knows of its workers stands."""
    chosen = settings(*command, "--from", "h:1", "--job", "j", "--slice", "s")
    source = (chosen if isinstance(chosen, FeedSettings) else chosen.feed).source
    assert replace(source, keeps_apart=False) == ExportersSource("http://h:1", job="j", slice="s")


def test_from_takes_no_samples_itself():
    """The exporter's URL is where events come from."""
    assert settings("--from", "http://h:1").feed.source == ExportersSource("http://h:1", keeps_apart=True)


def test_the_kind_of_jobs_of_this_host_is_nothing_to_a_reader_of_exporters(monkeypatch):
    """Typed with --from it is a mistake; a host's environment or file has it for the tpumon that samples there."""
    monkeypatch.setenv("TPUMON_JOB_KIND", "training")
    assert settings("once", "--from", "h:1").feed.source == ExportersSource("http://h:1", keeps_apart=True)
    with pytest.raises(UsageError, match="decided where samples are taken"):
        settings("once", "--from", "h:1", "--job-kind", "training")
    with pytest.raises(UsageError, match="read where samples are taken"):
        settings("once", "--from", "h:1", "--server-metrics", "http://h:1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--service-adr", "h:1"],
            "no such option: --service-adr; did you mean --service-addr? (see tpumon --help)",
        ),
        (
            ["serve", "--lissten", ":1"],
            "no such option: --lissten; did you mean --listen? (see tpumon serve --help)",
        ),
        (["--hbm", "90"], "no such option: --hbm; did you mean --hbm-limits? (see tpumon --help)"),
        (["--intervall", "3"], "no such option: --intervall; did you mean --interval? (see tpumon --help)"),
        (["--queries", "3"], "no such option: --queries; did you mean --num-queries? (see tpumon --help)"),
        (["simulate", "--sead", "3"], "no such option: --sead; did you mean --seed? (see tpumon simulate --help)"),
        (["run", "--steps", "5", "x"], "no such option: --steps (see tpumon run --help)"),
        (["--plain"], "no such option: --plain; write --output text"),
        (["--json"], "no such option: --json; write --output jsonl"),
        (["--csv"], "no such option: --csv; write --output csv"),
        (["once", "--jsonl"], "no such option: --jsonl; write --output json"),
        (["serve", "--jsonl"], "no such option: --jsonl; it prints no samples; to write them: --export NAME=WHERE"),
        (["--num-queries", "x"], "--num-queries x: give a whole number of at least 0, such as 10"),
        (["--sustained", "0"], "--sustained 0: give a whole number of at least 1, such as 3"),
        (["--port", "99999"], "--port 99999: give a whole number of at least 1 and at most 65535"),
        (["simulate", "v5e-8", "--seed", "1.5"], "--seed 1.5: give a whole number, such as 10"),
        (["completion", "csh"], "shell csh: choose one of bash, zsh, fish"),
        (["--top"], "no such option: --top; to order the workers: --sort KEY; for the top operations: tpumon report"),
        (["--timeout", "3"], "no such option: --timeout; tpumon once, tpumon why have it"),
        (["once", "--listen", ":1"], "no such option: --listen; tpumon, tpumon serve have it"),
        (["why", "--sort", "hbm"], "no such option: --sort; tpumon has it"),
        (
            ["report", "--interval", "3"],
            "no such option: --interval; tpumon, tpumon serve, tpumon once and others have it",
        ),
        (["help", "serv"], "no such command 'serv'. Did you mean 'serve'?"),
        (["--explain", "--filter", "a"], "--filter shows some workers, --explain judges all"),
        (["--output", "fleet-summary", "--filter", "a"], "--filter shows some workers, fleet-summary judges all"),
        (["serv"], "no such command 'serv'. Did you mean 'serve'? (see tpumon --help)"),
        (
            ["10.0.0.2:9999"],
            "no such command '10.0.0.2:9999'; to watch a worker: tpumon --service-addr 10.0.0.2:9999; ",
        ),
        (
            ["http://h:1"],
            "no such command 'http://h:1'; to show an exporter: tpumon --from http://h:1 (see tpumon --help)",
        ),
        (["day.jsonl.gz"], "no such command 'day.jsonl.gz'; to show recorded samples: tpumon --from day.jsonl.gz"),
        (["h.xplane.pb"], "no such command 'h.xplane.pb'; to show a profile's figures: tpumon analyze h.xplane.pb"),
        (["--level"], "option '--level' requires an argument (see tpumon --help)"),
        (["--level", "two"], "--level two: choose one of 0, 1, 2"),
        (
            ["--infeed-limits", "5,20"],
            "--infeed-limits 5,20: give two shares, the smaller first, each at most 100%, such as ",
        ),
        (
            ["--hbm-limits", "0.9,97"],
            "--hbm-limits 0.9,97: give two shares",
        ),
        (
            ["--hbm-limits", "97"],
            "--hbm-limits 97: give two shares, the smaller first, each at most 100%, such as 90%,97%",
        ),
        (["--infeed-limits", "5%,x%"], "--infeed-limits 5%,x%: give two shares"),
        (
            ["--step-limits", "3%,25%"],
            "--step-limits 3%,25%: give two factors, the smaller first, each at least 1",
        ),
        (["--max-trace-mb", "5G"], "--max-trace-mb 5G: give a size of at least 1M and at most 1G, such as 64M"),
        (["once", "--timeout", "soon"], "--timeout soon: give a time of at least 1ms, such as 30s"),
        (["--record", "D", "--record-keep", "9"], "--record-keep 9: give an age, a size, or both, such as 7d,1GB"),
        (["--level", "7"], "--level 7: choose one of 0, 1, 2"),
        (["--color", "green"], "--color green: choose one of auto, always, never"),
        (["--export"], "option '--export' requires an argument (see tpumon --help)"),
        (["run", "--port"], "option '--port' requires an argument (see tpumon run --help)"),
        (["pause"], "missing argument 'DURATION' (see tpumon pause --help)"),
        (["--max-duty", "nan"], "--max-duty nan: give a share of at least 0.01%"),
        (["serve", "--interval", "nan"], "--interval nan: give a time of at most 7d, such as 10s"),
        (["--sort", "colour"], "--sort colour: choose one of worst, name, "),
        (["--explain", "--output", "csv"], "--explain requires --output text"),
        (["--level", "0"], "--level 0 requires --logdir"),
        (["--level", "0", "--logdir", "D", "--from-auth", "F"], "--from-auth requires --from"),
        (["--fleet-summary", "--output", "text"], "--fleet-summary requires --output jsonl"),
        (["--scenario", "straggler"], "--scenario requires --simulate TOPOLOGY"),
        (["once", "--zone", "us-b"], "--zone requires --tpu NAME"),
        (["--from", "h:1", "--project", "p"], "--from shows another tpumon's samples; it cannot be combined"),
        (["--simulate", "v5e-8", "--record-keep", "7d"], "--record-keep requires --record DIR"),
        (["serve", "--output", "csv"], "no such option: --output; it prints no samples; to write them: --export NAME="),
        (["serve", "--json"], "no such option: --json; it prints no samples; to write them: --export NAME=WHERE"),
        (["serve", "--=5"], "no such option: -- (see tpumon serve --help)"),
        (["-("], "no such option: -( (see tpumon --help)"),
        (["-5m"], "no such option: -5 (see tpumon --help)"),
        (["-x", "-xyz"], "no such option: -x (see tpumon --help)"),
        (["-V"], "no such option: -V; did you mean --version?"),
        (["once", "--hlep"], "no such option: --hlep; did you mean --help?"),
        (["once", "-interval", "5"], "no such option: -interval; did you mean --interval?"),
        (["-intervall=5"], "no such option: --intervall; did you mean --interval?"),
        (["—level", "2"], "no such command '—level'; to type an option: --level"),
        (["–-level", "2"], "no such command '–-level'; to type an option: --level"),
        (["--gpu", "true"], "no such command 'true'; a switch, such as --gpu, takes no value"),
        (["train.py"], "no such command 'train.py'; to run a program: tpumon run python train.py"),
        (["python3", "a"], "no such command 'python3'; to run a program: tpumon run python3"),
        (["status"], "no such command 'status'; for all workers once: tpumon once"),
        ([""], "no such command ''"),
        (["-"], "no such command '-'"),
        (["once", "--timeout", "5", "sec"], "unexpected: sec (see tpumon once --help)"),
        (["--service-addr", "--level", "2"], "--service-addr: its value is missing before --level; give HOST:PORT,..."),
        (["once", "--from", "--output", "json"], "--from: its value is missing before --output; give SOURCE,..."),
        (["pause", " "], "cannot pause for '': give a time of at most 24h, such as 90s, 10m or 1h30m, or 0 to end a"),
        (["why", "a.xplane.pb"], "FILE|DIR goes with --request ID; to judge a profile: tpumon why --from a.xplane.pb"),
        (["why", "--request", "a"], "--request ID requires the saved profile, FILE|DIR: tpumon why --request ID FILE|"),
    ],
)
def test_errors_say_what_to_do(arguments, message):
    """A typo is met with the nearest name and the page to read."""
    with pytest.raises(UsageError) as caught:
        settings(*arguments)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("command", "name"), EVERY_OPTION, ids=lambda value: value or "tpumon")
def test_no_option_that_takes_text_takes_an_empty_one(command, name):
    """`--tpu=$TPU` of a script that has not set it does not mean the jobs of this host."""
    (option,) = (one for one in visible_options(COMMANDS[command]) if one.opts[0] == name)
    if option.type_descriptor.annotation not in {str, list[str]}:
        return
    for value in ("", " "):
        with pytest.raises(UsageError, match=f"^{name}: it is empty; give "):
            command_of([*command.split(), f"{name}={value}", *ARGUMENTS.get(command, [])])


def test_an_empty_variable_counts_as_not_set(monkeypatch):
    for _, name in EVERY_OPTION:
        monkeypatch.setenv(f"TPUMON_{name[2:].upper().replace('-', '_')}", "")
    assert settings().feed.source.selection == Selection()


@pytest.mark.parametrize(
    ("words", "usage"),
    [("help", "tpumon [OPTIONS] COMMAND"), ("help run", "tpumon run [OPTIONS]"), ("why help", "tpumon why [OPTIONS]")],
)
def test_help_is_a_command_for_those_who_type_it(words, usage, tmp_path, monkeypatch, capsys):
    """With the name of a command, before it or after it, or without."""
    monkeypatch.chdir(tmp_path)
    assert command_of(words.split())() == 0
    assert f"Usage: {usage}" in capsys.readouterr().out


def test_help_may_be_a_program_or_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert settings("run", "help").program == ["help"]
    (tmp_path / "help").mkdir()
    assert settings("analyze", "help").paths == ["help"]


def test_a_misspelled_variable_is_named(monkeypatch, capsys):
    """With the table of the file, if the name of a command stands before that of its option."""
    for name in ("TPUMON_INTERVALL", "TPUMONLEVEL"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("TPUMON_SERVE_LISTEN", ":1")
    monkeypatch.setenv("TPUMON_RUN_PORT", "1")
    for of_judging in ("TPUMON_ONCE_INTERVAL", "TPUMON_WHY_NUM_QUERIES", "TPUMON_ONCE_OUTPUT"):
        monkeypatch.setenv(of_judging, "x")
    settings("--service-addr", "h:1")
    said = [line.split(" is no variable of tpumon; did you mean ") for line in capsys.readouterr().err.splitlines()]
    assert said == [
        ["tpumon: TPUMONLEVEL", "TPUMON_LEVEL?"],
        ["tpumon: TPUMON_INTERVALL", "TPUMON_INTERVAL?"],
        ["tpumon: TPUMON_ONCE_INTERVAL", "--interval, or [once] interval in the file?"],
        ["tpumon: TPUMON_ONCE_OUTPUT", "--output, or [once] output in the file?"],
        ["tpumon: TPUMON_RUN_PORT", "--port?"],
        ["tpumon: TPUMON_SERVE_LISTEN", "--listen, or [serve] listen in the file?"],
        ["tpumon: TPUMON_WHY_NUM_QUERIES", "--num-queries, or [why] num-queries in the file?"],
    ]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        *((f"TPUMON_{word}", "LEVEL") for word in ("LEVLE", "LVL")),
        *((f"TPUMON_{word}", "CONFIG") for word in ("CONFIG_FILE", "CONFIG_PATH", "CFG", "CONF")),
        *((f"{prefix}INTERVAL", "INTERVAL") for prefix in ("TPU_MON_", "TPMON_", "TPUMON__", "Tpumon_")),
        ("tpumon_interval", "INTERVAL"),
        ("TPUMON_PROT", "PORT"),
        ("TPUMON_JBO", "JOB"),
        ("TPUMON_FORM", "FROM"),
        ("TPUMON_LISTNE", "LISTEN"),
        ("TPUMON_TARGETS_FILE", "TARGETS"),
        ("TPUMON_NUM_QUERY", "NUM_QUERIES"),
        ("TPUMON_INTERVAL_MS", "INTERVAL"),
        ("TPUMON_ADDR", "SERVICE_ADDR"),
    ],
)
def test_a_variable_is_known_by_its_letters(name, near, monkeypatch, capsys):
    """In another order, without vowels, with a word for a file after it, or another form of tpumon before it."""
    monkeypatch.setenv(name, "x")
    settings("--service-addr", "h:1")
    assert capsys.readouterr().err == f"tpumon: {name} is no variable of tpumon; did you mean TPUMON_{near}?\n"


def test_a_variable_of_another_meaning_is_not_said_to_be_misspelled(monkeypatch, capsys):
    """What others made up, and what Kubernetes sets for services."""
    far = "FOO JSON ONCE_LISTEN MY_OWN OPT PUT TIME IMAGE TAG VERSION HOST URL ARGS PATH LOG NAME HOME TEST TOKEN USER"
    services = "SERVICE_HOST SERVICE_PORT_HTTP PORT_9999_TCP PORT_9999_TCP_ADDR SERVE_SERVICE_HOST SERVE_PORT_80_TCP"
    for name in (*far.split(), *services.split()):
        monkeypatch.setenv(f"TPUMON_{name}", "x")
    for name in ("TPUMON_PORT", "TPUMON_SERVE_PORT", "TPU_MON_PORT"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:80")
    for name in ("TPU_MON_SERVICE_PORT", "TPU_MONITOR", "MON_LEVEL"):
        monkeypatch.setenv(name, "80")
    settings("--service-addr", "h:1")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["once", "why"])
def test_a_wrong_variable_is_an_error_also_where_it_does_not_count(command, monkeypatch):
    monkeypatch.setenv("TPUMON_INTERVAL", "abc")
    with pytest.raises(UsageError, match=r"^TPUMON_INTERVAL=abc: give a time"):
        command_of([command, "--service-addr", "h:1"])


def test_options_before_a_command_are_refused(capsys):
    """They would be the monitor's: without --from, the jobs of this host would be traced."""
    for before, wrong, right in (
        (["--from", "http://h:1"], "--from", "--from ..."),
        (["--gpu", "--interval=3"], "--interval, --gpu", "--interval ... --gpu ..."),
        (["--filter", "x"], "--filter", "--filter ..."),
        (["-monitoring_level", "2"], "--monitoring-level", "--monitoring-level ..."),
    ):
        with pytest.raises(UsageError) as caught:
            settings(*before, "once")
        assert str(caught.value) == f"{wrong}: options of once go after its name: tpumon once {right}"
        assert caught.value.exit_status == 2
    settings("-v", "serve", "--service-addr", "h:1")
    assert capsys.readouterr().err == ""
    settings("serve", "--service-addr", "h:1")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda name: name or "tpumon")
@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_help_page_names_every_option_at_any_width(command, width, page):
    """No option is cut, none is broken at its hyphens, and no markup is left; commands that are typed stay whole."""
    text = page(command, width)
    typed = ("  -", "    tpumon ", "Usage: ") if width < 80 else ()
    assert max(len(line) for line in text.splitlines() if not line.startswith(typed)) <= width
    assert "\\[" not in text
    assert "…" not in text
    assert not re.search(r"<(bool|str)>|<\w[\w|]*(?![\w|>])", text), "a choice is cut, or is none"
    for option in visible_options(COMMANDS[command]):
        assert re.search(rf"{option.opts[0]}(?![\w-])", text)


def test_help_shows_options_in_panels_and_the_commands(page):
    """By what they are about."""
    assert re.findall(r"^╭─ (.+?) ─+╮$", page("", 80), re.MULTILINE) == PANELS


@pytest.mark.parametrize("command", COMMANDS, ids=lambda name: name or "tpumon")
def test_help_shows_examples_that_work(command, page):
    """Each example on a page is a command line that parses."""
    lines = [line.strip() for line in page(command, 100).splitlines()]
    start = lines.index("Examples:") + 1
    examples = lines[start : lines.index("", start)]
    assert examples
    for line in examples:
        program, *arguments = shlex.split(line.partition("  ")[0])
        assert program == "tpumon"
        assert arguments[:1] == ([command] if command else arguments[:1])
        assert callable(command_of(arguments))


def test_every_option_that_takes_a_value_says_which():
    """Help shows no type of Python's."""
    for command in COMMANDS.values():
        for option in visible_options(command):
            assert option.metavar or option.is_flag or option.type_descriptor.choices, option.opts
            assert option.help, option.opts


# What only the user knows; a shell completes names of files.
FREE = (
    "ADDRESS,...", "AGE,SIZE", "CMD", "DIR", "DIR|gs://...", "DURATION", "FILE", "FILE.parquet", "FILE|DIR",
    "HOST:PORT", "HOST:PORT,...", "ID", "N", "NAME", "NAME,...", "PORT", "PROGRAM",
    "PROJECT", "SHARE", "SIZE", "TIME|auto", "TEXT", "TIME", "WARN,CRITICAL", "ZONE", "[WORKER=]URL",
)  # fmt: skip


def test_values_that_are_known_are_completed():
    """An option or argument has choices, a list of its own for shells, or a value that only the user knows."""
    open_ones = [
        (name, one.opts[0])
        for name, command in COMMANDS.items()
        for one in command.params
        if not getattr(one, "hidden", False)
        and not getattr(one, "is_flag", False)
        and not one.type_descriptor.choices
        and one.type_descriptor.parameter_info.autocompletion is None
        and one.metavar not in FREE
    ]
    assert open_ones == []


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("--sort h", {"hbm"}),
        ("--simulate v6e-1", {"v6e-1", "v6e-16", "v6e-128"}),
        ("simulate v5p-1", {"v5p-16", "v5p-128", "v5p-1024", "v5p-16384"}),
        ("--scenario jitter+collective", {"jitter+collective-bound"}),
        ("serve --expose a", {"all"}),
        ("once --fail-on ", {"info", "warning", "critical", "never"}),
        ("--output te", {"text"}),
        ("--export tex", {"textfile="}),
        ("report --section over", {"overview"}),
        ("report --section ops,st", {"ops,steps"}),
        ("report --output h", {"html"}),
        ("once --output ", {"text", "json"}),
        ("events --output jsonl", {"jsonl"}),
        ("--from r", {"recorded/"}),
        ("export recorded/", {"recorded/day.jsonl.gz"}),
        ("ser", {"serve"}),
    ],
)
def test_a_shell_completes_values(typed, values, tmp_path, monkeypatch, capsys):
    """Of options and arguments, as bash asks."""
    (tmp_path / "recorded").mkdir()
    (tmp_path / "recorded" / "day.jsonl.gz").touch()
    (tmp_path / "recorded" / "notes.txt").touch()
    monkeypatch.chdir(tmp_path)
    words = f"tpumon {typed}"
    asked = {"_TPUMON_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        command_of([])
    assert set(capsys.readouterr().out.split()) == values

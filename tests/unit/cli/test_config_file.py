"""The configuration file: which value wins, what is wrong in a file, and what `tpumon config` prints."""

from __future__ import annotations

import errno
import os
import tomllib
from types import SimpleNamespace

import msgspec
import pytest
import typer.main

from tpumon.cli.app import app
from tpumon.cli.config_file import configuration_type
from tpumon.cli.process import _run, command_of
from tpumon.errors import UsageError


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Writes the file that TPUMON_CONFIG names."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("TPUMON_CONFIG", str(path))

    def write(text):
        path.write_text(text)
        return path

    return write


def settings(*arguments):
    command = command_of(list(arguments))
    return command.args[0] if command.args else SimpleNamespace(**command.keywords)


def pace(*arguments):
    return settings("--service-addr", "h:1", *arguments).feed.source.pace


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(config, monkeypatch):
    """Each one alone, then all."""
    assert not os.environ.get("TPUMON_INTERVAL")
    config("interval = 30\nmax_duty = 0.5\n")
    assert (pace().interval_s, pace().max_duty_ratio) == (30, 0.5)
    monkeypatch.setenv("TPUMON_INTERVAL", "40")
    assert (pace().interval_s, pace().max_duty_ratio) == (40, 0.5)
    assert pace("--interval", "50").interval_s == 50


def test_how_often_a_monitor_samples_is_not_for_a_judgement(config, monkeypatch):
    """Unless its own table says so: an interval for all commands, or in a service's environment, is a monitor's."""
    monkeypatch.setenv("TPUMON_INTERVAL", "40")
    config("interval = 30\nnum-queries = 50\n")
    usual = settings("once", "--service-addr", "h:1")
    assert (usual.feed.source.pace.interval_s, usual.needs.all_of_them) == (1.0, False)
    monkeypatch.delenv("TPUMON_INTERVAL")
    config("interval = 30\n[once]\ninterval = 5\nnum-queries = 12\n")
    own = settings("once", "--service-addr", "h:1")
    assert (own.feed.source.pace.interval_s, own.needs.samples, own.needs.all_of_them) == (5.0, 12, True)
    assert settings("why", "--service-addr", "h:1").feed.source.pace.interval_s == 1.0


def test_a_table_counts_for_its_command_alone(config):
    """Lists, switches and numbers are read as they would be typed."""
    config('service-addr = ["a:1", "b:2-3"]\ngpu = true\n[serve]\nlisten = ":1"\nsustained = 5\n')
    served = settings("serve")
    assert served.exports[0].where == ":1"
    assert served.output_settings.thresholds.sustained == 5
    assert served.source.selection.addresses == ("a:1", "b:2", "b:3")
    watched = settings()
    assert (watched.feed.exports, watched.display.thresholds.sustained) == ([], 3)
    assert watched.feed.source.sources.gpu


def test_an_empty_table_of_a_command_that_does_not_read_the_file_does_no_harm(config):
    config("interval = 30\n[run]\n[pause]\n")
    assert settings("--service-addr", "h:1").feed.source.pace.interval_s == 30


def test_an_option_may_have_the_name_of_a_command(config):
    """`simulate = ` is the option, `[simulate]` the command."""
    config('simulate = "v5e-8"\n')
    assert settings().feed.source.selection.simulate.topology == "v5e-8"
    assert settings("simulate", "v2-8").seed == 0
    config("[simulate]\nseed = 7\n")
    assert settings("simulate", "v2-8").seed == 7
    assert settings("--service-addr", "h:1").feed.source.selection.simulate is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("intervall = 3", "there is no option intervall; did you mean interval?"),
        ("[serve]\nlissten = 3", r"\[serve\] there is no option lissten; did you mean listen?"),
        ("[doctor]\nlisten = 3", r"\[doctor\] there is no option listen; another command has it: put it before the "),
        ('[serve]\nsort = "x"', r"\[serve\] there is no option sort; another command has it"),
        ("fort = 1", "there is no option fort; keys are options without the dashes"),
        ("[serve]\nfort = 1", r"\[serve\] there is no option fort; keys are .* see tpumon serve --help$"),
        ("[onec]\n", r"there is no table \[onec\]; did you mean \[once\]\?$"),
        ("[server]\nlisten = 1", r"there is no table \[server\]; did you mean \[serve\]\?$"),
        ("[nothing]\na = 1", r"there is no table \[nothing\]; tables are \[serve\], \[once\], .*, \[doctor\]$"),
        ("[targets]\na = 1", r"there is no table \[targets\]; targets is an option, above the tables: targets = ...; "),
        ("[run]\nport = 3", r"tpumon run does not read this file: leave out \[run\]$"),
        ("levle = 1", r"there is no option levle; did you mean level\?$"),
        ("prot = 1", r"there is no option prot; did you mean port\?$"),
        ('form = "x"', r"there is no option form; did you mean from\?$"),
        ('jbo = "x"', r"there is no option jbo; did you mean job\?$"),
        ("[serve]\nsustained = 5\n[once]\n[serve]\n", r"\[serve\] stands there twice, again at line 4; put its keys "),
        ("level = 1\n[serve]\n[level]\n", "not TOML: .*; level stands there twice, or is a value and a table$"),
        ("interval = ", "not TOML: .*; interval has no value$"),
        ("interval = # 5m\nlevel = 2", "not TOML: .*; interval has no value$"),
        ("interval = 5m", 'not TOML: Expected .*; text needs quotes, such as interval = "5m"$'),
        ("zone = here", "not TOML: Invalid value .*; text needs quotes"),
        ("interval = 1979-05-27", "interval in .*config.toml: 1979-05-27: give a time of at most 7d"),
        ("zone = 1979-05-27", "zone in .*config.toml: 1979-05-27: give text in quotes, or a number"),
        ("zone = {a = 1}", r"there is no table \[zone\]; zone is an option, above the tables: zone = ...; tables are "),
        ("[once]\nzone = {a = 1}", r"^\[once\] zone in .*config.toml: a table: give text in quotes, or a number"),
        ("level = 7", "^level in .*config.toml: 7: choose one of 0, 1, 2$"),
        ("[serve]\nlevel = 7", r"^\[serve\] level in .*config.toml: 7: choose one of 0, 1, 2$"),
        ('num-queries = "many"', "num-queries in .*config.toml: many: give a whole number of at least 0, such as 10"),
        ("sustained = 0", "sustained in .*config.toml: 0: give a whole number of at least 1, such as 3"),
        ("gpu = 3", "gpu in .*config.toml: 3: give true or false"),
        ("level = 1\nlevel = 2", "not TOML: .*; level stands there twice, or is a value and a table$"),
        ("level = 1\nlevel = 2\ngpu = true", "not TOML: .*; level stands there twice, or is a value and a table$"),
        ('"a b" = 1\n"a b" = 2', "not TOML: .*"),
        ('interval = "soon"', "interval in .*config.toml: soon: give a time of at most 7d, such as 10s"),
        (
            'service-addr = ["a:1", "b:99999"]',
            "service-addr in .*config.toml: cannot use the address 'b:99999': its port",
        ),
        ("service-addr = 5", "service-addr in .*config.toml: cannot use the address '5': its host is not a name"),
        ('[serve]\nworkers-list = "a:0"', r"\[serve\] workers-list in .*: cannot use the address 'a:0': its port"),
        ('runtime-addr = "unix:tpu.sock"', "runtime-addr in .*config.toml: cannot use the address 'unix:tpu.sock': "),
        ('server-metrics = "w=ftp://h"', "server-metrics in .*config.toml: not the URL of a server's metrics; give "),
        ('tpu = ["mine,", "a,Mine"]', "tpu in .*config.toml: 'Mine' is not a TPU's name; "),
        ('level = 2\nsimulate = "v9-8"', "simulate in .*config.toml: unknown TPU generation 'v9' in 'v9-8'; "),
        ("simulate = 4", "simulate in .*config.toml: '4' is not a TPU name: give GENERATION-SIZE"),
        ('[simulate]\nscenario = "nope"', r"\[simulate\] scenario in .*config.toml: unknown scenario 'nope'; "),
        (
            'listen = "a b"',
            "listen in .*config.toml: cannot listen on 'a b'; give HOST:PORT, for example 127.0.0.1:10466",
        ),
        ('export = ["csv=a,b", "pigeon"]', "export in .*config.toml: pigeon: give NAME=WHERE, for example csv="),
        ('export = "pigeon=1"', "export in .*config.toml: there is no output 'pigeon'; available: csv, "),
        ('[serve]\nexport = "pigeon"', r"\[serve\] export in .*config.toml: pigeon: give NAME=WHERE"),
        ('[serve]\nexport = "pigeon[a]=1"', r"\[serve\] export in .*: pigeon\[a\]=1: 'a' is not an option; write key="),
        ('output = "jsn"', "^output in .*config.toml: jsn: did you mean jsonl"),
        ('[once]\noutput = "jsn"', r"^\[once\] output in .*config.toml: jsn: choose one of text, json$"),
        ('[once]\noutput = "jsonl"', r"^\[once\] output in .*config.toml: jsonl: choose one of text, json$"),
        ("[serve]\nlisten = {a = 1}", r"^\[serve\] listen in .*config.toml: a table: give text"),
        ("once = 4", r"once is a command, and its options are a table: \[once\]$"),
        ('why = "x"', r"why is a command, and its options are a table: \[why\]$"),
        ("INTERVAL = 5", r"there is no option INTERVAL; did you mean interval\?$"),
        ("tpu = []", "^tpu in .*config.toml: it is empty; "),
        ('tpu = ""', "^tpu in .*config.toml: it is empty; give NAME,..., or leave it out$"),
        ('[once]\ntpu = ["a", " "]', r"^\[once\] tpu in .*config.toml: it is empty; "),
        ('sort = "cpu"', "sort in .*config.toml: cpu: choose one of worst"),
        ("max-duty = 7", "max-duty in .*config.toml: 7: give a share of .*; for percent, write 7%"),
        ("max-duty = 1.0", "max-duty in .*config.toml: 1.0: give a share .*; for percent, write 1%; for all of it, "),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(config, text, message):
    """Also if what is wrong would not matter to this command."""
    path = config(text)
    with pytest.raises(UsageError, match=message) as caught:
        settings()
    assert str(path) in str(caught.value)


def test_all_that_is_wrong_in_a_file_is_told_at_once(config, said):
    """One line each, in the order of the file; of more than ten, the number of the rest."""
    path = config('levle = 1\nmax-duty = "x"\n[server]\n[serve]\nfort = 1\ngpu = 3\n[run]\nport = 1\n')
    assert _run(["once"]) == 2
    assert [line.replace(str(path), "FILE").partition("; ")[0] for line in said] == [
        "FILE: there is no option levle",
        "max-duty in FILE: x: give a share of at least 0.01% and at most 100%, such as 1%",
        "FILE: there is no table [server]",
        "FILE: [serve] there is no option fort",
        "[serve] gpu in FILE: 3: give true or false",
        "FILE: tpumon run does not read this file: leave out [run]",
    ]
    for wrong, last in ((10, "there is no option x9; "), (12, "3 more errors")):
        said.clear()
        config("".join(f"x{number} = 1\n" for number in range(wrong)))
        assert _run(["config"]) == 2
        assert len(said) == 10
        assert said[-1].startswith(f"{path}: {last}")


@pytest.mark.parametrize(
    ("keys", "typed", "variables", "naming"),
    [
        ('simulate = "v5e-8"\ntpu = "mine"\n', [], {}, "tpu"),
        ('[once]\nsimulate = "v5e-8"\ntpu = "mine"\n', [], {}, "tpu"),
        ('[why]\nsimulate = "v5e-8"\ntpu = "mine"\n', [], {}, ""),  # this command does not read it
        ('simulate = "v5e-8"\n', ["--service-addr", "h:1"], {}, "service-addr"),
        ('simulate = "v5e-8"\n', [], {"TPUMON_SERVICE_ADDR": "h:1"}, "service-addr"),
        ('service-addr = "h:1"\n', ["--simulate", "v5e-8"], {}, ""),  # what is typed hides it
        ("", ["--simulate", "v5e-8", "--tpu", "mine"], {}, ""),  # no error of the file
    ],
)
def test_what_contradicts_each_other_is_told_beside_a_wrong_value(
    config, said, monkeypatch, keys, typed, variables, naming
):
    path = config(f'interval = "x"\n{keys}')
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _run(["once", *typed]) == 2
    more = [f"FILE: --simulate cannot be combined with --{naming}, which names real workers"] * bool(naming)
    assert [line.replace(str(path), "FILE").partition("; ")[0] for line in said] == [
        "interval in FILE: x: give a time of at most 7d, such as 10s",
        *more,
    ]


@pytest.mark.parametrize("table", ["", "[once]\n"])
def test_the_command_that_shows_options_tells_a_contradiction_beside_a_wrong_value(config, said, table):
    """Of `tpumon` itself, or of any command with a table; one that several have once."""
    path = config(f'interval = "x"\n{table}simulate = "v5e-8"\ntpu = "mine"\n[serve]\n')
    assert _run(["config"]) == 2
    assert [line.replace(str(path), "FILE").partition("; ")[0] for line in said] == [
        "interval in FILE: x: give a time of at most 7d, such as 10s",
        "FILE: --simulate cannot be combined with --tpu, which names real workers",
    ]


def test_all_that_contradicts_each_other_is_told_at_once(config, said):
    config('from = "h:1"\nsimulate = "v5e-4"\njob-kind = "training"\n')
    assert _run(["once"]) == 2
    assert [line.partition(";")[0] for line in said] == [
        "--from shows another tpumon's samples",
        "--job-kind is decided where samples are taken",
    ]


@pytest.mark.parametrize(
    ("text", "begins", "key"),
    [
        ('from = "nosuch"', "--from nosuch: no such file or directory; ", "from"),
        ('[once]\nfrom = ["http://"]', "--from: not the URL of an exporter; ", "[once] from"),
        ('zone = "z"\ntargets = "nosuch.json"', "--targets nosuch.json: No such file", "targets"),
    ],
)
def test_an_error_that_comes_of_the_file_names_it(config, text, begins, key, said):
    """Also of an option that the parser takes for text. Not if what is wrong was typed."""
    path = config(text)
    assert _run(["once"]) == 2
    assert said[0].startswith(begins)
    assert said[0].endswith(f" ({key} in {path})")
    assert _run(["once", "--from", "nowhere"]) == 2
    assert str(path) not in said[1]


@pytest.mark.parametrize(
    ("variable", "value", "begins"),
    [
        ("FROM", "nosuch", "--from nosuch: no such file or directory; "),
        ("TARGETS", "nosuch.json", "--targets nosuch.json: No such file"),
    ],
)
def test_an_error_that_comes_of_a_variable_names_it(variable, value, begins, config, monkeypatch, said):
    """Not the file, whose value it hides. Not if what is wrong was typed, in whatever spelling."""
    config(f'{variable.lower()} = "file"')
    monkeypatch.setenv(f"TPUMON_{variable}", value)
    assert _run(["once"]) == 2
    assert said[0].startswith(begins)
    assert said[0].endswith(f" (TPUMON_{variable})")
    assert _run(["once", f"--{variable.lower()}", "nosuch2"]) == 2
    assert "nosuch2: " in said[1]
    assert "(" not in said[1]


def test_what_was_typed_in_the_old_spelling_is_not_said_to_be_of_the_file(config, said):
    config('zone = "z"')
    assert _run(["--tpu_zone=us-b"]) == 2
    assert _run(["--zone_=us-b"]) == 2
    assert said[0] == "--zone requires --tpu NAME"
    assert said[1].endswith("(see tpumon --help)")


def test_an_option_that_a_message_advises_is_not_its_cause(config, said):
    """What is wrong comes first, what to do after it."""
    path = config('output = "csv"\nlogdir = "d"')
    assert _run(["serve", "--level", "0"]) == 2
    assert _run(["--explain", "--level", "2", "--simulate", "v5e-8"]) == 2
    assert said[0] == "serve requires --level 1 or 2; to take a profile: tpumon --level 0 --logdir DIR"
    assert said[1].endswith(f" (output in {path})")


def test_a_value_of_the_file_that_an_error_happens_to_hold_is_not_its_cause(config, said):
    config('zone = "v9-8"\nsimulate = "v5e-8"')
    assert _run(["once", "--simulate", "v9-8"]) == 2
    assert _run(["simulate", "v9-8"]) == 2
    assert [line.startswith("unknown TPU generation 'v9' in 'v9-8'; ") for line in said] == [True, True]
    assert not any("zone" in line or "(simulate" in line for line in said)


def test_an_address_to_listen_on_is_found_wrong_late_and_names_its_key(config, monkeypatch, said):
    path = config('[serve]\nlisten = "nosuch.invalid:1"\n')
    monkeypatch.setenv("TPUMON_SIMULATE", "v5e-8")
    assert _run(["serve"]) == 2
    assert said[0].startswith("cannot listen on nosuch.invalid:1: unknown host; ")
    assert said[0].endswith(f" ([serve] listen in {path})")


@pytest.mark.parametrize("arguments", [["--config", "x.toml"], ["once", "--config=x.toml"]])
def test_who_looks_for_an_option_is_told_the_variable(arguments):
    with pytest.raises(UsageError, match="no such option: --config; TPUMON_CONFIG names the file"):
        settings(*arguments)


def test_a_file_that_cannot_be_read_is_an_error_if_it_was_asked_for(config, tmp_path, monkeypatch):
    """A missing one, a directory, a pipe, bytes that are no text; help and version are shown all the same."""
    with pytest.raises(UsageError, match="No such file or directory; set TPUMON_CONFIG to another file, or to "):
        settings()
    for make in (os.mkdir, os.mkfifo, lambda path: path.write_bytes(b"\xff")):
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        make(path)
        monkeypatch.setenv("TPUMON_CONFIG", str(path))
        with pytest.raises(UsageError, match=str(path)):
            settings()
        assert callable(command_of(["--version"]))
        if path.is_file():
            with pytest.raises(UsageError, match=r"not UTF-8; save it as UTF-8$"):
                settings()
    monkeypatch.setenv("TPUMON_CONFIG", "")
    assert settings("--service-addr", "h:1").feed.source.pace.interval_s is None


def test_a_file_may_begin_with_a_mark_of_its_encoding(config):
    config("\ufeffinterval = 30\n")
    assert pace().interval_s == 30


@pytest.mark.parametrize(
    "text", ["interval = ", "once = 4", 'export = "pigeon"', '[serve]\nexport = "pigeon=1"', 'output = "jsn"', "[foo]"]
)
def test_a_pause_is_never_refused_because_of_the_file(text, config, monkeypatch):
    """Nor because of a variable: it keeps other tpumons away from a job, which matters more."""
    config(text)
    for name in ("EXPORT", "OUTPUT", "INTERVAL", "VERBOSE", "LISTEN"):
        monkeypatch.setenv(f"TPUMON_{name}", "a b")
    assert command_of(["pause", "1m"]).args == (60.0,)
    assert command_of(["-v", "pause", "1m"]).args == (60.0,)
    monkeypatch.setenv("TPUMON_CONFIG", "nosuch")
    assert command_of(["pause", "1m"]).args == (60.0,)


def test_exporters_must_be_installed_for_the_command_that_runs(config):
    """Others may be meant for another environment."""
    config('[serve]\nexport = "pigeon=1"\n')
    assert settings("--service-addr", "h:1").feed.exports == []
    with pytest.raises(UsageError, match=r"^\[serve\] export in .*: there is no output 'pigeon'; available: csv, "):
        settings("serve", "--service-addr", "h:1")
    config('export = "pigeon=1"\noutput = "pigeon"\n')
    assert settings("pause", "1m") == 60
    assert settings("simulate", "v2-8").seed == 0
    with pytest.raises(UsageError, match=r"^output in .*: pigeon: choose one of auto, live, "):
        settings("once", "--service-addr", "h:1")


@pytest.mark.parametrize("by", ["variable", "file", "table"])
def test_config_tells_which_outputs_a_command_would_refuse(by, config, monkeypatch, capsys):
    """Those that are not installed, and the formats of other commands; it shows the rest all the same."""
    path = config({"file": 'export = "pigeon=1"\n', "table": '[serve]\nexport = "pigeon=1"\n'}.get(by, ""))
    origin = str(path)
    if by == "variable":
        monkeypatch.setenv("TPUMON_EXPORT", "pigeon=1")
        origin = "TPUMON_EXPORT"
    assert command_of(["config"])() == 0
    printed = capsys.readouterr().out
    refused = [line for line in printed.splitlines() if "refused" in line]
    assert [line.startswith('# export = ["pigeon=1"]  ') for line in refused] == [True]
    assert f"  # {origin}; refused: there is no output 'pigeon'; available: csv, " in refused[0]
    assert printed.index(refused[0]) > printed.find("[serve]") if by == "table" else "[serve]" not in printed
    assert "export" not in str(tomllib.loads(printed))


PAIRS = {
    (
        "simulate",
        "v5e-8",
        "service-addr",
        "h:1",
    ): "--simulate cannot be combined with --service-addr, which ",
    (
        "simulate",
        "v5e-8",
        "workers-list",
        "h:1",
    ): "--simulate cannot be combined with --workers-list, which ",
    (
        "from",
        "h:1",
        "simulate",
        "v5e-8",
    ): "--from shows another tpumon's samples; it cannot be combined with --sim",
    ("from", "h:1", "tpu", "mine"): "--from shows another tpumon's samples; it cannot be combined with --tpu",
    ("from", "h:1", "job-kind", "training"): "--job-kind is decided where samples are taken; ",
    ("from", "h:1", "server-metrics", "http://h:2"): "--server-metrics is read where samples are taken; ",
}


@pytest.mark.parametrize(("pair", "message"), PAIRS.items())
@pytest.mark.parametrize("by", ["command line", "variables", "file", "table"])
def test_options_that_contradict_each_other_do_so_wherever_they_stand(by, pair, message, config, monkeypatch):
    """In the same place; the first of the pair would hide the other."""
    shown, value, hidden, hidden_value = pair
    lines = f'{shown} = "{value}"\n{hidden} = "{hidden_value}"\n'
    config({"file": lines, "table": f"[once]\n{lines}"}.get(by, ""))
    if by == "variables":
        for name, text in ((shown, value), (hidden, hidden_value)):
            monkeypatch.setenv(f"TPUMON_{name.upper().replace('-', '_')}", text)
    typed = [f"--{shown}", value, f"--{hidden}", hidden_value] if by == "command line" else []
    with pytest.raises(UsageError) as caught:
        command_of(["once", *typed])
    assert str(caught.value).startswith(message)


def test_what_is_given_more_strongly_hides_what_it_contradicts(config, monkeypatch):
    """The command line wins over a variable, that over the command's table, and that over the rest of the file."""
    config('service-addr = "h:1"\njob-kind = "training"\n[once]\nfrom = "h:9"\n[why]\nsimulate = "v2-8"\n')
    assert settings("once").feed.source.url == "http://h:9"
    assert settings("why").feed.source.selection.simulate.topology == "v2-8"
    assert settings("why", "--from", "h:8").feed.source.url == "http://h:8"
    monkeypatch.setenv("TPUMON_SIMULATE", "v5e-8")
    assert settings("why").feed.source.selection.simulate.topology == "v5e-8"
    with pytest.raises(UsageError, match=r"^--from shows .* --simulate$"):
        settings("once")
    monkeypatch.setenv("TPUMON_SERVICE_ADDR", "h:2")
    with pytest.raises(UsageError, match=r"^--simulate cannot be combined with --service-addr"):
        settings("why")
    assert settings("why", "--simulate", "v2-8").feed.source.selection.simulate.topology == "v2-8"


WAYS = {"service-addr": "a:1", "workers-list": "a:1", "tpu": "mine", "targets": "t.json"}


@pytest.mark.parametrize("named", WAYS)
@pytest.mark.parametrize("hidden", WAYS)
@pytest.mark.parametrize("by", ["command line", "variable", "table"])
def test_workers_are_those_that_are_named_most_strongly(by, named, hidden, config, monkeypatch, capsys):
    """Not those above the tables of the file, in whichever way these are named; `config` says so."""
    line = f'{named} = "{WAYS[named]}"\n'
    config(f'{hidden} = "theirs"\n' + f"[once]\n{line}" * (by == "table"))
    if by == "variable":
        monkeypatch.setenv(f"TPUMON_{named.upper().replace('-', '_')}", WAYS[named])
    typed = [f"--{named}", WAYS[named]] if by == "command line" else []
    chosen = settings("once", *typed).feed.source.selection
    assert (chosen.addresses, chosen.tpus, chosen.targets_file) == (
        ("a:1",) if named in {"service-addr", "workers-list"} else (),
        ("mine",) if named == "tpu" else (),
        "t.json" if named == "targets" else None,
    )
    if by != "command line" and named != hidden:
        assert command_of(["config"])() == 0
        assert f"; not used beside {named}\n" in capsys.readouterr().out


def test_ways_of_naming_workers_that_are_given_alike_are_refused_by_name(config, capsys):
    """Addresses are more specific than a TPU; a file that changes goes with neither."""
    for other in ("service-addr", "workers-list", "tpu"):
        config(f'{other} = "a"\ntargets = "t.json"\n')
        with pytest.raises(UsageError, match=f"^--targets cannot be combined with --{other}, which names workers, too"):
            settings("once")
        assert command_of(["config"])() == 0
        assert f"; refused beside {other}\n" in capsys.readouterr().out
    config('service-addr = "a:1"\ntpu = "mine"\nworkers-list = "b:2"\n')
    assert settings("once").feed.source.selection.addresses == ("a:1",)
    assert command_of(["config"])() == 0
    assert list(tomllib.loads(capsys.readouterr().out)) == ["service-addr", "workers-list"]


@pytest.mark.parametrize("pair", PAIRS)
def test_config_says_what_is_refused_or_not_used_beside_another(pair, config, monkeypatch, capsys):
    """Refused in the same place; hidden where the other is given more strongly."""
    shown, value, hidden, hidden_value = pair
    path = config(f'{shown} = "{value}"\n{hidden} = "{hidden_value}"\n')
    assert command_of(["config"])() == 0
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if "refused" in line]
    assert line.startswith(f"# {hidden} = ")
    assert line.endswith(f"# {path}; refused beside {shown}")
    assert tomllib.loads(printed)[shown] == value
    monkeypatch.setenv(f"TPUMON_{shown.upper()}", value)
    assert command_of(["config"])() == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "beside" in line]
    assert line.endswith(f"# {path}; not used beside {shown}")
    assert settings("once")


def test_a_mere_zone_or_a_switch_that_is_off_contradicts_nothing(config):
    config('explain = false\nfilter = "w0"\nzone = "us-b"\nproject = "p"\nsimulate = "v5e-8"\n')
    assert settings("once").feed.source.selection.simulate.topology == "v5e-8"
    assert settings().display.filter == "w0"


def test_a_pair_in_the_file_is_named_with_its_keys(config, said):
    path = config('simulate = "v5e-8"\n[once]\nservice-addr = "h:1"\n')
    assert _run(["once"]) == 2
    assert said[0].endswith(f"names real workers (simulate, [once] service-addr in {path})")


def test_a_pair_of_variables_is_named(monkeypatch, said):
    monkeypatch.setenv("TPUMON_SIMULATE", "v5e-8")
    monkeypatch.setenv("TPUMON_TARGETS", "t.json")
    assert _run(["once"]) == 2
    assert said[0].endswith(" (TPUMON_SIMULATE, TPUMON_TARGETS)")


def test_what_a_recording_or_a_summary_ends_is_refused_in_the_file_too(config, tmp_path):
    """As on the command line. What was typed hides it."""
    (tmp_path / "day.jsonl").write_text("")
    config(f'[once]\nstate = "s"\nfrom = "{tmp_path}/day.jsonl"\n')
    with pytest.raises(UsageError, match=r"^--state goes on from the last run"):
        settings("once")
    config('state = "s"\nfilter = "w0"\nexplain = true\nsimulate = "v5e-8"')
    assert settings("once", "--from", f"{tmp_path}/day.jsonl").feed.state_dir is None
    with pytest.raises(UsageError, match=r"^--filter shows some workers"):
        settings()
    config('filter = "w0"\nsimulate = "v5e-8"')
    assert settings("--explain").explain


def test_a_report_of_files_does_not_mind_a_simulation_in_the_file(config):
    config('simulate = "v5e-8"\n')
    assert settings("report", "x").paths == ["x"]
    with pytest.raises(UsageError, match=r"^a report is of files or of workers"):
        settings("report", "x", "--simulate", "v5e-8")
    config('[report]\nsection = "ops"\n')
    assert settings("report", "x", "--against", "y").against == ["y"]
    config('[report]\nsection = "ops"\nagainst = "y"\n')
    with pytest.raises(UsageError, match=r"^--against shows what changed, not sections"):
        settings("report", "x")


def test_the_usual_file_may_be_missing(tmp_path, monkeypatch):
    """It is looked for in the home directory, or where XDG_CONFIG_HOME says."""
    monkeypatch.delenv("TPUMON_CONFIG", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pace().interval_s is None
    path = tmp_path / ".config" / "tpumon" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("interval = 31")
    assert pace().interval_s == 31
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert pace().interval_s is None


def test_a_home_that_cannot_be_looked_into_holds_no_file(tmp_path, monkeypatch):
    """As in a container whose user has none, or under systemd's ProtectHome."""
    monkeypatch.delenv("TPUMON_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "~nobody-by-this-name/config")
    assert pace().interval_s is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert pace().interval_s is None


def test_config_says_why_there_is_no_file(config, tmp_path, monkeypatch, capsys):
    """None, or one in a directory that may not be searched, where other commands go on without it."""
    monkeypatch.delenv("TPUMON_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "tpumon" / "config.toml"
    assert command_of(["config"])() == 0
    assert capsys.readouterr().out.startswith(f"# {path}: there is none\n")

    def refused(self, **_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    command = command_of(["config"])
    monkeypatch.setattr(type(path), "stat", refused)
    assert command() == 0
    assert capsys.readouterr().out.startswith(f"# {path}: cannot be read: Permission denied\n")


def test_config_says_that_a_command_without_the_file_does_not_obey_it(config, capsys):
    config("port = 9000\n")
    assert command_of(["config"])() == 0
    printed = capsys.readouterr().out
    assert tomllib.loads(printed) == {"port": "9000", "run": {}}
    assert "# port =  " in printed.partition("[run]\n")[2]


def test_config_prints_a_file_that_says_where_each_value_comes_from(config, monkeypatch, capsys):
    """Passwords are left out; the output is TOML again."""
    path = config('interval = 30\nexport = ["csv=a b", "jsonl=c"]\n[serve]\ninterval = 60\n')
    monkeypatch.setenv("TPUMON_FROM", "http://me:secret@h:1")
    assert command_of(["config"])() == 0
    printed = capsys.readouterr().out
    lines = [line.split("  # ") for line in printed.splitlines()]
    origin = {first.partition(" =")[0].strip(): rest[0] for first, *rest in lines if rest}
    assert origin["from"] == "TPUMON_FROM"
    assert origin["# level"] == "default"
    assert "secret" not in printed
    assert printed.count(f"# {path}\n") == 4
    assert tomllib.loads(printed) == {
        "from": "http://me:***@h:1",
        "interval": "30",
        "export": ["csv=a b", "jsonl=c"],
        "serve": {"interval": "60"},
        "once": {},
        "why": {},
    }


@pytest.mark.parametrize(
    ("name", "value", "commands"),
    [
        ("output", "jsonl", ["once", "why", "analyze", "report", "doctor"]),
        ("output", "json", ["events"]),
        ("interval", "30", ["once", "why"]),
        ("num-queries", "9", ["once", "why"]),
        ("sustained", "9", []),
    ],
)
@pytest.mark.parametrize("by", ["variable", "file"])
def test_config_says_which_commands_do_not_obey(by, name, value, commands, config, monkeypatch, capsys):
    """What a variable, or the file outside its table, gives to others is not in force there."""
    config(f'{name} = "{value}"\n' if by == "file" else "")
    if by == "variable":
        monkeypatch.setenv(f"TPUMON_{name.upper().replace('-', '_')}", value)
    assert command_of(["config"])() == 0
    printed = capsys.readouterr().out
    set_in = ["once", "why", "analyze", "report", "doctor"] if value == "json" else [""]  # a monitor refuses json
    in_force = {command: {name: value} for command in set_in}
    assert tomllib.loads(printed) == {**in_force.pop("", {}), **in_force, **{command: {} for command in commands}}
    assert ("; refused: json: did you mean jsonl? choose one of auto, live" in printed) == (value == "json")
    for command in commands:
        (line,) = printed.partition(f"[{command}]\n")[2].partition("\n\n")[0].splitlines()
        assert line.startswith(f"# {name} =")
        assert line.endswith("# default")


@pytest.mark.parametrize("by", ["variable", "file"])
@pytest.mark.parametrize(("value", "output"), [("jsonl", "text"), ("csv", "text"), ("live", "text"), ("json", "json")])
def test_an_output_of_other_commands_leaves_one_at_its_own(by, value, output, config, monkeypatch):
    config(f'output = "{value}"\n' if by == "file" else "")
    if by == "variable":
        monkeypatch.setenv("TPUMON_OUTPUT", value)
    assert settings("once", "--service-addr", "h:1").output == output
    assert settings("once", "--service-addr", "h:1", "--output", "json").output == "json"


def test_an_output_in_the_table_of_a_command_is_its_own(config):
    config('output = "jsonl"\n[once]\noutput = "json"\n')
    assert settings("once", "--service-addr", "h:1").output == "json"
    assert settings("why", "--service-addr", "h:1").output == "text"


def test_the_files_type_describes_every_option():
    """For editors that check a file against a JSON Schema."""
    described = msgspec.json.schema(configuration_type(typer.main.get_command(app)))["$defs"]
    assert described["configuration"]["properties"]["level"]["enum"] == [0, 1, 2]
    assert described["serve"]["additionalProperties"] is False


QUANTITIES = ("duration-ms", "hbm-limits", "idle-limit", "infeed-limits", "interval", "max-duty", "max-trace-mb",
              "record-keep", "sort", "step-limits", "timeout", "fail-above")  # fmt: skip


@pytest.mark.parametrize("arguments", [["config"], ["once"]])
@pytest.mark.parametrize("name", QUANTITIES)
def test_a_value_that_the_command_line_refuses_is_not_in_force(name, arguments, config):
    """Also for a command that would not use it: `once` has an interval of its own."""
    config(f'{name} = "30x"\n')
    with pytest.raises(UsageError, match=f"^{name} in .*config.toml: 30x: (give|choose)") as caught:
        command_of(arguments)()
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("INTERVAL", "30x", "30x: give a time of at most 7d, such as 10s"),
        ("NUM_QUERIES", "many", "many: give a whole number of at least 0, such as 10"),
        ("LEVEL", "7", "7: choose one of 0, 1, 2"),
        ("GPU", "maybe", "maybe: give true or false"),
        ("RECORD_KEEP", "7x", "7x: give an age, a size, or both, such as 7d,1GB"),
        ("EXPORT", "pigeon", "pigeon: give NAME=WHERE, for example csv=samples.csv"),
    ],
)
def test_config_refuses_a_variable_as_the_command_line_does(name, text, message, monkeypatch):
    """Each command that reads it says the same."""
    monkeypatch.setenv(f"TPUMON_{name}", text)
    for arguments in (["config"], []):
        with pytest.raises(UsageError) as caught:
            command_of(arguments)()
        assert str(caught.value).startswith(f"TPUMON_{name}={message}")


def test_config_takes_what_the_command_line_takes(config, monkeypatch, capsys):
    """Switches have several words in the environment; a level and a number may stand in quotes."""
    config('duration-ms = "auto"\nnum-queries = "3"\nrecord-keep = "1d"\n')
    monkeypatch.setenv("TPUMON_GPU", "yes")
    monkeypatch.setenv("TPUMON_EXPORT", "csv=a jsonl=b")
    assert command_of(["config"])() == 0
    assert 'num-queries = "3"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("OUTPUT", "jsn", "TPUMON_OUTPUT=jsn: choose one of text, json"),
        ("SCENARIO", "nope", "TPUMON_SCENARIO: unknown scenario 'nope'; choose one of steady, "),
        ("SIMULATE", "v9-8", "TPUMON_SIMULATE: unknown TPU generation 'v9' in 'v9-8'; "),
        ("SERVICE_ADDR", "a:1,h:99999", "TPUMON_SERVICE_ADDR: cannot use the address 'h:99999': its port"),
        ("TPU", "Mine", "TPUMON_TPU: 'Mine' is not a TPU's name; "),
        ("SERVER_METRICS", "http://h:1 w=ftp://h", "TPUMON_SERVER_METRICS: not the URL of a server's metrics; "),
    ],
)
def test_a_wrong_variable_is_named_unless_it_was_typed_over(name, text, message, monkeypatch):
    """Before the command begins; one that another command alone has is nothing to this one."""
    monkeypatch.setenv(f"TPUMON_{name}", text)
    with pytest.raises(UsageError) as caught:
        settings("once")
    assert str(caught.value).startswith(message)
    assert settings("pause", "1m")
    if name == "SERVICE_ADDR":
        assert settings("once", "--service_addr=h:1").feed.source.selection.addresses == ("h:1",)


def test_a_variable_to_listen_on_is_named(monkeypatch, said):
    """By the form of the address before, by the name of its host when the command begins."""
    monkeypatch.setenv("TPUMON_LISTEN", "a b")
    assert _run(["serve", "--simulate", "v5e-8"]) == 2
    assert said[0].startswith("TPUMON_LISTEN: cannot listen on 'a b'; ")
    monkeypatch.setenv("TPUMON_LISTEN", "nosuch.invalid:1")
    assert _run(["serve", "--simulate", "v5e-8"]) == 2
    assert said[1].startswith("cannot listen on nosuch.invalid:1: unknown host; ")
    assert said[1].endswith(" (TPUMON_LISTEN)")

"""The configuration file: options by their names, for those who do not want to type them each time.

    interval = 30
    service-addr = ["10.0.0.2:9999", "10.0.0.3:9999"]

    [serve]
    listen = ":10466"

Keys before the first table count for every command that has the option; a table counts for its command alone.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, defstruct

from tpumon.cli.contradictions import contradiction, not_obeyed
from tpumon.cli.legacy import translate
from tpumon.cli.options import OWN_TABLE, strength
from tpumon.cli.values import FORMS, READERS, advice, formats_of, refuse_empty
from tpumon.errors import UsageError
from tpumon.untrusted_text import LONGEST_PATH, one_line

if TYPE_CHECKING:
    from typer.core import TyperGroup

VARIABLE = "TPUMON_CONFIG"
WITHOUT_FILE = frozenset({"run", "pause"})
"""Commands that do not read the file: what is meant for monitors must not hold up a program, or refuse a pause."""

_MOST_BYTES = 1 << 20
_JUDGING = frozenset({"once", "why"})
_OF_MONITORS = frozenset({"interval", "num-queries"})  # what is said of these to all commands is not for those
_ALIKE = 0.8
_FEWEST = 3
_MOST_TOLD = 10
_KEYS = "keys are options without the dashes; see tpumon"
_VOWELS = frozenset("aeiou")
_NO_OPTIONS = (VARIABLE, "TPUMON_PAUSE_DIR", "TPUMON_DEBUG", "TPUMON_ATTACH", "TPUMON_ATTACH_PORT", "TPUMON_ATTACH_DIR")
_PREFIX = re.compile(r"(TPU_?MON|TPMON|TUPMON)_?", re.IGNORECASE)
_OF_A_SERVICE = re.compile(r"(.*_)?(SERVICE_(HOST|PORT)|PORT_\d+)(_.*)?")  # of Kubernetes, as one has that name
_URL = re.compile(r"\w+://")  # so are those of ports with one
_OF_FILES = re.compile("-(file|path|dir)$")

_OPTION = re.compile(r"(?<!\w)--([a-z][a-z-]*)(?![\w-])")
_NO_QUOTES = re.compile("Expected newline|Invalid value")  # what tomllib says of text without them
_TWICE = re.compile(r"Cannot overwrite a value \(at (?:line (\d+)|end)")
_TABLE_TWICE = re.compile(r"Cannot declare \((.*?),?\) twice \(at (line \d+|end)")
_NO_VALUE = re.compile(r"^\s*([\w.-]+)\s*=\s*(?:#.*)?$", re.MULTILINE)
_KEY = re.compile(r"[\s\[]*([\w.-]+)\s*[=\]]")

OptionParsers = Mapping[str, Callable[[str], object]]
OptionValues = dict[str, str | list[str]]
"""Values of options as they would stand in the environment, by the parser's names."""


class Config(NamedTuple):
    """Values that the file gives.

    Attributes:
        values: of each command's options, by its name; by "" those of the group itself.
        own: the options, by the parser's names, that each command's own table gives.
    """

    values: dict[str, OptionValues]
    own: dict[str, frozenset[str]]


def config_path() -> Path | None:
    """The file that TPUMON_CONFIG names, otherwise ~/.config/tpumon/config.toml; None: TPUMON_CONFIG is empty."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(_from_home(named)) if named else None
    return Path(_from_home(os.environ.get("XDG_CONFIG_HOME") or "~/.config"), "tpumon", "config.toml")


def read_config(group: TyperGroup, running: Any, arguments: Sequence[str] = ()) -> Config:
    """Reads the configuration file; nothing if there is none and none was asked for.

    Args:
        group: all commands.
        running: one of them, or the group: only its exporters must be installed.
        arguments: of the command line, in today's spelling: beside a wrong value, its contradictions are told, too.

    Raises:
        UsageError: the file cannot be read, is not TOML, names options that do not exist, or gives them values that
            they cannot have.
    """
    path = config_path()
    if path is None or (VARIABLE not in os.environ and not _exists(path)):
        return Config({}, {})
    commands: dict[str, Any] = dict(group.commands)
    tables = _with_hyphens(_parsed(path))
    shared = {key: value for key, value in tables.items() if not (isinstance(value, dict) and key in commands)}
    own = {name: _with_hyphens(table) for name, table in tables.items() if name in commands and name not in shared}
    if wrong := [*_wrong_before_tables(path, shared, group, running), *_wrong_in_tables(path, own, group, running)]:
        of_all = running.name == "config"  # it shows the options of all
        commands_told = {"": group, **{name: commands[name] for name in own if name not in WITHOUT_FILE}}
        for name, command in (commands_told if of_all else {running.name or "": running}).items():
            told = _contradictions(path, shared, own.get(name, {}), command, arguments)
            wrong += [one for one in told if one not in wrong]
        if len(wrong) > _MOST_TOLD:
            wrong[_MOST_TOLD - 1 :] = [f"{path}: {len(wrong) - _MOST_TOLD + 1} more errors"]
        raise UsageError(wrong[0], others=wrong[1:])
    values = {"": _values("", group, shared, {})} | {
        name: _values(name, command, shared, own.get(name, {}))
        for name, command in commands.items()
        if name not in WITHOUT_FILE
    }
    by_parser = {name: dict(options_of(commands[name])) for name in own}
    return Config(values, {name: frozenset(by_parser[name][key].name for key in table) for name, table in own.items()})


def _wrong_before_tables(path: Path, keys: Mapping[str, Any], group: TyperGroup, running: Any) -> Iterator[str]:
    """Yields what is wrong with keys for all commands, and with tables that are of none."""
    options, of_running = _options_by_name(group), dict(options_of(running))
    for key, value in keys.items():
        if key in group.commands and key not in options:
            yield f"{path}: {key} is a command, and its options are a table: [{key}]"
        elif isinstance(value, dict):
            yield f"{path}: there is no table [{key}]; {_hint_for_table(key, group, options)}"
        elif key not in options:
            yield f"{path}: there is no option {key}; {_hint_for_key(key, options, '--help')}"
        else:
            readers = READERS if key in of_running else FORMS
            yield from _refused(key, options[key], value, f"{key} in {path}: ", readers)


def _wrong_in_tables(
    path: Path, tables: Mapping[str, Mapping[str, Any]], group: TyperGroup, running: Any
) -> Iterator[str]:
    """Yields what is wrong with tables of commands."""
    elsewhere = _options_by_name(group)
    for name, table in tables.items():
        its: dict[str, Any] = dict(options_of(group.commands[name]))
        readers = READERS if group.commands[name] is running else FORMS
        if name in WITHOUT_FILE and table:
            yield f"{path}: tpumon {name} does not read this file: leave out [{name}]"
            continue
        for key, value in table.items():
            if key in its:
                yield from _refused(key, [its[key]], value, f"[{name}] {key} in {path}: ", readers)
                continue
            hint = _hint_for_key(key, its, f"{name} --help")
            hint = "another command has it: put it before the first table" if key in elsewhere else hint
            yield f"{path}: [{name}] there is no option {key}; {hint}"


def _contradictions(
    path: Path, shared: Mapping[str, Any], own: Mapping[str, Any], running: Any, arguments: Sequence[str]
) -> Iterator[str]:
    """Yields which keys that the command would obey, if all were right, contradict each other or what is given else."""
    given: dict[str, str] = {}  # in which way
    for name, option in options_of(running):
        if _is_typed(option, arguments):
            given[option.name] = "COMMANDLINE"
        elif os.environ.get(variable_of(name)):
            given[option.name] = "ENVIRONMENT"
        elif own.get(name):
            given[option.name] = OWN_TABLE
        elif shared.get(name) and name not in own and counts_for(running.name or "", name, option, shared[name]):
            given[option.name] = "DEFAULT_MAP"
    for option, (how, other) in not_obeyed({name: strength(way) for name, way in given.items()}).items():
        if how == "refused" and not {given[option], given[other]}.isdisjoint({OWN_TABLE, "DEFAULT_MAP"}):
            yield f"{path}: {contradiction(other, option)}"


def _hint_for_key(key: str, options: Iterable[str], page: str) -> str:
    """The option that a wrong key may mean, or the page with all of them."""
    near = nearest(key.lower(), list(options))
    return f"did you mean {near}?" if near else f"{_KEYS} {page}"


def _hint_for_table(key: str, group: TyperGroup, options: Container[str]) -> str:
    """Guess of what a table that is of no command may mean."""
    names = [name for name, one in group.commands.items() if name not in WITHOUT_FILE and any(options_of(one))]
    if near := nearest(key.lower(), names):
        return f"did you mean [{near}]?"
    is_option = f"{key} is an option, above the tables: {key} = ...; " if key in options else ""
    return f"{is_option}tables are {', '.join(f'[{name}]' for name in names)}"


def _refused(name: str, options: Sequence[Any], value: object, where: str, readers: OptionParsers) -> Iterator[str]:
    """Yields what is wrong with a value, if anything is."""
    try:
        _check(name, options, value, where, _converted, readers)
    except UsageError as error:
        yield str(error)


def check_variables(group: TyperGroup, context: Any, command: Any, arguments: Sequence[str]) -> None:
    """Checks the variables of a command, as the file is checked; not those of options that were typed.

    Args:
        group: all commands.
        context: the group's.
        command: one of them, or the group.
        arguments: of the command line, in today's spelling.

    Raises:
        UsageError: one has a value that it cannot have.
    """
    for name, option in options_of(command):
        if not _is_typed(option, arguments):
            read_variable(group, context, command, name, option, READERS)


def read_variable(
    group: TyperGroup, context: Any, command: Any, name: str, option: Any, readers: OptionParsers = FORMS
) -> str | Sequence[str] | None:
    """Returns what the variable of an option gives a command; None: nothing that counts for it.

    Raises:
        UsageError: no command takes the value, by these readers.
    """
    value: str | Sequence[str] | None = option.value_from_envvar(context)
    if value is None:
        return None

    def converted(one: Any, value: object) -> object:
        return one.get_runtime_param().coerce(value, param=one, ctx=context)

    _check(name, [*_options_by_name(group)[name], option], value, f"{variable_of(name)}=", converted, readers)
    return value if counts_for(command.name, name, option, value) else None


def refusal(name: str, option: Any, value: object) -> str:
    """Refusal of a value of the right form by the command of an option; empty: it takes it."""
    try:
        _read(name, option, value, READERS)
    except (UsageError, ValueError) as error:
        return one_line(str(error), limit=LONGEST_PATH)
    return ""


def counts_for(command: str, name: str, option: Any, value: object) -> bool:
    """Tells that a command obeys what a variable, or the file outside its table, gives; it may be meant for others."""
    if formats := formats_of(option):
        return ",".join(_texts(value)) in formats
    return not (command in _JUDGING and name in _OF_MONITORS)


def set_by_words(group: TyperGroup, arguments: Sequence[str], error: UsageError) -> str:
    """Returns ` (VARIABLE)` or ` (KEY in FILE)` if an error is about an option that only these give; empty: it is not.

    Args:
        group: all commands.
        arguments: of the command line.
        error: says of which option it is, or its message names it before it says what to do.
    """
    arguments, _ = translate(arguments)
    command = next((group.commands[one] for one in arguments if one in group.commands), group)
    options = dict(options_of(command))
    named = [error.option] if error.option else _OPTION.findall(str(error).partition("; ")[0])
    names = [name for name in named if name in options and not _is_typed(options[name], arguments)]
    if variables := [variable for name in names if os.environ.get(variable := variable_of(name))]:
        return f" ({', '.join(variables)})"
    path = config_path()
    try:
        tables = {} if path is None else _with_hyphens(_parsed(path))
    except UsageError:
        return ""
    own = tables.get(command.name or "")
    own = _with_hyphens(own) if isinstance(own, dict) else {}
    keys = [f"[{command.name}] {name}" if name in own else name for name in names if name in {**tables, **own}]
    return f" ({', '.join(keys)} in {path})" if keys else ""


def _is_typed(option: Any, arguments: Sequence[str]) -> bool:
    spellings = {*option.opts, *option.secondary_opts}
    return any(one.partition("=")[0] in spellings for one in arguments)


_Text = str | int | float | list[str | int | float]


def configuration_type(group: TyperGroup) -> type[Struct]:
    """The type of the file: the options of all commands, and a table for each command with its own."""
    commands: dict[str, Any] = dict(group.commands)
    tables: dict[str, Any] = {
        name: _table(name, dict(options_of(command))) for name, command in commands.items() if name not in WITHOUT_FILE
    }
    return _table("configuration", {name: one[-1] for name, one in _options_by_name(group).items()}, tables)


def _options_by_name(group: TyperGroup) -> dict[str, list[Any]]:
    """The options of all commands, the group's own last."""
    options: dict[str, list[Any]] = {}
    for command in (*group.commands.values(), group):
        for name, option in options_of(command):
            options.setdefault(name, []).append(option)
    return options


def _check(
    name: str,
    options: Sequence[Any],
    value: object,
    where: str,
    convert_it: Callable[[Any, object], object],
    readers: OptionParsers,
) -> None:
    """Checks a value of an option that several commands may have.

    Args:
        name: of the option, without dashes.
        options: the parser's; one must take the value, otherwise the last says what it takes.
        value: as it was given.
        where: the place that gave it, with the sign before the value.
        convert_it: takes an option and the value; raises ValidationError or typer.BadParameter if its type is wrong.
        readers: of values that are text.

    Raises:
        UsageError: none takes it.
    """
    wrong = ""
    for option in options:
        try:
            _read(name, option, value, readers)
            convert_it(option, value)
        except (ValidationError, typer.BadParameter):  # the first is a ValueError, too
            wrong = f"{where}{one_line(','.join(_texts(value)))}: {advice(option)}"
        except (UsageError, ValueError) as error:
            said = one_line(str(error), limit=LONGEST_PATH).removeprefix(f"--{name}").lstrip(": ")
            wrong = f"{where if said.startswith(tuple(_texts(value))) else where.rstrip(':= ') + ': '}{said}"
        else:
            return
    raise UsageError(wrong)


def _read(name: str, option: Any, value: object, readers: OptionParsers) -> None:
    """Reads a value; raises ValueError or UsageError if the option takes no such one."""
    refuse_empty(option, value if value != [] else "")
    texts = ["a table"] if isinstance(value, dict) else _texts(value)
    text, formats = ",".join(texts), formats_of(option)
    if isinstance(value, dict) or (formats and text not in formats):
        raise ValueError(f"{text}: {advice(option)}")
    if name in readers and not formats:
        for one in texts if option.multiple else [text]:
            readers[name](one)


def _converted(option: Any, value: object) -> object:
    return convert(value, _type_of(option), strict=False)


def _table(title: str, options: Mapping[str, Any], tables: Mapping[str, Any] | None = None) -> type[Struct]:
    types = {name: _type_of(option) for name, option in options.items()}
    for name, table in (tables or {}).items():
        types[name] = types[name] | table if name in types else table
    fields = [(name.replace("-", "_") + "_", type_ | UnsetType, UNSET) for name, type_ in types.items()]
    return defstruct(title, fields, rename=_key, forbid_unknown_fields=True)


def _key(field: str) -> str:
    return field.removesuffix("_").replace("_", "-")


def _type_of(option: Any) -> Any:
    """The type of an option in the file: what is text on the command line may be a number, or several with commas."""
    annotation = option.type_descriptor.annotation
    is_text = annotation in {str, list[str]}
    return Annotated[_Text if is_text else annotation, Meta(ge=option.min, le=option.max, description=option.help)]


def options_of(command: Any) -> Iterator[tuple[str, Any]]:
    """The options of a command that a file can set: their names without dashes, and the parser's parameters."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.expose_value and not parameter.hidden:
            yield parameter.opts[0].removeprefix("--"), parameter


def variable_of(name: str) -> str:
    """The environment variable of an option: TPUMON_SERVICE_ADDR of `service-addr`."""
    return f"TPUMON_{name.upper().replace('-', '_')}"


def misspelled_variables(group: TyperGroup, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields variables that nearly have the name of an option's variable, or a command's before it, and what works."""
    known = [*map(variable_of, _options_by_name(group)), *_NO_OPTIONS]
    names = [_key(one.removeprefix("TPUMON_").lower()) for one in known]
    for variable, value in sorted(environment.items()):
        begins = _PREFIX.match(variable)
        if begins is None or variable in known:
            continue
        rest = variable[begins.end() :]
        if _OF_A_SERVICE.fullmatch(rest) or (rest.endswith("PORT") and _URL.match(value)):
            continue
        word = _key(rest.strip("_").lower())
        command, _, option = word.partition("-")
        its = [name for name, _ in options_of(group.commands[command])] if command in group.commands else []
        if of_command := nearest(option, its):
            by_file = "" if command in WITHOUT_FILE else f", or [{command}] {of_command} in the file"
            yield variable, f"--{of_command}{by_file}"
        elif near := nearest(word, names) or nearest(_OF_FILES.sub("", word), names):
            yield variable, variable_of(near)


def _from_home(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - Path's own raises where a user has no home


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - Path's own raises where a home may not be looked into


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path}: not a file")
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; set {VARIABLE} to another file, or to nothing for none") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path}: larger than 1 MiB")
    try:
        text = data.decode("utf-8-sig")  # some editors begin a file so
        return tomllib.loads(text)
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
        raise UsageError(f"{path}: {_in_plain_words(str(error), text)}") from None


def _in_plain_words(error: str, text: str) -> str:
    """An error of tomllib with what to change, if it says too little."""
    if table := _TABLE_TWICE.match(error):
        name = ".".join(re.findall("'(.*?)'", table[1]))
        return f"[{name}] stands there twice, again at {table[2]}; put its keys together"
    hint = ""
    if empty := _NO_VALUE.search(text) if _NO_QUOTES.match(error) else None:
        hint = f"; {empty[1]} has no value"
    elif _NO_QUOTES.match(error):
        hint = '; text needs quotes, such as interval = "5m"'
    elif (twice := _TWICE.match(error)) and (key := _KEY.match(text.splitlines()[int(twice[1] or 0) - 1])):
        hint = f"; {key[1]} stands there twice, or is a value and a table"
    return f"not TOML: {error}{hint}"


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO would wait for its writer


def _with_hyphens(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in table.items()}


def nearest(word: str, names: Sequence[str]) -> str | None:
    """The name that someone meant: a few letters differ, or are in another order, or are left out (`cfg`, `conf`)."""
    alike = difflib.get_close_matches(word, names, n=1, cutoff=_ALIKE)
    begun = [name for name in names if len(word) >= _FEWEST and name[0] == word[0]]
    alike += [name for name in begun if sorted(name) == sorted(word)]
    if _VOWELS.isdisjoint(word):
        alike += [name for name in begun if name[-1] == word[-1] and _is_within(word, name)]
    alike += [name for name in begun if name.startswith(word) and 3 * len(word) >= 2 * len(name)]
    alike += [name for name in names if len(word) > _FEWEST and name.endswith(f"-{word}")]
    return next(iter(alike), None)


def _is_within(word: str, name: str) -> bool:
    """Tells that a word has some of a name's letters, in its order."""
    letters = iter(name)
    return all(letter in letters for letter in word)


def _values(name: str, command: Any, shared: Mapping[str, Any], own: Mapping[str, Any]) -> OptionValues:
    values: OptionValues = {}
    for key, option in options_of(command):
        given = own.get(key, shared.get(key) if counts_for(name, key, option, shared.get(key)) else None)
        if given is not None:
            texts = _texts(given)
            values[option.name] = texts if option.multiple else ",".join(texts)
    return values


def _texts(value: object) -> list[str]:
    """A value as it would be typed; several for a list."""
    listed = value if isinstance(value, (list, tuple)) else [value]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in listed]

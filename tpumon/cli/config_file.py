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
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, defstruct

from tpumon.cli.legacy import translate
from tpumon.cli.values import READERS, advice, formats_of
from tpumon.errors import UsageError
from tpumon.untrusted_text import LONGEST_PATH, one_line

if TYPE_CHECKING:
    from typer.core import TyperGroup

VARIABLE = "TPUMON_CONFIG"
_MOST_BYTES = 1 << 20
_JUDGING = frozenset({"once", "why"})
_OF_MONITORS = frozenset({"interval", "num-queries"})  # what is said of these to all commands is not for those
_ALIKE = 0.85
_NO_OPTIONS = (VARIABLE, "TPUMON_PAUSE_DIR", "TPUMON_DEBUG", "TPUMON_ATTACH", "TPUMON_ATTACH_PORT", "TPUMON_ATTACH_DIR")
_OF_A_SERVICE = re.compile(r"TPUMON_(.*_)?(SERVICE_(HOST|PORT)|PORT_\d+)(_.*)?")  # of Kubernetes, as one has that name

_OPTION = re.compile(r"(?<!\w)--([a-z][a-z-]*)(?![\w-])")
_NO_QUOTES = re.compile("Expected newline|Invalid value")  # what tomllib says of text without them
_TWICE = re.compile(r"Cannot overwrite a value \(at (?:line (\d+)|end)")
_KEY = re.compile(r"\s*([\w.-]+)\s*=")

OptionValues = dict[str, str | list[str]]
"""Values of options as they would stand in the environment, by the parser's names."""


def config_path() -> Path | None:
    """The file that TPUMON_CONFIG names, otherwise ~/.config/tpumon/config.toml; None: TPUMON_CONFIG is empty."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(_from_home(named)) if named else None
    return Path(_from_home(os.environ.get("XDG_CONFIG_HOME") or "~/.config"), "tpumon", "config.toml")


def read_config(group: TyperGroup) -> dict[str, OptionValues]:
    """Reads the configuration file; nothing if there is none and none was asked for.

    Returns:
        The values of each command's options, by its name; by "" those of the group itself.

    Raises:
        UsageError: the file cannot be read, is not TOML, names an option that does not exist, or gives it a value that
            it cannot have.
    """
    path = config_path()
    if path is None or (VARIABLE not in os.environ and not _exists(path)):
        return {}
    commands: dict[str, Any] = dict(group.commands)
    tables = _with_hyphens(_parsed(path))
    options = _options_by_name(group)
    shared = {key: value for key, value in tables.items() if not (isinstance(value, dict) and key in commands)}
    own = {name: _with_hyphens(tables[name]) for name in commands if isinstance(tables.get(name), dict)}
    if no_tables := [key for key in shared if key in commands and key not in options]:
        raise UsageError(f"{path}: {no_tables[0]} is a command, and its options are a table: [{no_tables[0]}]")
    _check_known(path, "", shared, [*options, *commands])
    for key, value in shared.items():
        _check(key, options[key], value, f"{key} in {path}: ", _converted)
    for name, table in own.items():
        its = dict(options_of(commands[name]))
        _check_known(path, f"[{name}] ", table, list(its), options)
        for key, value in table.items():
            _check(key, [its[key]], value, f"[{name}] {key} in {path}: ", _converted)
    return {"": _values("", group, shared, {})} | {
        name: _values(name, command, shared, own.get(name, {})) for name, command in commands.items()
    }


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
            read_variable(group, context, command, name, option)


def read_variable(group: TyperGroup, context: Any, command: Any, name: str, option: Any) -> str | Sequence[str] | None:
    """Returns what the variable of an option gives a command; None: nothing that counts for it.

    Raises:
        UsageError: no command takes the value.
    """
    value: str | Sequence[str] | None = option.value_from_envvar(context)
    if value is None:
        return None

    def converted(one: Any, value: object) -> object:
        return one.get_runtime_param().coerce(value, param=one, ctx=context)

    _check(name, [*_options_by_name(group)[name], option], value, f"{variable_of(name)}=", converted)
    return value if counts_for(command.name, name, option, value) else None


def counts_for(command: str, name: str, option: Any, value: object) -> bool:
    """Tells that a command obeys what a variable, or the file outside its table, gives; it may be meant for others."""
    if formats := formats_of(option):
        return ",".join(_texts(value)) in formats
    return not (command in _JUDGING and name in _OF_MONITORS)


def origin_of(group: TyperGroup, arguments: Sequence[str], error: UsageError) -> str:
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
        return f" ({variables[0]})"
    path = config_path()
    try:
        tables = {} if path is None else _with_hyphens(_parsed(path))
    except UsageError:
        return ""
    own = tables.get(command.name or "")
    own = _with_hyphens(own) if isinstance(own, dict) else {}
    keys = [f"[{command.name}] {name}" if name in own else name for name in names if name in {**tables, **own}]
    return f" ({keys[0]} in {path})" if keys else ""


def _is_typed(option: Any, arguments: Sequence[str]) -> bool:
    spellings = {*option.opts, *option.secondary_opts}
    return any(one.partition("=")[0] in spellings for one in arguments)


_Text = str | int | float | list[str | int | float]


def configuration_type(group: TyperGroup) -> type[Struct]:
    """The type of the file: the options of all commands, and a table for each command with its own."""
    commands: dict[str, Any] = dict(group.commands)
    tables: dict[str, Any] = {name: _table(name, dict(options_of(command))) for name, command in commands.items()}
    return _table("configuration", {name: one[-1] for name, one in _options_by_name(group).items()}, tables)


def _options_by_name(group: TyperGroup) -> dict[str, list[Any]]:
    """The options of all commands, the group's own last."""
    options: dict[str, list[Any]] = {}
    for command in (*group.commands.values(), group):
        for name, option in options_of(command):
            options.setdefault(name, []).append(option)
    return options


def _check(
    name: str, options: Sequence[Any], value: object, where: str, convert_it: Callable[[Any, object], object]
) -> None:
    """Checks a value of an option that several commands may have.

    Args:
        name: of the option, without dashes.
        options: the parser's; one must take the value, otherwise the last says what it takes.
        value: as it was given.
        where: the place that gave it, with the sign before the value.
        convert_it: takes an option and the value; raises ValidationError or typer.BadParameter if its type is wrong.

    Raises:
        UsageError: none takes it.
    """
    wrong = ""
    for option in options:
        try:
            _read(name, option, value)
            convert_it(option, value)
        except (ValidationError, typer.BadParameter):  # the first is a ValueError, too
            wrong = f"{where}{one_line(','.join(_texts(value)))}: {advice(option)}"
        except (UsageError, ValueError) as error:
            said = one_line(str(error), limit=LONGEST_PATH).removeprefix(f"--{name}").lstrip(": ")
            wrong = f"{where if said.startswith(tuple(_texts(value))) else where.rstrip(':= ') + ': '}{said}"
        else:
            return
    raise UsageError(wrong)


def _read(name: str, option: Any, value: object) -> None:
    """Reads a value; raises ValueError or UsageError if the option takes no such one."""
    texts = ["a table"] if isinstance(value, dict) else _texts(value)
    text, formats = ",".join(texts), formats_of(option)
    if isinstance(value, dict) or (formats and text not in formats):
        raise ValueError(f"{text}: {advice(option)}")
    if name in READERS and not formats:
        for one in texts if option.multiple else [text]:
            READERS[name](one)


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


def misspelled_variables(group: TyperGroup, environment: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields variables that nearly have the name of an option's variable, or a command's before it, and what works."""
    options = _options_by_name(group)
    known = [*map(variable_of, options), *_NO_OPTIONS]
    prefix = re.compile(rf"TPUMON_({'|'.join(map(str.upper, group.commands))})_")
    for variable in sorted(environment):
        if not variable.startswith("TPUMON") or variable in known or _OF_A_SERVICE.fullmatch(variable):
            continue
        begins = prefix.match(variable)
        command = begins[1].lower() if begins else ""
        its = dict(options_of(group.commands[command])) if begins else options
        word = variable.removeprefix(begins[0] if begins else "TPUMON").strip("_").lower().replace("_", "-")
        names = [*its, *(_key(one.removeprefix("TPUMON_").lower()) for one in _NO_OPTIONS)]
        for near in difflib.get_close_matches(word, names, n=1, cutoff=_ALIKE):
            by_file = command in _JUDGING and near in _OF_MONITORS
            yield variable, f"--{near}, or [{command}] {near} in the file" if by_file else variable_of(near)


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
        raise UsageError(f"{path}: {error.strerror}; {VARIABLE} names another file, or none if it is empty") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path}: larger than 1 MiB")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and TOMLDecodeError are ValueErrors
        raise UsageError(f"{path}: not TOML: {error}{_hint_for(str(error), data.decode(errors='replace'))}") from None


def _hint_for(error: str, text: str) -> str:
    """What to change, if an error of tomllib says too little; empty: it says enough."""
    if _NO_QUOTES.match(error):
        return '; text needs quotes, such as interval = "5m"'
    if (twice := _TWICE.match(error)) and (key := _KEY.match(text.splitlines()[int(twice[1] or 0) - 1])):
        return f"; {key[1]} stands there twice"
    return ""


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO would wait for its writer


def _with_hyphens(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in table.items()}


def _check_known(
    path: Path, table: str, keys: Mapping[str, Any], known: Sequence[str], elsewhere: Container[str] = ()
) -> None:
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=_ALIKE)
            hint = f"did you mean {near[0]}?" if near else "keys are options without the dashes; see tpumon --help"
            hint = "another command has it: put it before the first table" if key in elsewhere else hint
            raise UsageError(f"{path}: {table}there is no option {key}; {hint}")


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

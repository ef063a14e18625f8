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

from tpumon.cli.values import READERS, advice
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

_NO_QUOTES = re.compile("Expected newline|Invalid value")  # what tomllib says of text without them

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
    shared = {key: value for key, value in tables.items() if not (isinstance(value, dict) and key in commands)}
    own = {name: _with_hyphens(tables[name]) for name in commands if isinstance(tables.get(name), dict)}
    options = _options_of_all(group)
    _check_known(path, "", shared, [*options, *commands])
    for name, table in own.items():
        _check_known(path, f"[{name}] ", table, [one for one, _ in options_of(commands[name])], options)
    for name, table in (("", shared), *own.items()):
        its = dict(options_of(commands[name])) if name else options
        for key, value in table.items():
            if key in its and (wrong := _wrong_in_file(key, its[key], value)):
                raise UsageError(f"{f'[{name}] ' * bool(name)}{key} in {path}: {wrong}")
    of_judging = {key: value for key, value in shared.items() if key not in _OF_MONITORS}
    return {"": _values(group, shared)} | {
        name: _values(command, {**(of_judging if name in _JUDGING else shared), **own.get(name, {})})
        for name, command in commands.items()
    }


def named_in_file(group: TyperGroup, arguments: Sequence[str], error: UsageError) -> str:
    """Returns ` (KEY in FILE)` if an error is about an option that only the file gives; empty: it is not.

    Args:
        group: all commands.
        arguments: of the command line.
        error: says of which option it is, or its message names it.
    """
    path, message = config_path(), str(error)
    if path is None or str(path) in message:
        return ""
    try:
        tables = _with_hyphens(_parsed(path))
    except UsageError:
        return ""
    command = next((one for one in arguments if one in group.commands), "")
    own = tables.get(command)
    own = _with_hyphens(own) if isinstance(own, dict) else {}
    known = {name for name, _ in options_of(group.commands.get(command, group))}
    for key in {**tables, **own}:
        is_given = variable_of(key) in os.environ or any(one.partition("=")[0] == f"--{key}" for one in arguments)
        is_it = key == error.option if error.option else re.search(rf"(?<!\w)--{re.escape(key)}(?![\w-])", message)
        if key in known and is_it and not is_given:
            return f" ({f'[{command}] ' * (key in own)}{key} in {path})"
    return ""


_Text = str | int | float | list[str | int | float]


def configuration_type(group: TyperGroup) -> type[Struct]:
    """The type of the file: the options of all commands, and a table for each command with its own."""
    commands: dict[str, Any] = dict(group.commands)
    tables: dict[str, Any] = {name: _table(name, dict(options_of(command))) for name, command in commands.items()}
    return _table("configuration", _options_of_all(group), tables)


def _options_of_all(group: TyperGroup) -> dict[str, Any]:
    commands: tuple[Any, ...] = (*group.commands.values(), group)
    return {name: option for command in commands for name, option in options_of(command)}


def wrong_with(name: str, option: Any, value: object, convert_it: Callable[[], object]) -> str:
    """Returns what is wrong with the value of an option, and what to give; empty: nothing.

    Args:
        name: of the option, without dashes.
        option: the parser's.
        value: as it was given.
        convert_it: raises ValidationError or typer.BadParameter if the value is of another type.
    """
    if isinstance(value, dict):
        return f"a table: {advice(option)}"
    try:
        if name in READERS:
            READERS[name](",".join(_texts(value)))
        convert_it()
    except (ValidationError, typer.BadParameter):  # the first is a ValueError, too
        return f"{one_line(','.join(_texts(value)))}: {advice(option)}"
    except ValueError as error:
        return one_line(str(error), limit=LONGEST_PATH)
    return ""


def _wrong_in_file(name: str, option: Any, value: object) -> str:
    return wrong_with(name, option, value, lambda: convert(value, _type_of(option), strict=False))


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
    """Yields variables that nearly have the name of an option's variable, or a command's before it, and that name."""
    known = [*map(variable_of, _options_of_all(group)), *_NO_OPTIONS]
    command = re.compile(rf"TPUMON_({'|'.join(map(str.upper, group.commands))})_")
    for variable in sorted(environment):
        if variable.startswith("TPUMON") and variable not in known and not _OF_A_SERVICE.fullmatch(variable):
            for near in difflib.get_close_matches(command.sub("TPUMON_", variable), known, n=1, cutoff=_ALIKE):
                yield variable, near


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
        hint = '; text needs quotes, such as interval = "5m"' if _NO_QUOTES.match(str(error)) else ""
        raise UsageError(f"{path}: not TOML: {error}{hint}") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO would wait for its writer


def _with_hyphens(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in table.items()}


def _check_known(
    path: Path, table: str, keys: Mapping[str, Any], known: Sequence[str], elsewhere: Container[str] = ()
) -> None:
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=_ALIKE)
            hint = f"did you mean {near[0]}?" if near else "keys are options without the dashes; see tpumon --help"
            hint = "another command has it: put it before the first table" if key in elsewhere else hint
            raise UsageError(f"{path}: {table}there is no option {key}; {hint}")


def _values(command: Any, table: Mapping[str, Any]) -> OptionValues:
    values: OptionValues = {}
    for name, option in options_of(command):
        if name in table:
            texts = _texts(table[name])
            values[option.name] = texts if option.multiple else ",".join(texts)
    return values


def _texts(value: object) -> list[str]:
    """A value as it would be typed; several for a list."""
    listed = value if isinstance(value, (list, tuple)) else [value]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in listed]

"""`tpumon config`: the options that are in force, and where each comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from msgspec import Struct

from tpumon.cli.config_file import config_path, options_of, read_config, read_variable, refusal, variable_of
from tpumon.system.console import show
from tpumon.untrusted_text import LONGEST_PATH, one_line

if TYPE_CHECKING:
    from typer.core import TyperGroup

_PASSWORD = re.compile(r"(?<=://)([^/@\s]*):[^/@\s]*@")


class _Setting(Struct, frozen=True, kw_only=True):
    """One option of one command.

    Attributes:
        command: the command's name; empty: `tpumon` itself.
        name: the option without its dashes.
        value: its value as text; several of an option that may be repeated; None: it has none.
        origin: the name of a variable, the path of the file, or "default".
        is_set: whether it is not at its default.
        refused: what the command says of the value, which it does not take; empty: it does.
    """

    command: str
    name: str
    value: str | Sequence[str] | None
    origin: str
    is_set: bool
    refused: str = ""


def run(*, context: typer.Context, group: TyperGroup) -> int:
    """Prints the options as a configuration file, defaults as comments; returns 0.

    Raises:
        UsageError: the configuration file is wrong, or a variable.
    """
    settings = _settings(context, group)
    path = config_path()
    if path is None:
        show("# no configuration file: TPUMON_CONFIG is empty")
    else:
        show(f"# {one_line(str(path), limit=LONGEST_PATH)}{_why_unread(path)}")
    lines = [_line(one) for one in settings]
    width = max(map(len, lines))
    command = ""
    for setting, line in zip(settings, lines, strict=True):
        if setting.command != command:
            command = setting.command
            show(f"\n[{command}]")
        refused = f"; refused: {setting.refused}" if setting.refused else ""
        show(f"{line:{min(width, 50)}}  # {one_line(setting.origin, limit=LONGEST_PATH)}{refused}")
    return 0


def _why_unread(path: Path) -> str:
    """The reason why no command reads the file; empty: they do."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ": there is none"
    except OSError as error:
        return f": cannot be read: {error.strerror}"
    return ""


def _settings(context: typer.Context, group: TyperGroup) -> list[_Setting]:
    """Settings: every option of `tpumon`, and the options of commands that differ from those."""
    config = read_config(group, context.command).values
    settings: list[_Setting] = []
    of_group: dict[str, _Setting] = {}
    for command, its in {"": group, **group.commands}.items():
        for name, option in options_of(its):
            from_variable = read_variable(group, context, its, name, option)
            one = _setting(command, name, option, from_variable, config.get(command, {}).get(option.name))
            same = of_group.get(name)
            differs = same is None or (one.value, one.origin, one.refused) != (same.value, same.origin, same.refused)
            if not command:
                of_group[name] = one
            if not command or (differs and (one.is_set or (same is not None and same.is_set))):
                settings.append(one)
    return settings


def _setting(
    command: str, name: str, option: Any, from_variable: str | Sequence[str] | None, from_file: str | list[str] | None
) -> _Setting:
    value = from_file if from_variable is None else from_variable
    if value is not None:
        origin = str(config_path()) if from_variable is None else variable_of(name)
        refused = refusal(name, option, value)
        return _Setting(command=command, name=name, value=value, origin=origin, is_set=True, refused=refused)
    default = option.default
    text = None if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    return _Setting(command=command, name=name, value=text, origin="default", is_set=False)


def _line(setting: _Setting) -> str:
    """`name = "value"`; a comment if it is a default, or refused."""
    value = setting.value
    text = "" if value is None else _quoted(value) if isinstance(value, str) else f"[{', '.join(map(_quoted, value))}]"
    return f"{'' if setting.is_set and not setting.refused else '# '}{setting.name} = {text}".rstrip()


def _quoted(text: str) -> str:
    """A TOML string, without the password of a URL. JSON's strings are TOML's, too."""
    return json.dumps(_PASSWORD.sub(r"\1:***@", text))

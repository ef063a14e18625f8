"""`tpumon config`: the options that are in force, and where each comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from msgspec import Struct
from msgspec.structs import replace

from tpumon.cli.config_file import config_path, options_of, read_config, read_variable, refusal, variable_of
from tpumon.cli.contradictions import not_obeyed
from tpumon.cli.options import OWN_TABLE, strength
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
        set_by: the name of a variable, the path of the file, or "default".
        is_set: whether it is not at its default.
        strength: of the way in which it is given; -1: it is not.
        unused: why the command does not obey the value: it refuses it, or obeys another option; empty: it does.
    """

    command: str
    name: str
    value: str | Sequence[str] | None
    set_by: str
    is_set: bool
    strength: int = -1
    unused: str = ""


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
        unused = f"; {setting.unused}" if setting.unused else ""
        show(f"{line:{min(width, 50)}}  # {one_line(setting.set_by, limit=LONGEST_PATH)}{unused}")
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
    config = read_config(group, context.command)
    settings: list[_Setting] = []
    of_group: dict[str, _Setting] = {}
    for command, its in {"": group, **group.commands}.items():
        of_command: dict[str, _Setting] = {}
        for name, option in options_of(its):
            from_variable = read_variable(group, context, its, name, option)
            from_file = config.values.get(command, {}).get(option.name)
            one = _setting(command, name, option, from_variable, from_file)
            in_table = from_variable is None and option.name in config.own.get(command, ())
            of_command[option.name] = replace(one, strength=strength(OWN_TABLE)) if in_table else one
        _mark_hidden(of_command)
        of_group = of_group or of_command
        for name, one in of_command.items():
            same = of_group.get(name) if command else None
            differs = same is None or (one.value, one.set_by, one.unused) != (same.value, same.set_by, same.unused)
            if not command or (differs and (one.is_set or (same is not None and same.is_set))):
                settings.append(one)
    return settings


def _mark_hidden(settings: dict[str, _Setting]) -> None:
    """Marks options of a command that it does not obey beside others."""
    given = {name: one.strength for name, one in settings.items() if one.is_set and not one.unused}
    for name, (how, other) in not_obeyed(given).items():
        settings[name] = replace(settings[name], unused=f"{how} beside {settings[other].name}")


def _setting(
    command: str, name: str, option: Any, from_variable: str | Sequence[str] | None, from_file: str | list[str] | None
) -> _Setting:
    value = from_file if from_variable is None else from_variable
    if value is not None:
        is_in_file = from_variable is None
        refused = refusal(name, option, value)
        return _Setting(
            command=command,
            name=name,
            value=value,
            set_by=str(config_path()) if is_in_file else variable_of(name),
            is_set=True,
            strength=strength("DEFAULT_MAP" if is_in_file else "ENVIRONMENT"),
            unused=f"refused: {refused}" if refused else "",
        )
    default = option.default
    text = None if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    return _Setting(command=command, name=name, value=text, set_by="default", is_set=False)


def _line(setting: _Setting) -> str:
    """`name = "value"`; a comment if it is a default, or not obeyed."""
    value = setting.value
    text = "" if value is None else _quoted(value) if isinstance(value, str) else f"[{', '.join(map(_quoted, value))}]"
    return f"{'' if setting.is_set and not setting.unused else '# '}{setting.name} = {text}".rstrip()


def _quoted(text: str) -> str:
    """A TOML string, without the password of a URL. JSON's strings are TOML's, too."""
    return json.dumps(_PASSWORD.sub(r"\1:***@", text))

"""`tpumon config`: the options that are in force, and where each comes from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tpumon.system.console import show
from tpumon.untrusted_text import LONGEST_PATH, one_line

_PASSWORD = re.compile(r"(?<=://)([^/@\s]*):[^/@\s]*@")


class Setting(Struct, frozen=True, kw_only=True):
    """One option of one command.

    Attributes:
        command: the command's name; empty: `tpumon` itself.
        name: the option without its dashes.
        value: its value as text; several of an option that may be repeated; None: it has none.
        origin: the name of a variable, the path of the file, or "default".
        is_set: whether it is not at its default.
    """

    command: str
    name: str
    value: str | Sequence[str] | None
    origin: str
    is_set: bool


class ConfigSettings(Struct, frozen=True, kw_only=True):
    """What to show.

    Attributes:
        path: the configuration file; None: it is switched off.
        settings: the options, those of `tpumon` itself first.
    """

    path: Path | None
    settings: Sequence[Setting]


def run(config: ConfigSettings) -> int:
    """Prints the options as a configuration file, defaults as comments; returns 0."""
    if config.path is None:
        show("# no configuration file: TPUMON_CONFIG is empty")
    else:
        path = one_line(str(config.path), limit=LONGEST_PATH)
        show(f"# {path}{'' if os.access(config.path, os.R_OK) else ': there is none'}")
    lines = [_line(one) for one in config.settings]
    width = max(map(len, lines))
    command = ""
    for setting, line in zip(config.settings, lines, strict=True):
        if setting.command != command:
            command = setting.command
            show(f"\n[{command}]")
        show(f"{line:{min(width, 50)}}  # {one_line(setting.origin, limit=LONGEST_PATH)}")
    return 0


def _line(setting: Setting) -> str:
    """`name = "value"`; a comment if it is a default."""
    value = setting.value
    text = "" if value is None else _quoted(value) if isinstance(value, str) else f"[{', '.join(map(_quoted, value))}]"
    return f"{'' if setting.is_set else '# '}{setting.name} = {text}".rstrip()


def _quoted(text: str) -> str:
    """A TOML string, without the password of a URL. JSON's strings are TOML's, too."""
    return json.dumps(_PASSWORD.sub(r"\1:***@", text))

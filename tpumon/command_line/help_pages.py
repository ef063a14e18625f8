"""How `--help` looks: examples and commands first, then the options in panels.

Plain text: it reads the same in a pipe and on a terminal, and needs no Rich, which takes longer to import than
the rest of the page to write.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from enum import Enum
from typing import Any

from typer.core import TyperCommand, TyperGroup

TARGETS = "Targets"
MEASURE = "What to measure"
OUTPUT = "Output"
APPEARANCE = "Appearance of the live view"
THRESHOLDS = "Thresholds"
_OPTIONS = "Options"
_PANELS = (TARGETS, MEASURE, OUTPUT, APPEARANCE, THRESHOLDS, _OPTIONS)

_WITHOUT_VARIABLE = frozenset({"help", "version"})
_MAX_COLUMN = 30
_EXAMPLES = "Examples:"


class _Page:
    """The parts of a page that commands and the group of all commands share."""

    def collect_usage_pieces(self: Any, _context: Any) -> list[str]:
        arguments = [_metavar(parameter) for parameter in self.params if parameter.param_type_name == "argument"]
        return ["[OPTIONS]", *arguments]

    def format_help_text(self: Any, _context: Any, formatter: Any) -> None:
        for paragraph in inspect.cleandoc(self.help or "").split("\n\n"):
            formatter.write_paragraph()
            if paragraph.startswith(_EXAMPLES):
                formatter.write("".join(f"{line}\n" for line in paragraph.splitlines()))
            else:
                formatter.write(_wrapped(paragraph, formatter.width, "  "))

    def format_options(self: Any, context: Any, formatter: Any) -> None:
        self.write_commands(context, formatter)
        visible = [parameter for parameter in self.get_params(context) if not getattr(parameter, "hidden", False)]
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in visible:
            title = getattr(parameter, "rich_help_panel", None) or _OPTIONS
            if parameter.param_type_name == "argument":
                title = "Arguments"
            panels.setdefault(title, []).append(_row(parameter))
        column = min(max(len(name) for rows in panels.values() for name, _ in rows), _MAX_COLUMN)
        for title in sorted(panels, key=lambda title: _PANELS.index(title) if title in _PANELS else -1):
            write_rows(formatter, title, panels[title], column)
        example = next((one for one in visible if one.name not in _WITHOUT_VARIABLE and _variable(one)), None)
        if example is not None:
            variable = f"Each option has an environment variable, such as {_variable(example)} for {example.opts[0]}."
            formatter.write(f"\n{_wrapped(variable, formatter.width, '')}")

    def write_commands(self, _context: Any, _formatter: Any) -> None:
        """Writes the list of commands; nothing for a command that has none."""


class CommandPage(_Page, TyperCommand):
    """A command whose help is such a page."""


class GroupPage(_Page, TyperGroup):
    """A group of commands whose help is such a page.

    Its own options are not read from the environment or a file while one of its commands runs: what TPUMON_OUTPUT means
    to the command may be an error to the group.
    """

    def collect_usage_pieces(self: Any, context: Any) -> list[str]:
        return [*super().collect_usage_pieces(context), "[COMMAND ...]"]

    def write_commands(self: Any, context: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(context, name)) for name in self.list_commands(context)]
        rows = [(name, inspect.cleandoc(command.help or "").partition("\n")[0]) for name, command in commands]
        write_rows(formatter, "Commands", rows, max(map(len, self.commands)))

    def parse_args(self: Any, context: Any, args: list[str]) -> list[str]:
        _, rest, _ = self.make_parser(context).parse_args(args=list(args))
        config = context.default_map or {}  # a command and an option may have one name, so only one kind is handed on
        context.default_map = config if rest else config.get("")
        variables = [(parameter, parameter.envvar) for parameter in self.params]
        if rest:
            for parameter in self.params:
                parameter.envvar = None
        try:
            remaining: list[str] = super().parse_args(context, args)
        finally:
            for parameter, variable in variables:  # the app is one for the whole process
                parameter.envvar = variable
        return remaining


def write_rows(formatter: Any, title: str, rows: Sequence[tuple[str, str]], column: int) -> None:
    """Writes a panel: names in a column, and what they do beside them."""
    formatter.write(f"\n{title}:\n")
    for name, text in rows:
        start = f"  {name.ljust(column)}  "
        if len(name) > column:
            formatter.write(f"  {name}\n")
            start = " " * (column + 4)
        formatter.write(_wrapped(text, formatter.width, start))


def _wrapped(text: str, width: int, start: str) -> str:
    """Lines that begin with `start`, then with as many blanks. Option names are not broken at their hyphens."""
    wrapped = textwrap.fill(
        text,
        width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return f"{wrapped}\n"


def _row(parameter: Any) -> tuple[str, str]:
    """What to type, and what it does."""
    if parameter.param_type_name == "argument":
        return _metavar(parameter), parameter.help or ""
    names = ", ".join(sorted(parameter.opts, key=len))
    if parameter.secondary_opts:
        names += " / " + ", ".join(parameter.secondary_opts)
    takes_value = not (parameter.is_flag or parameter.count)
    text = f"{_with_outputs(parameter.help or '')}{_default(parameter)}"
    return f"{names} {_metavar(parameter)}" if takes_value else names, text


def _with_outputs(text: str) -> str:
    """Fills in the names of the installed outputs."""
    if "{outputs}" not in text:
        return text
    from tpumon.outputs import output_names

    return text.replace("{outputs}", ", ".join(output_names()))


def _metavar(parameter: Any) -> str:
    """What stands for a value."""
    return str(parameter.metavar or parameter.name.upper())


def _default(parameter: Any) -> str:
    """The default as a sentence; empty where it says nothing, or the help explains it."""
    value = parameter.default
    says_nothing = value is None or isinstance(value, bool) or callable(value) or parameter.name in _WITHOUT_VARIABLE
    return "" if says_nothing else f" Default: {_text(value)}."


def _text(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _variable(parameter: Any) -> str | None:
    variable: str | None = getattr(parameter, "envvar", None)
    return variable

"""The group of all commands: what is read before its options are, and words that are no command."""

import logging
import os
import re
import shutil
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import typer
from typer.core import TyperGroup

from tpumon.cli import completion as completing
from tpumon.cli.config_file import (
    WITHOUT_FILE,
    check_variables,
    config_path,
    misspelled_variables,
    nearest,
    read_config,
    variable_of,
)
from tpumon.cli.legacy import translate
from tpumon.cli.options import OWN_TABLE
from tpumon.cli.values import advice, formats_of
from tpumon.system.console import terminal_is_utf_8
from tpumon.untrusted_text import one_line

_log = logging.getLogger(__name__)

ENVIRONMENT = {"auto_envvar_prefix": "TPUMON"}
"""Settings of each command, as each option's variable is TPUMON_<NAME>, whatever the command."""

_COLUMNS = 80  # with fewer, frames leave too little room for names
_INDENT = 4
_SHOWING = frozenset({"--help", "-h", "--version"})
_FORMS = {"--plain": "text", "--json": "jsonl", "--jsonl": "json"}  # one writes many objects, the other commands one
_MOST_NAMED = 3
_UNEXPECTED = re.compile(r"got unexpected extra arguments?\(?s?\)? \((.*)\)", re.IGNORECASE)
_DASHES = "\N{EN DASH}\N{EM DASH}"  # of which some editors make one from two
_MEANT = {
    **dict.fromkeys(("top", "watch", "monitor", "live"), "for the live view: tpumon"),
    **dict.fromkeys(("status", "check"), "for all workers once: tpumon once"),
    **dict.fromkeys(("capture", "profile"), "to save a profile: tpumon --level 0 --logdir DIR"),
    **dict.fromkeys(("resume", "unpause"), "to end a pause: tpumon pause 0"),
    **dict.fromkeys(("true", "false"), "a switch, such as --gpu, takes no value"),
    "version": "for the version: tpumon --version",
}


class CommandGroup(TyperGroup):
    """`tpumon` and its commands.

    Its own options are not read from the environment or the file if a command follows: what TPUMON_OUTPUT means to the
    command may be an error to the group.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the options before a command, in whatever spelling; for the command, the configuration file.

        Raises:
            UsageError: the file is wrong. It is not read for a page, nor for a program or a pause, which it must not
                hold up.
        """
        if os.environ.get("TPUMON_PORT", "").startswith("tcp://"):
            del os.environ["TPUMON_PORT"]  # Kubernetes sets it in every pod if a service is called tpumon
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
        elif args[1:] == ["help"] and args[0] in {*self.commands} - {"run"} and not os.path.exists("help"):  # noqa: PTH110
            args = [args[0], "--help"]
        translated, notes = translate(args)
        for note in notes:
            _log.warning("%s", note)
        _, rest, _ = self.make_parser(ctx).parse_args(args=list(translated))
        words = translated
        if rest[:1] == ["run"]:  # the others are the program's
            words = [*translated[: -len(rest)], *takewhile(lambda word: word.startswith("-"), rest[1:])]
        shows = not _SHOWING.isdisjoint(words)
        if not (ctx.resilient_parsing or shows):
            for variable, near in misspelled_variables(self, os.environ):
                _log.warning("%s is no variable of tpumon; did you mean %s?", variable, near)
            command = self.commands.get(rest[0], self) if rest else self
            if command.name not in WITHOUT_FILE:
                config = read_config(self, command, translated)
                check_variables(self, ctx, command, translated)
                ctx.meta[OWN_TABLE] = config.own.get(command.name or "", ())
                # A command and an option may have one name.
                ctx.default_map = config.values if rest else config.values.get("")
        if shows and (os.environ.get("TERM") == "dumb" or not terminal_is_utf_8()):
            sys.stdout.reconfigure(encoding="ascii", errors="replace")  # type: ignore[union-attr] # Rich frames by it
        if shows:
            _without_types(self, ctx)
        if shows and shutil.get_terminal_size().columns < _COLUMNS:
            _without_columns(self, ctx)
        if rest or shows:
            ctx.auto_envvar_prefix = None  # also so that the page names no variables of Typer's own options
        return super().parse_args(ctx, translated)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command, and what someone may have meant by a word that is none."""
        hint = "" if args[0] in self.commands or ctx.resilient_parsing else _hint_for(args[0])
        if hint:
            ctx.fail(f"No such command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; an error in how it is typed tells of which command it is."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined] # of a usage error
            raise


def _without_types(group: Any, ctx: Any) -> None:
    """Leaves out of pages of help that a switch is `<bool>`, which looks as if it took a value, and text `<str>`."""
    for each in (group, *group.commands.values()):
        for one in each.get_params(ctx):
            is_text = one.param_type_name == "argument" and not one.type_descriptor.choices
            if is_text or one.type_descriptor.annotation is bool:
                one.display_type_rich = _no_type


def _no_type(*_: object, **__: object) -> str:
    return ""


def _without_columns(group: Any, ctx: Any) -> None:
    """Makes pages of help without columns and frames, in which names would be cut: what is said of each is below it."""

    class Formatter(ctx.formatter_class):  # type: ignore[misc] # the parser's, of whichever version
        def write_dl(self, rows: Any, *_: object, **__: object) -> None:
            super().write_dl(rows, col_max=_INDENT)

    class Context(type(ctx)):  # type: ignore[misc]
        formatter_class = Formatter

    ctx.formatter_class, ctx.terminal_width = Formatter, shutil.get_terminal_size().columns
    for each in (group, *group.commands.values()):
        each.rich_markup_mode, each.context_class = None, Context
        each.help = (each.help or "").replace("\n\nExamples:", "\n\n\b\nExamples:")  # its lines stay as they are
        each.short_help = each.help.partition("\n\n")[0]
        each.epilog = (each.epilog or "").replace("\n", "\n\n").replace("\\[", "[")  # and each line of this one


def _hint_for(word: str) -> str:
    """A guess at what someone meant by a word that is no command; empty without one."""
    if word in _MEANT:
        return _MEANT[word]
    if name := word.lstrip(f"{_DASHES}-") if word.startswith(tuple(_DASHES)) else "":
        return f"to type an option: --{name}"
    if re.match(r"https?://", word):
        return f"to show an exporter: tpumon --from {word}"
    if re.fullmatch(r"(grpc://)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d+(-\d+)?(,.*)?", word):
        return f"to watch a worker: tpumon --service-addr {word}; to show an exporter: tpumon --from {word}"
    if (is_python := word in {"python", "python3"}) or word.endswith(".py"):
        return f"to run a program: tpumon run {'' if is_python else 'python '}{word}"
    if word.endswith(".xplane.pb"):
        return f"to show a profile's figures: tpumon analyze {word}"
    if re.fullmatch(r".*\.jsonl(\.gz)?", word) or os.path.isdir(word):  # noqa: PTH112
        return f"to show recorded samples: tpumon --from {word}"
    return ""


def _hint_for_option(name: str, context: Any) -> str:
    """Words to write instead of an option that a command lacks, or the commands that have it; empty: neither."""
    if name == "--top":
        return "to order the workers: --sort KEY; for the top operations: tpumon report --top N"
    if name == "--config":
        return "TPUMON_CONFIG names the file: TPUMON_CONFIG=FILE tpumon ..."
    names = {one.name for one in context.command.params}
    if name in {"--output", *_FORMS} and "export" in names and "output" not in names:
        return "it prints no samples; to write them: --export NAME=WHERE"
    output = next((one for one in context.command.params if one.name == "output"), None)
    forms = [] if output is None else formats_of(output) or completing.outputs()
    if form := next((one for one in (name.removeprefix("--"), _FORMS.get(name)) if one in forms), ""):
        return f"write --output {form}"
    group = context.find_root().command
    commands = {"tpumon": group} | {f"tpumon {one}": command for one, command in group.commands.items()}
    having = [command for command, its in commands.items() for one in its.params if name in one.opts]
    more = " and others" if len(having) > _MOST_NAMED else ""
    return f"{', '.join(having[:_MOST_NAMED])}{more} {'has' if len(having) == 1 else 'have'} it" if having else ""


def explanation(error: typer.TyperException, arguments: Sequence[str]) -> str:
    """The error in one line, with the option, variable or key of the file, and the page to read.

    Args:
        error: of the parser.
        arguments: of the command line.
    """
    context = getattr(error, "ctx", None)
    path = "tpumon" if context is None else " ".join(filter(None, (context.command_path, context.invoked_subcommand)))
    page = f"(see {path} --help)"
    if context is not None and hasattr(error, "possibilities"):  # it is no option
        wrong = str(getattr(error, "option_name", ""))
        typed = next((one for one in arguments if one.startswith(wrong)), wrong).partition("=")[0]
        if re.fullmatch(r"-[A-Za-z][\w-]+", typed):  # for the parser these are several options of one letter
            wrong = f"-{typed}"
        options = [each for one in context.command.params for each in one.opts if each.startswith("--")]
        if wrong in options:
            return f"no such option: {wrong[1:]}; did you mean {wrong}? {page}"
        if hint := _hint_for_option(wrong, context):
            return f"no such option: {wrong}; {hint}"
        options.append("--help")
        begun = [each for each in options if each.startswith(wrong)] if wrong != "--" else []
        alike = nearest(wrong, options) or nearest(wrong[2:], [each[2:] for each in options]) or ""
        if near := " or ".join(begun[:2]) or alike or "version" * (wrong == "-V"):
            return f"no such option: {wrong}; did you mean --{near.removeprefix('--')}? {page}"
        return f"no such option: {wrong} {page}"
    if not isinstance(error, typer.BadParameter) or context is None or not error.message:
        message = error.format_message().rstrip(".")
        message = _UNEXPECTED.sub(r"unexpected: \1", message)
        return f"{message[:1].lower()}{message[1:]} {page}"
    name = error.param.opts[0] if error.param else str(error.param_hint)
    parameter = next(one for one in context.command.params if name in one.opts)
    source, key = context.get_parameter_source(parameter.name).name, name.removeprefix("--")
    ways = {"ENVIRONMENT": (variable_of(key), "="), "DEFAULT_MAP": (f"{key} in {config_path()}", ": ")}
    where, sign = ways.get(source, (name, " "))
    if error.param is None:  # raised in `tpumon.cli`, the value first
        return f"{where}{sign}{error.message}"
    if isinstance(error.__cause__, ValueError) and (reasons := getattr(error.__cause__, "errors", None)):
        return f"{where}{sign}{one_line(str(reasons()[0]['input']))}: {advice(error.param)}"
    return f"{where}: {error.message.rstrip('.')} {page}"

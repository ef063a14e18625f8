"""Files that are installed beside the program: its manual and completions of shells, of the same source as --help."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from tpumon.cli.app import app  # noqa: E402
from tpumon.cli.process import command_of  # noqa: E402

_SHARE = _ROOT / "share"
_COMPLETIONS = {
    "bash": _SHARE / "bash-completion" / "completions" / "tpumon",
    "fish": _SHARE / "fish" / "vendor_completions.d" / "tpumon.fish",
    "zsh": _SHARE / "zsh" / "site-functions" / "_tpumon",
}
_NO_DEFAULTS: tuple[object, ...] = (None, False, "", [], ())


def _escaped(text: str) -> str:
    """The text as roff takes it, without Typer's own escapes."""
    text = text.replace("\\[", "[").replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in text.splitlines())


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs; examples, which are indented, keep their lines, and a list has a term in each line."""
    for block in re.split(r"\n\s*\n", text.strip()):
        title, _, lines = block.partition("\n")
        if title.endswith(":") and lines.startswith(" "):
            yield f".PP\n{_escaped(title)}\n.PP\n.nf\n{_escaped(lines)}\n.fi\n"
        elif lines and all(": " in line for line in lines.splitlines()):
            rows = (line.split(": ", 1) for line in lines.splitlines())
            yield f".PP\n{_escaped(title)}\n" + "".join(
                f".TP\n.B {_escaped(term)}\n{_escaped(about)}\n" for term, about in rows
            )
        else:
            yield f".PP\n{_escaped(block)}\n"


def _value(option: Any) -> str:
    """What follows the option: nothing after a flag."""
    value = option.metavar or "|".join(map(str, option.type_descriptor.choices or ()))
    return "" if option.is_flag or not value else f" \\fI{_escaped(value)}\\fR"


def _option(option: Any) -> str:
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in (*option.opts, *option.secondary_opts))
    about = option.help
    if option.default not in _NO_DEFAULTS and "Default" not in about:
        about += f" Default: {option.default}."
    return f".TP\n{names}{_value(option)}\n{_escaped(about)}\n"


def _options(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "option" and not one.hidden]


def _command(name: str, command: Any, panels: Mapping[str, list[Any]]) -> str:
    """One command, with its own options; those that `tpumon` has, too, are only named, by panel if it has them all."""
    usage = _escaped(f"tpumon {name} {' '.join(command.collect_usage_pieces(typer.Context(command, info_name=name)))}")
    options = {one.opts[0]: one for one in _options(command)}
    shared: list[str] = []
    for panel, others in panels.items():
        same = [one.opts[0] for one in others if one.opts[0] in options and options[one.opts[0]].help == one.help]
        shared += [f"all below {panel}"] if len(same) == len(others) else same
        options = {opt: one for opt, one in options.items() if opt not in same}
    more = f".PP\n{_escaped('Also, as above: ' + ', '.join(shared))}.\n" if shared else ""
    parts = (*_paragraphs(command.help), *map(_option, options.values()), more, *_paragraphs(command.epilog or ""))
    return f'.SS "{usage}"\n{"".join(parts)}'


def _panels(options: list[Any]) -> dict[str, list[Any]]:
    """Options by the titles that help has above them."""
    panels: dict[str, list[Any]] = {}
    for one in options:
        panels.setdefault(one.rich_help_panel or "Options", []).append(one)
    return panels


def _exit_status() -> str:
    """The table of README.md."""
    text = (_ROOT / "README.md").read_text(encoding="utf-8").partition("## Exit status")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \| (.+) \|$", text, re.MULTILINE)
    return "".join(f".TP\n.B {status}\n{_escaped(about.replace('`', ''))}\n" for status, about in rows)


def manual() -> str:
    """The page that `man tpumon` shows."""
    group: Any = typer.main.get_command(app)
    summary, _, about = group.help.partition("\n")
    panels = _panels(_options(group))
    options = (f".SS {panel}\n{''.join(map(_option, each))}" for panel, each in panels.items())
    commands = (_command(name, one, panels) for name, one in group.commands.items() if not one.hidden)
    return "".join(
        (
            '.\\" Made by scripts/reference_docs.py.\n.TH TPUMON 1 "" tpumon\n',
            ".SH NAME\ntpumon \\- monitor TPU jobs\n",
            ".SH SYNOPSIS\n.B tpumon\n[OPTIONS]\n.br\n.B tpumon\nCOMMAND [OPTIONS] [ARGUMENTS]\n",
            f".SH DESCRIPTION\n{_escaped(summary)}\n{''.join(_paragraphs(about))}",
            f".SH OPTIONS\n{''.join(options)}",
            f".SH COMMANDS\n{''.join(commands)}",
            f".SH EXIT STATUS\n{_exit_status()}",
            f".SH ENVIRONMENT\n{_escaped(group.epilog)}\n",
        )
    )


def _completion(shell: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        command_of(["completion", shell])()
    del os.environ["_TPUMON_COMPLETE"]  # by which the command asks Typer
    # zsh loads the file when it first needs it: it must then also complete.
    first = '[ "$funcstack[1]" != _tpumon ] || _tpumon_completion\n' if shell == "zsh" else ""
    return f"{printed.getvalue().strip()}\n{first}"


def installed_files() -> Mapping[Path, str]:
    """All of these files, as they should be."""
    completions = {path: _completion(shell) for shell, path in _COMPLETIONS.items()}
    return {_SHARE / "man" / "man1" / "tpumon.1": manual(), **completions}

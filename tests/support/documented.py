"""Command lines that pages show, and the real parser of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import typer

from tpumon.cli.app import app
from tpumon.cli.group import ENVIRONMENT

GROUP = typer.main.get_command(app)
_PROGRAMS = ("tpumon", "capture_tpu_profile")
_ENDS = frozenset("|&;<>")
_ACTS = frozenset({"-h", "--help", "--version", "--install-completion", "--show-completion"})  # at once, when parsed
_STANDS_FOR = frozenset({"COMMAND", "..."})


def command_lines(page: str) -> set[str]:
    """Command lines of tpumon in a page's blocks of code, also behind other programs."""
    blocks = [text for _, text in re.findall(r"^( *)```\w*\n(.*?)^\1```", page, re.DOTALL | re.MULTILINE)]
    code = "".join([*blocks, *re.findall(r"(?:^    \S[^\n]*\n)+", _prose(page), re.MULTILINE)])
    lines = [line.strip().partition(" #")[0] for line in code.replace("\\\n", " ").splitlines()]
    return {shlex.join(words) for line in lines for words in _calls(line)}


def command_names(page: str) -> set[str]:
    """Command lines between a page's backticks, of which some lack what is no matter there."""
    spans = (re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", _prose(page)))
    return {shlex.join(words) for span in spans if span.startswith(_PROGRAMS) for words in _calls(span)}


def _prose(page: str) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", page, flags=re.DOTALL | re.MULTILINE)


def _calls(text: str) -> Iterator[list[str]]:
    """The words of each call of tpumon in a line of a shell; none in a line that is output."""
    if not any(f"{program} " in text for program in _PROGRAMS):
        return
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote is open: no line of a shell
        return
    starts = [at for at, word in enumerate(words) if word in _PROGRAMS and _begins_a_call(words[:at])]
    for start in starts:
        rest = words[start:]
        yield rest[: next((at for at, word in enumerate(rest) if _ENDS.issuperset(word)), len(rest))]


def _begins_a_call(before: list[str]) -> bool:
    """True at the begin of a line, and behind an operator, a variable, `kubectl exec ... --` and `uvx --from DIR`."""
    if not before:
        return True
    last = before[-1]
    return last == "--" or _ENDS.issuperset(last) or re.match(r"[A-Z_]+=", last) is not None or before[0] == "uvx"


def parse(line: str) -> None:
    """Parses a command line, and runs nothing.

    Raises:
        TyperException: it is wrong, or lacks something.
    """
    words = [word for word in shlex.split(line)[1:] if word not in _ACTS]
    if not _STANDS_FOR.isdisjoint(words):
        return
    context = GROUP.make_context("tpumon", list(words), **ENVIRONMENT)
    rest = [*context._protected_args, *context.args]
    if rest:
        name, command, arguments = GROUP.resolve_command(context, rest)
        command.make_context(name, arguments, parent=context)

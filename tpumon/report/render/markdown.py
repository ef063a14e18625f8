"""Sections as Markdown, for a ticket or a comment; graphs and heat maps stand in code blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tpumon.report.blocks import Block, Facts, Lines, Page, Table
from tpumon.report.render.text import picture

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")
_PICTURE_WIDTH = 100


def render(pages: Iterable[Page]) -> str:
    """All sections, one below the other."""
    parts: list[str] = []
    for page in pages:
        parts.append(f"# {_safe(page.title)}")
        parts += [_block(block) for block in page.blocks]
    return "\n\n".join(parts)


def _safe(text: str) -> str:
    """Text that stays what it is; nothing in it is Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;"))


def _block(block: Block) -> str:
    title = f"## {_safe(block.title)}\n\n"
    match block:
        case Table():
            return title + _table(block)
        case Facts():
            return title + "\n".join(f"- {_safe(label)}: {_safe(words)}" for label, words in block.rows)
        case Lines():
            return title + "\n".join(f"- {_safe(line)}" for line in block.lines)
    lines = [line.removeprefix("  ").rstrip() for line in picture(block, _PICTURE_WIDTH)]
    # A name may hold anything but a line's end; a fence must not end early.
    return title + "\n".join(["````text", *(line.replace("`", "'") for line in lines), "````"])


def _table(table: Table) -> str:
    rows = ["| " + " | ".join(_safe(column.title) for column in table.columns) + " |"]
    rows.append("|" + "|".join(" --- " if column.text else " ---: " for column in table.columns) + "|")
    rows += ["| " + " | ".join(_safe(cell.text) for cell in row) + " |" for row in table.rows]
    return "\n".join(rows) + (f"\n\n({_safe(table.note)})" if table.note else "")

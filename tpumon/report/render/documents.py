"""Sections as documents: one HTML page that loads nothing else, or Markdown for a ticket or a comment."""

from __future__ import annotations

import re
from collections.abc import Sequence

import jinja2

from tpumon import __version__
from tpumon.report.blocks import HeatMap, SectionPage, StackedGraph
from tpumon.report.render.plain_text import picture
from tpumon.report.render.svg import HEIGHT, WIDTH, draw, draw_heat

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~])")
_PICTURE_WIDTH = 100


def html(pages: Sequence[SectionPage], title: str) -> str:
    """All sections on one page with this title."""
    shown = {"draw": draw, "draw_heat": draw_heat, "width": WIDTH, "height": HEIGHT}
    return _template("report.html.j2", autoescape=True).render(pages=pages, title=title, version=__version__, **shown)


def markdown(pages: Sequence[SectionPage]) -> str:
    """All sections, one below the other."""
    return _template("report.md.j2", autoescape=False).render(pages=pages).rstrip()


def _template(name: str, *, autoescape: bool) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tpumon.report", "render"),
        autoescape=autoescape,  # noqa: S701 - Markdown has an escape of its own
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["block"] = lambda value, kind: type(value).__name__ == kind
    environment.filters["markdown"] = _escaped
    environment.filters["picture"] = _picture
    return environment.get_template(name)


def _escaped(text: str) -> str:
    """Text in which nothing is Markdown or HTML."""
    return _MARKDOWN.sub(r"\\\1", text.replace("&", "&amp;"))


def _picture(block: StackedGraph | HeatMap) -> list[str]:
    """Lines for a code block. A name may hold anything but a line's end; the fence must not end early."""
    lines = picture(block, _PICTURE_WIDTH)
    return [line.removeprefix("  ").rstrip().replace("`", "'") for line in lines]

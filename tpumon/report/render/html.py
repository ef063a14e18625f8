"""Sections as one HTML page that needs nothing else: no request, no other file. Its look is in `page.html.j2`."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from tpumon import __version__
from tpumon.report.blocks import Page
from tpumon.report.render.svg import HEIGHT, WIDTH, draw, draw_heat


def render(pages: Sequence[Page], title: str) -> str:
    """All sections on one page.

    Args:
        pages: the sections.
        title: of the page: what it is a report of.
    """
    environment = Environment(
        loader=PackageLoader("tpumon.report", "render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["block"] = lambda value, kind: type(value).__name__ == kind
    template = environment.get_template("page.html.j2")
    return template.render(
        pages=pages, title=title, version=__version__, draw=draw, draw_heat=draw_heat, width=WIDTH, height=HEIGHT
    )

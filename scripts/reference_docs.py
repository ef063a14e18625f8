"""Fills the tables and remedies of the pages in docs/ and of the runbooks from the tables in the code.

    .venv/bin/python scripts/reference_docs.py [--check]

A line `<!-- table: NAME -->` says that the table after it is made here; so is each line of a page that begins with
`- **Do:**` under the heading of a finding, and with `- **tpumon says:**` in the runbook of its alert. With `--check`
nothing is written, and the exit status is 1 if a page is out of date.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from grafana.alerting import ALERTED  # noqa: E402
from scripts.reference_types import figure_fields, options, sample_fields  # noqa: E402
from tpumon.analysis.findings import RULES  # noqa: E402
from tpumon.model.figure_table import FIGURES, Figure  # noqa: E402
from tpumon.outputs.metrics import (  # noqa: E402
    EXPORTER_METRICS,
    FINDING_METRICS,
    HISTOGRAMS,
    SAMPLE_METRICS,
    TARGET_METRICS,
    Metric,
)
from tpumon.simulator.scenario.fault_table import PARAMETERS, listed  # noqa: E402

_WIDTH = 120


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    escaped = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    lines = [" | ".join(titles), " | ".join("---" for _ in titles), *escaped]
    return "".join(f"| {line} |\n" for line in lines)


def _code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def _metrics(*metrics: Metric) -> str:
    rows = [(f"`{each.name}`", each.kind, _code(each.labels), each.help) for each in metrics]
    return _table(("name", "type", "labels", "meaning"), rows)


def _figure(figure: Figure) -> Sequence[str]:
    metric = "" if figure.metric is None else f"`{figure.metric}`"
    return _code(figure.fields), metric, str(figure.level), figure.source, figure.about


def _findings() -> str:
    alerts = {found.finding: f"[{found.alert}](../grafana/runbooks/{found.alert}.md)" for found in ALERTED}
    return _table(
        ("finding", "severity", "alert"),
        (
            (f"[{each.finding}](#{each.finding})", _code(each.severities), alerts.get(each.finding, ""))
            for each in RULES
        ),
    )


def _by_panel(panels: Mapping[str, Sequence[Sequence[str]]]) -> Iterable[Sequence[str]]:
    for panel, rows in panels.items():
        yield f"**{panel}**", ""
        yield from rows


TABLES: Mapping[str, Callable[[], str]] = {
    "metrics of samples": lambda: _metrics(*SAMPLE_METRICS, *HISTOGRAMS),
    "metrics of findings": lambda: _metrics(*FINDING_METRICS),
    "metrics of workers": lambda: _metrics(*TARGET_METRICS),
    "metrics of the exporter": lambda: _metrics(*EXPORTER_METRICS),
    "figures": lambda: _table(("field", "metric", "level", "from", "meaning"), map(_figure, FIGURES)),
    "findings": _findings,
    "fields of a sample": lambda: _table(("field", "meaning"), sample_fields()),
    "figures of a sample": lambda: _table(("field", "meaning"), figure_fields()),
    "options": lambda: _table(("option", "meaning"), _by_panel(options())),
    "scenarios": lambda: _table(
        ("name", "what happens", "settings"),
        (
            (f"`{one.name}`", one.about, "; ".join(each.replace("From", "from") for each in one.settings))
            for one in listed()
        ),
    ),
    "parameters of faults": lambda: _table(
        ("parameter", "meaning", "from", "to"),
        ((f"`{name}`", each.about, f"{each.least:g}", f"{each.most:.9g}") for name, each in PARAMETERS.items()),
    ),
}


def _bullet(mark: str, remedy: str) -> str:
    return "\n".join(
        textwrap.wrap(
            f"- **{mark}** {remedy}.",
            _WIDTH,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def _with_remedy(text: str, mark: str, remedy: str, where: str) -> str:
    """The text with the one bullet that begins with this mark made anew."""
    bullet = _bullet(mark, remedy)
    text, count = re.subn(rf"^- \*\*{re.escape(mark)}\*\*.*(?:\n  .*)*", lambda _: bullet, text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"{where}: there must be one line that begins with `- **{mark}**`")
    return text


def _of_findings(text: str) -> str:
    """The page of findings, with the remedy of each under its heading."""
    for rule in RULES:
        before, heading, after = text.partition(f"\n### {rule.finding}\n")
        section, border, rest = after.partition("\n#")
        text = (
            before + heading + _with_remedy(section, "Do:", rule.remedy, f"findings.md#{rule.finding}") + border + rest
        )
    return text


def pages() -> Mapping[Path, str]:
    """All pages, as they should be."""
    paths = sorted((_ROOT / "docs").glob("*.md"))
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    for path, text in texts.items():
        texts[path] = re.sub(
            r"^<!-- table: (.+) -->\n\n(?:\|.*\n)*",
            lambda match: f"<!-- table: {match[1]} -->\n\n{TABLES[match[1]]()}",
            text,
            flags=re.MULTILINE,
        )
    findings = _ROOT / "docs" / "findings.md"
    texts[findings] = _of_findings(texts[findings])
    remedies = {rule.finding: rule.remedy for rule in RULES}
    for found in ALERTED:
        path = _ROOT / "grafana" / "runbooks" / f"{found.alert}.md"
        text = path.read_text(encoding="utf-8")
        texts[path] = _with_remedy(text, "tpumon says:", remedies[found.finding], path.name)
    return texts


def main() -> None:
    """Runs the command."""
    old = {path: text for path, text in pages().items() if path.read_text(encoding="utf-8") != text}
    if "--check" in sys.argv[1:]:
        sys.exit("".join(f"{path.relative_to(_ROOT)} is out of date\n" for path in old))
    for path, text in old.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Makes the tables and remedies of the pages in docs/ and of the runbooks from the code, and the files in share/.

    .venv/bin/python scripts/reference_docs.py [--check]

A line `<!-- table: NAME -->` says that the table after it is made here. So is the remedy of each finding: a line that
begins with `- **tpumon says:**` in the runbook of its alert, or, if it has none, with `- **Do:**` on the page of
findings. With `--check` nothing is written, and the exit status is 1 if a page is out of date.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import get_args

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from grafana.alerting import ALERTED, FindingAlert  # noqa: E402
from scripts.installed_files import installed_files  # noqa: E402
from scripts.reference_types import figure_fields, sample_fields  # noqa: E402
from tpumon.analysis.findings import RULES  # noqa: E402
from tpumon.model import JobKindName  # noqa: E402
from tpumon.model.figure_spec import FigureSpec  # noqa: E402
from tpumon.model.figure_table import FIGURES  # noqa: E402
from tpumon.outputs.metrics import (  # noqa: E402
    EXPORTER_METRICS,
    FINDING_METRICS,
    HISTOGRAMS,
    SAMPLE_METRICS,
    TARGET_METRICS,
    Metric,
)
from tpumon.outputs.metrics.runtime_families import (  # noqa: E402
    RUNTIME_COUNTERS,
    RUNTIME_GAUGES,
    RUNTIME_HISTOGRAMS,
    SOURCE,
)
from tpumon.simulator.scenario.fault_table import PARAMETERS  # noqa: E402

_WIDTH = 120


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    escaped = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    lines = [" | ".join(titles), " | ".join("---" for _ in titles), *escaped]
    return "".join(f"| {line} |\n" for line in lines)


def _code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def _metrics(*metrics: Metric) -> str:
    return _table(("metric", "meaning"), ((_name(each), _meaning(each)) for each in metrics))


def _name(metric: Metric) -> str:
    """Its name with its own labels, as Prometheus writes them; gauges and `_total` say by themselves what they are."""
    labels = ",".join(metric.labels)
    return f"`{metric.name}{labels and f'{{{labels}}}'}`{' (histogram)' if metric.kind == 'histogram' else ''}"


def _meaning(metric: Metric) -> str:
    """The figure that it shows, which has its own page; otherwise its help."""
    shown = {figure.help: f"`{figure.fields[0]}`" for figure in FIGURES}
    return shown.get(metric.help, metric.help)


def _runtime_metrics(*metrics: Metric) -> str:
    rows = (
        (each, each.help.replace(", since the job started", "").removesuffix(".").split(SOURCE)) for each in metrics
    )
    return _table(
        ("metric", "meaning", "in the service"),
        ((_name(each), about.strip(), f"`{name.strip()}`") for each, (about, name) in rows),
    )


def _figure(figure: FigureSpec) -> Sequence[str]:
    return _code(figure.fields), str(figure.level), figure.source, figure.about


def _findings() -> str:
    return _table(
        ("finding", "severity"),
        ((f"[{each.finding}](#{each.finding})", _code(each.severities)) for each in RULES),
    )


def _kinds_of_job() -> str:
    """Kinds of job for which the same findings hold, in one row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for kind in get_args(JobKindName):
        not_judged = _code(rule.finding for rule in RULES if kind in rule.not_for)
        rows.setdefault((not_judged, _code(rule.finding for rule in RULES if kind in rule.info_for)), []).append(kind)
    return _table(("kind", "not judged", "`info` at most"), ((_code(kinds), *row) for row, kinds in rows.items()))


def _runbook(found: FindingAlert) -> str:
    return f"[{found.alert}](../grafana/runbooks/{found.alert}.md)"


TABLES: Mapping[str, Callable[[], str]] = {
    "metrics of figures": lambda: _metrics(
        *(each for each in (*SAMPLE_METRICS, *HISTOGRAMS) if SOURCE not in each.help)
    ),
    "metrics of the runtime": lambda: _runtime_metrics(*RUNTIME_GAUGES, *RUNTIME_COUNTERS, *RUNTIME_HISTOGRAMS),
    "metrics of findings": lambda: _metrics(*FINDING_METRICS),
    "metrics of workers": lambda: _metrics(*TARGET_METRICS),
    "metrics of the exporter": lambda: _metrics(*EXPORTER_METRICS),
    "figures": lambda: _table(("field", "level", "from", "meaning"), map(_figure, FIGURES)),
    "findings": _findings,
    "kinds of job": _kinds_of_job,
    "fields of a sample": lambda: _table(("field", "meaning"), sample_fields()),
    "figures of a sample": lambda: _table(("field", "meaning"), figure_fields()),
    "parameters of faults": lambda: _table(
        ("parameter", "meaning"), ((f"`{name}`", each.about) for name, each in PARAMETERS.items())
    ),
}


def _with_remedy(text: str, mark: str, remedy: str, where: str) -> str:
    """The text with the one remedy in it made anew."""
    bullet = "\n".join(
        textwrap.wrap(
            f"- **{mark}** {remedy}.",
            _WIDTH,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
    text, count = re.subn(rf"^- \*\*{mark}\*\*.*(?:\n  .*)*", lambda _: bullet, text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{where}: it takes a section with one line that begins with `- **{mark}**`")
    return text


def _of_findings(text: str) -> str:
    """The page of findings, with the remedy of each under its heading, or where it is."""
    runbooks = {found.finding: f"see {_runbook(found)}" for found in ALERTED}
    for rule in RULES:
        before, heading, after = text.partition(f"\n### {rule.finding}\n")
        section, border, rest = after.partition("\n#")
        remedy = runbooks.get(rule.finding, rule.remedy)
        text = before + heading + _with_remedy(section, "Do:", remedy, f"findings.md#{rule.finding}") + border + rest
    return text


def pages() -> Mapping[Path, str]:
    """All pages, as they should be."""
    paths = sorted((_ROOT / "docs").glob("*.md"))
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    for path, text in texts.items():
        texts[path] = (
            re.sub(
                r"^<!-- table: (.+) -->\n\n(?:\|.*\n)*\n?",
                lambda match: f"<!-- table: {match[1]} -->\n\n{TABLES[match[1]]()}\n",
                text,
                flags=re.MULTILINE,
            ).rstrip("\n")
            + "\n"
        )
    findings = _ROOT / "docs" / "findings.md"
    texts[findings] = _of_findings(texts[findings])
    remedies = {rule.finding: rule.remedy for rule in RULES}
    for found in ALERTED:
        path = _ROOT / "grafana" / "runbooks" / f"{found.alert}.md"
        text = path.read_text(encoding="utf-8")
        texts[path] = _with_remedy(text, "tpumon says:", remedies[found.finding], path.name)
    return {**texts, **installed_files()}


def main() -> None:
    """Runs the command."""
    made = pages().items()
    old = {path: text for path, text in made if not path.exists() or path.read_text(encoding="utf-8") != text}
    if "--check" in sys.argv[1:]:
        sys.exit("".join(f"{path.relative_to(_ROOT)} is out of date\n" for path in old) or 0)
    for path, text in old.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

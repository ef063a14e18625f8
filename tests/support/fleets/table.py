"""The table: what the product says of fleets, beside what is true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, get_args

from support.fleets.courses import BEGIN_S, Expected, Fleet, Truth
from tpumon.analysis import Analysis, FleetStatus
from tpumon.model import SEVERITY_LEVELS, FindingId, Workers

Result = Literal["true", "missed", "false", "wrong worker", "not judged", "quiet", "open"]


@dataclass(frozen=True)
class Row:
    """One finding in one fleet.

    Attributes:
        result: `true`: there and expected, of these workers; `missed`; `false`: there and not expected; `wrong worker`:
            it names one that has it not; `not judged`: the product says so; `quiet`: rightly absent; `open`: the
            definition leaves it open.
        since_error_s: how much later than it began it says that it began.
        detail: what was expected and found, for people.
    """

    fleet: str
    kind: str
    finding: str
    result: Result
    since_error_s: float | None = None
    detail: str = ""


@dataclass
class Seen:
    """What was said of a fleet over its course."""

    first_s: dict[str, float] = field(default_factory=dict)
    named: dict[str, set[str]] = field(default_factory=dict)
    worst: dict[str, str] = field(default_factory=dict)
    last: FleetStatus | None = None


def watched(fleet: Fleet) -> Seen:
    """Gives the samples of a fleet to the analysis, and notes what it says after each round."""
    now_s = [BEGIN_S]
    analysis = Analysis(monotonic_s=lambda: now_s[0])
    analysis.add(Workers(targets=fleet.targets))
    seen = Seen()
    for number in range(fleet.rounds):
        for sample in fleet.samples(number):
            now_s[0] = sample.time_unix_s + sample.took_s
            analysis.add(sample)
        now_s[0] = BEGIN_S + fleet.interval_s * (number + 1)
        seen.last = analysis.status(now_s[0])
        for finding in seen.last.findings:
            name = finding.finding
            seen.first_s.setdefault(name, now_s[0] - BEGIN_S)
            seen.named.setdefault(name, set()).update(finding.workers)
            if SEVERITY_LEVELS[finding.severity] > SEVERITY_LEVELS[seen.worst.get(name, "ok")]:
                seen.worst[name] = finding.severity
    return seen


def rows_of(fleet: Fleet) -> list[Row]:
    """A row for each finding."""
    seen, truth = watched(fleet), fleet.truth()
    return [_row(fleet, truth, seen, finding) for finding in get_args(FindingId)]


def _row(fleet: Fleet, truth: Truth, seen: Seen, finding: str) -> Row:
    assert seen.last is not None
    result, detail, since_error_s = _result(truth, seen, finding, truth.must.get(finding))
    return Row(fleet.name, fleet.kind, finding, result, since_error_s, detail)


def _result(truth: Truth, seen: Seen, finding: str, expected: Expected | None) -> tuple[Result, str, float | None]:
    assert seen.last is not None
    at_most = truth.at_most.get(finding)
    if at_most is not None and SEVERITY_LEVELS[seen.worst.get(finding, "ok")] > SEVERITY_LEVELS[at_most]:
        return "false", f"{seen.worst[finding]}, at most {at_most}", None
    if expected is None:
        return _unexpected(truth, seen, finding)
    present = [each for each in seen.last.findings if each.finding == finding]
    named = {worker for each in present for worker in each.workers}
    if expected.workers is not None and (wrong := seen.named.get(finding, set()) - expected.workers):
        return "wrong worker", f"{_few(wrong)} for {_few(expected.workers)}", None
    wanted = expected.workers
    if not present or (wanted is not None and not wanted <= named):
        reasons = _reasons(seen.last, finding)
        if reasons and not present:
            return "missed", f"not judged: {reasons}", None
        return "missed", f"of {_few(wanted or set())}; first at {seen.first_s.get(finding)}; {_others(seen)}", None
    severity = max((each.severity for each in present), key=SEVERITY_LEVELS.__getitem__)
    if severity not in expected.severities:
        return "false" if SEVERITY_LEVELS[severity] > 1 else "missed", f"severity {severity}", None
    since = [each.since_unix_s for each in present if each.since_unix_s is not None]
    if expected.since_s is None or not since:
        return "true", "", None
    return "true", "", min(since) - BEGIN_S - expected.since_s


def _unexpected(truth: Truth, seen: Seen, finding: str) -> tuple[Result, str, float | None]:
    assert seen.last is not None
    if wrong := seen.named.get(finding, set()) - truth.only.get(finding, frozenset(seen.named.get(finding, ()))):
        return "wrong worker", f"{_few(wrong)}, at most {_few(truth.only[finding])}", None
    if finding in truth.may or finding in truth.only or finding in truth.at_most:
        return "open", "", None
    if finding in seen.named:
        return "false", f"{seen.worst[finding]} of {_few(seen.named[finding])} at {seen.first_s[finding]:.0f} s", None
    return ("not judged", reasons, None) if (reasons := _reasons(seen.last, finding)) else ("quiet", "", None)


def _reasons(status: FleetStatus, finding: str) -> str:
    return "; ".join(each.reason for each in status.not_judged() if each.finding == finding)


def _others(seen: Seen) -> str:
    assert seen.last is not None
    said = ", ".join(f"{one.finding} of {_few(set(one.workers))}" for one in seen.last.findings)
    return f"instead: {said or 'ok'}"


def _few(workers: Iterable[str]) -> str:
    names = sorted(workers, key=lambda name: (len(name), name))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") or "the job"


def markdown(rows: Sequence[Row]) -> str:
    """The table, finding by finding, and why what was not judged was not."""
    lines = [
        "| finding | expected | true | missed | wrong worker | not judged | absent, rightly | false | error of since |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    reasons = []
    for finding in get_args(FindingId):
        mine = [row for row in rows if row.finding == finding]
        counts = Counter(row.result for row in mine)
        errors = [row.since_error_s for row in mine if row.since_error_s is not None]
        since = f"{median(errors):+.0f} s ({min(errors):+.0f} to {max(errors):+.0f})" if errors else ""
        expected = sum(counts[each] for each in ("true", "missed", "wrong worker"))
        cells = [expected, counts["true"], counts["missed"], counts["wrong worker"], counts["not judged"]]
        cells += [counts["quiet"], counts["false"]]
        lines.append(f"| {finding} | {' | '.join(map(str, cells))} | {since} |")
        why = Counter(row.detail for row in mine if row.result == "not judged")
        reasons += [f"- {finding}: {reason} ({number} fleets)" for reason, number in why.most_common(4)]
    return "\n".join([*lines, "", "Not judged:", "", *reasons])


def wrong(rows: Sequence[Row]) -> list[Row]:
    """Rows in which the product was not right."""
    return [row for row in rows if row.result in {"missed", "false", "wrong worker"}]


def ratios(rows: Sequence[Row], finding: str) -> tuple[float, float]:
    """Shares of the expected that were missed, and of the not expected that were there, where it was judged."""
    counts = Counter(row.result for row in rows if row.finding == finding)
    expected, others = counts["true"] + counts["missed"] + counts["wrong worker"], counts["quiet"] + counts["false"]
    return counts["missed"] / max(expected, 1), counts["false"] / max(others, 1)

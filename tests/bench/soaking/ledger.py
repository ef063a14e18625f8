"""Compares every exported figure with what the job said."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Raw = Mapping[str, Any]

_EXACT = 1e-9  # relative: the same double but for a division
_TRACED = 2e-6  # relative: a trace counts in picoseconds
_RUNTIME_ANSWERS = 4  # that may still be shown: they are read every 15 s
_REMEMBERED_S = 120.0
_SLACK_S = 10.0  # of a busy machine
_MOST_SHOWN = 10
_SERIES = re.compile(r'^(tpu_\w+)\{worker="([^"]*)"(?:,tpu_(?:job|slice)="[^"]*")*\} (\S+)$', re.MULTILINE)
_TOTAL = re.compile(r'^tpumon_sample(?:s|_errors)_total\{worker="([^"]*)"[^}]*\} (\S+)$', re.MULTILINE)
_FIGURE_OF: Mapping[str, Callable[[Raw], float | None]] = {
    "tpu_mxu_utilization_ratio": lambda raw: raw["mxu_utilization_ratio"],
    "tpu_idle_ratio": lambda raw: raw["idle_ratio"],
    "tpu_step_time_seconds": lambda raw: (raw["step_time_s"] or {}).get("avg"),
    "tpu_step_time_max_seconds": lambda raw: (raw["step_time_s"] or {}).get("max"),
    "tpu_infeed_ratio": lambda raw: (raw["infeed_ratio"] or {}).get("avg"),
}


class Ledger:
    """What the job said, what was exported, and what of it is false."""

    def __init__(self) -> None:
        self._said: defaultdict[tuple[str, str], deque[Raw]] = defaultdict(deque)
        self._samples: defaultdict[str, deque[tuple[float, Raw]]] = defaultdict(lambda: deque(maxlen=200))
        self.counts: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        """Samples by worker."""
        self.reasons: Counter[str] = Counter()

    def said(self, told: Raw) -> None:
        """Takes what the job told about an answer."""
        said = self._said[told["address"], told["kind"]]
        said.append(told)
        while said[0]["at_s"] < told["at_s"] - _REMEMBERED_S and len(said) > _RUNTIME_ANSWERS:
            said.popleft()

    def sample(self, read_s: float, raw: Raw) -> None:
        """Takes a sample, to be compared from now on with the page of metrics."""
        self._samples[raw["worker"]].append((read_s, raw))
        self.taken[raw["worker"]] += 1

    def printed(self, worker: str, until_s: float) -> int:
        """How many samples of a worker had been read at that moment of the last minute."""
        return self.taken[worker] - sum(read_s > until_s for read_s, _ in self._samples[worker])

    def check_sample(self, raw: Raw) -> None:
        """Compares a sample with what the job said; call it when the job's words have surely arrived."""
        self.counts["samples"] += 1
        for error in raw["errors"]:
            self.reasons[error["reason"]] += 1
            if error["message"].startswith("a bug in tpumon"):
                self._false(raw, error["message"])
        for value in _numbers(raw):
            if not math.isfinite(value) or value < 0:
                self._false(raw, f"an impossible number: {value}")
        suspects = [text for text in _texts(raw) if not text.isprintable()]
        if any(unicodedata.category(char) in {"Cc", "Cf"} for text in suspects for char in text):
            self._false(raw, "control characters")
        if raw["source"] in {"monitor", "trace"}:
            self._check_figures(raw)
        for name in ("hbm_used", "hbm_total"):
            if (value := raw[f"{name}_bytes"]) is not None:
                answers = list(self._said[raw["address"], name])[-_RUNTIME_ANSWERS:]
                self._judge(raw, name, [one["damaged"] or one["value"] == value for one in answers])

    def _check_figures(self, raw: Raw) -> None:
        said = self._said[raw["address"], raw["source"]]
        # They are of a shorter span, or of some cores only, and say so.
        if raw["truncated"] is not None or "missing-cores" in raw["warning_codes"]:
            self.counts["of parts of traces"] += 1
            return
        exact = next((place for place, one in enumerate(said) if _agrees(one, raw)), None)
        if exact is None:
            exact = next((place for place, one in enumerate(said) if one["damaged"]), None)
            self.counts["from damaged answers"] += exact is not None
        if exact is None:
            near = min(said, key=lambda one: abs(one["mxu"] - (raw["mxu_utilization_ratio"] or 0)), default=None)
            self._false(raw, f"not what the job said, nearest {near}")
            return
        self.counts["figures as said"] += 1
        for _ in range(exact + 1):  # each answer is exported once
            said.popleft()

    def _judge(self, raw: Raw, name: str, agrees: Sequence[bool]) -> None:
        self.counts[f"{name} as said"] += any(agrees)
        if not any(agrees):
            self._false(raw, f"{name} is not what the job said")

    def check_page(self, scraped_s: float, page: str, workers: Sequence[str]) -> None:
        """Compares a page of metrics with the samples; call it when those of that moment have surely arrived."""
        shown: dict[str, dict[str, float]] = defaultdict(dict)
        for name, worker, value in _SERIES.findall(page):
            if name in _FIGURE_OF:
                shown[worker][name] = float(value)
        self.counts["pages"] += 1
        for worker in workers:
            self._check_series(scraped_s, worker, shown.get(worker, {}))

    def check_totals(self, scraped_s: float, page: str, workers: Sequence[str]) -> None:
        """Compares the counts of answers and errors on a page with the samples; call it as `check_page`."""
        totals: Counter[str] = Counter()
        for worker, value in _TOTAL.findall(page):
            totals[worker] += float(value)
        for worker in workers:
            least, most = (self.printed(worker, scraped_s + slack_s) for slack_s in (-_SLACK_S, _SLACK_S))
            if not least <= totals[worker] <= most:
                self._false({"worker": worker}, f"{totals[worker]} queries are counted, {least} to {most} printed")

    def _check_series(self, scraped_s: float, worker: str, shown: Mapping[str, float]) -> None:
        samples = self._samples[worker]
        near = [raw for read_s, raw in samples if scraped_s - 2 < read_s < scraped_s + 2]
        before = [(read_s, raw) for read_s, raw in samples if read_s <= scraped_s - 2]
        if before and before[-1][1]["source"] is None and not any(raw["source"] for raw in near) and shown:
            self._false(before[-1][1], f"its query failed, and the page of metrics goes on showing {sorted(shown)}")
        for name, value in shown.items():
            read_s = max(
                (read_s for read_s, raw in samples if _FIGURE_OF[name](raw) == value and read_s < scraped_s + 2),
                default=None,
            )
            raw = next((raw for at_s, raw in samples if at_s == read_s), None)
            if read_s is None or raw is None:
                self._false({"worker": worker}, f"{name} {value} of the page of metrics is in no sample")
            elif scraped_s - read_s > 2.5 * raw["interval_s"] + raw["window_s"] + _SLACK_S:
                self._false(raw, f"{name} is {scraped_s - read_s:.0f} s old, its interval {raw['interval_s']:.1f} s")
            else:
                self.counts["series as sampled"] += 1

    def _false(self, raw: Raw, why: str) -> None:
        self.counts["false"] += 1
        if self.counts["false"] <= _MOST_SHOWN:
            names = (
                "source",
                "mxu_utilization_ratio",
                "idle_ratio",
                "step_time_s",
                "infeed_ratio",
                "absent",
                "warnings",
            )
            figures = {name: raw.get(name) for name in names}
            print(f"FALSE: {raw['worker']}: {why} {figures}", flush=True)


def _agrees(said: Raw, raw: Raw) -> bool:
    """Whether a sample shows what an answer said."""
    tolerance = _TRACED if raw["source"] == "trace" else _EXACT
    pairs = [(said["mxu"], raw["mxu_utilization_ratio"]), (said["idle"], raw["idle_ratio"])]
    for spread, shown in ((said["step_s"], raw["step_time_s"]), (said["infeed"], raw["infeed_ratio"])):
        pairs += zip(
            spread or (None,), [shown[end] for end in ("avg", "min", "max")] if shown else (None,), strict=False
        )
    return all(_near(one, shown, tolerance) for one, shown in pairs)


def _near(said: float | None, shown: float | None, tolerance: float) -> bool:
    if said is None or shown is None:
        return said is shown
    return math.isclose(said, shown, rel_tol=tolerance, abs_tol=tolerance)


def _numbers(raw: object) -> Iterator[float]:
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        yield raw
    elif isinstance(raw, (dict, list)):
        for item in raw.values() if isinstance(raw, dict) else raw:
            yield from _numbers(item)


def _texts(raw: object) -> Iterator[str]:
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, (dict, list)):
        for item in raw.values() if isinstance(raw, dict) else raw:
            yield from _texts(item)

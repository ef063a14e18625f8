"""memory-bound, compute-bound, low-mxu: what the limit is of a device that computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tpumon.analysis.findings.rule import Member, Observation, Rule
from tpumon.analysis.findings.rules.device.shares import op_time_ratio
from tpumon.model import Confidence, Evidence, FindingDetail
from tpumon.model.figure_spec import FigureSpec
from tpumon.model.figure_table import HBM_BANDWIDTH, MXU

LOW_RATIO, HIGH_RATIO = 0.50, 0.70
"""XProf's limits of utilization: below the first it is low, above the second high."""

_LITTLE_MXU_RATIO = 0.20
_BUSY_RATIO = 0.60  # of the time in ops that compute, so that little matrix work is no matter of waiting
_PADDED_RATIO = 0.25
_MOST_STRENGTH = 10.0


def _rates(seen: Observation) -> tuple[float, float] | str:
    """Utilization of matrix units and of HBM bandwidth; a text: why they are not known."""
    mxu, hbm = seen.values[MXU.key], HBM_BANDWIDTH.value(seen.figures)
    if mxu is None:
        return "MXU is not measured"
    return "HBM bandwidth is not known" if hbm is None else (mxu, hbm)


def _evidence(seen: Observation, limits: Mapping[FigureSpec, float]) -> dict[str, Evidence]:
    return {
        figure.fields[0]: Evidence(value=figure.value(seen.figures) or 0.0, threshold=limit)
        for figure, limit in limits.items()
    }


def _confidence(seen: Observation) -> Confidence:
    """Confidence: FLOPs that ops claim, unlike counters, may be far off."""
    return "medium" if seen.figures.mxu_method == "flops" else "high"


class UtilizationBound(Rule[None, None]):
    """One utilization above 70 % while the other is below 50 %: XProf's rule.

    Attributes:
        high, low: the figures.
        words, sentence: with the places `{high}` and `{low}`.
    """

    severities = ("info",)
    of_device = True
    high: ClassVar[FigureSpec]
    low: ClassVar[FigureSpec]
    words: ClassVar[str]
    sentence: ClassVar[str]

    def severity_ratio(self, member: Member[None, None]) -> float | str:
        """The high one relative to its limit, while the other is low."""
        rates = _rates(member.seen)
        if isinstance(rates, str):
            return rates
        high, low = self._values(member)
        return high / HIGH_RATIO if low < LOW_RATIO else 0.0

    def detail(self, member: Member[None, None]) -> FindingDetail:
        """Names both rates."""
        high, low = self._values(member)
        shown = {"high": f"{high:.0%}", "low": f"{low:.0%}"}
        return FindingDetail(
            words=self.words.format(**shown),
            sentence=f"{{who}}, {self.sentence.format(**shown)}.",
            evidence=_evidence(member.seen, {self.high: HIGH_RATIO, self.low: LOW_RATIO}),
            severity="info",
            confidence=_confidence(member.seen),
            figure=self.high.key,
        )

    def _values(self, member: Member[None, None]) -> tuple[float, float]:
        figures = member.seen.figures
        return self.high.value(figures) or 0.0, self.low.value(figures) or 0.0


class MemoryBound(UtilizationBound):
    """HBM bandwidth above 70 %, matrix units below 50 %."""

    finding = "memory-bound"
    remedy = (
        "do more for each byte: larger batches (a multiple of 8 per core, 64 in all, 1024 at best), gradient "
        "accumulation, bfloat16 activations, fewer rematerialized or elementwise passes, fused attention kernels"
    )
    high, low = HBM_BANDWIDTH, MXU
    words = "HBM bandwidth {high}, MXU {low}"
    sentence = "HBM bandwidth is the limit: {high} of it is in use, and only {low} of the matrix units"


class ComputeBound(UtilizationBound):
    """Matrix units above 70 %, HBM bandwidth below 50 %: a job as it should be."""

    finding = "compute-bound"
    remedy = (
        "nothing is wrong; to be faster still: bfloat16 or int8 matrix products, less recomputation (jax.checkpoint "
        "policies), more chips"
    )
    high, low = MXU, HBM_BANDWIDTH
    words = "MXU {high}"
    sentence = "the matrix units are the limit, as they should be: {high} of them is in use, and {low} of HBM bandwidth"


class LowMxu(Rule[None, None]):
    """Ops that compute take 60 % of the time, matrix units are used below 20 %, and HBM bandwidth is no reason."""

    finding = "low-mxu"
    of_device = True
    remedy = (
        "give the matrix units larger work: batches that are a multiple of 8 per core and 64 in all (128 per core at "
        "best), layer widths and heads that are multiples of 128 (256 from v6e on), bfloat16, several small products "
        "as one (einsum, vmap), fewer elementwise passes between"
    )
    severities = ("info",)

    def severity_ratio(self, member: Member[None, None]) -> float | str:
        """Distance of matrix units below the limit, on a device that computes and has HBM bandwidth left."""
        rates, computing = _rates(member.seen), op_time_ratio(member.seen, "compute")
        if isinstance(rates, str):
            return rates
        if computing is None:
            return "time in ops that compute is not known"
        mxu, hbm = rates
        if hbm >= LOW_RATIO:
            return 0.0
        return min(_LITTLE_MXU_RATIO / max(mxu, _LITTLE_MXU_RATIO / _MOST_STRENGTH), computing / _BUSY_RATIO)

    def detail(self, member: Member[None, None]) -> FindingDetail:
        """Names the share of padding, if that explains it."""
        figures = member.seen.figures
        mxu, computing = MXU.value(figures) or 0.0, op_time_ratio(member.seen, "compute") or 0.0
        padding = figures.matmul_padding_ratio
        evidence = _evidence(member.seen, {MXU: _LITTLE_MXU_RATIO, HBM_BANDWIDTH: LOW_RATIO})
        evidence["op_time_ratios.compute"] = Evidence(value=computing, threshold=_BUSY_RATIO)
        why = "work is in small or few matrix products, or in none"
        if padding is not None:
            evidence["matmul_padding_ratio"] = Evidence(value=padding, threshold=_PADDED_RATIO)
            if padding > _PADDED_RATIO:
                why = f"{padding:.0%} of the work of matrix products is padding"
        return FindingDetail(
            words=f"MXU {mxu:.0%}" + (f", padding {padding:.0%}" if padding and padding > _PADDED_RATIO else ""),
            sentence=f"{{who}}, ops compute {computing:.0%} of the time and use {mxu:.0%} of the matrix units; {why}.",
            evidence=evidence,
            severity="info",
            confidence=_confidence(member.seen),
            figure=MXU.key,
        )

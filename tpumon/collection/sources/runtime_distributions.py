"""Distributions in the runtime metric service's answers, as `Distribution`s in seconds. Makes no calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from tpumon.model import Distribution
from tpumon.proto.runtime_metrics_pb2 import Distribution as Sent
from tpumon.proto.runtime_metrics_pb2 import TpuMetric

_US_PER_S = 1e6
_MOST_BUCKETS_SENT = 4096
_MOST_BUCKETS = 16
"""Of a metric on a page. Of more, neighbours are counted together: bounds are left out, and no count changes. Of
libtpu's usual bounds every other one stays, and a quantile is at most four times too large or too small."""
_MOST = 1 << 60


def distribution_of(metric: TpuMetric) -> Distribution | None:
    """Adds up all rows of a metric, in microseconds. Sizes and kinds of transfers are not kept apart.

    Returns:
        None if there are no rows, or one of them cannot become a histogram.
    """
    rows = [row.distribution for row in metric.metrics if row.WhichOneof("measure") == "distribution"]
    made = [one for row in rows if (one := _distribution(row)) is not None]
    if not made or len(made) < len(metric.metrics) or len({one.bounds for one in made}) > 1:
        return None
    counts = tuple(sum(column) for column in zip(*(one.counts for one in made), strict=True))
    return _thinned(made[0].bounds, counts, sum(one.total for one in made))


def _distribution(sent: Sent) -> Distribution | None:
    bounds = _bounds(sent.bucket_options)
    counts = tuple(sent.bucket_counts)
    if bounds is None or len(counts) > len(bounds) + 1 or any(not 0 <= count < _MOST for count in counts):
        return None
    counted = sum(counts)
    total_s = sent.mean * counted / _US_PER_S  # `count` is the same, but for a server's fault
    if not 0 <= total_s < _MOST:  # NaN is neither
        return None
    return Distribution(bounds=bounds, counts=(*counts, *[0] * (len(bounds) + 1 - len(counts))), total=total_s)


def _bounds(options: Sent.BucketOptions) -> tuple[float, ...] | None:
    """Upper bounds in seconds; None if they are not finite, positive and ascending."""
    kind = options.WhichOneof("options")
    if kind == "explicit_buckets":
        bounds: Sequence[float] = options.explicit_buckets.bounds
    elif kind == "exponential_buckets":
        exponential = options.exponential_buckets
        if not 0 < exponential.num_finite_buckets < _MOST_BUCKETS_SENT or exponential.growth_factor <= 1:
            return None
        last = math.log(exponential.growth_factor) * exponential.num_finite_buckets
        if last > math.log(_MOST):
            return None
        bounds = [
            exponential.scale * exponential.growth_factor**place for place in range(exponential.num_finite_buckets + 1)
        ]
    elif kind == "linear_buckets":
        linear = options.linear_buckets
        if not 0 < linear.num_finite_buckets < _MOST_BUCKETS_SENT:
            return None
        bounds = [linear.offset + linear.width * place for place in range(linear.num_finite_buckets + 1)]
    else:
        return None
    in_s = tuple(float(f"{bound / _US_PER_S:.6g}") for bound in bounds[: _MOST_BUCKETS_SENT + 1])
    ascending = all(low < high for low, high in pairwise(in_s))
    positive = in_s[1:] if in_s and in_s[0] == 0 else in_s
    return in_s if ascending and positive and positive[0] > 0 and in_s[-1] < _MOST else None


def _thinned(bounds: tuple[float, ...], counts: tuple[int, ...], total_s: float) -> Distribution:
    """Distribution with at most 16 bounds; equal bounds are always thinned in the same way."""
    every = math.ceil(len(bounds) / _MOST_BUCKETS)
    kept = range(len(bounds) % every or every, len(bounds) + 1, every)  # places after those that stay: the last does
    edges = [0, *kept]
    merged = [sum(counts[low:high]) for low, high in pairwise(edges)]
    return Distribution(
        bounds=tuple(bounds[place - 1] for place in kept), counts=(*merged, sum(counts[len(bounds) :])), total=total_s
    )

"""The page of metrics that a server of models has, and the figures that two readings of it give.

`SERVERS` is the one table of names: of which server, since which version, and the substitutes in other versions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, field

from tpumon.model import Figures, Percentiles, ServerFigures

_MOST_LINES = 100_000
_MOST_SERIES = 10_000
_LONGEST_LINE = 4096
_NOT_SERVED = "the server has no metric of this"
_FIRST = "needs two readings of the server's metrics"
_BEGAN_ANEW = "the server's counters began anew"
_ODD = "the server's metric holds an impossible value"

_Labels = tuple[tuple[str, str], ...]
_Series = Mapping[_Labels, float]
"""The values of one metric, by their labels."""


class Gauge(Struct, frozen=True):
    """A way to read a share from a gauge.

    Attributes:
        name: of the metric.
        is_free: whether it counts what is free.
    """

    name: str
    is_free: bool = False


class ServerNames(Struct, frozen=True, kw_only=True):
    """The names of one kind of server; of several for a figure, the first that a page has counts.

    Attributes:
        title: what people call it.
        running, waiting: gauges of requests; those in one row of `waiting` are added up.
        tokens, prompt_tokens, preemptions: counters.
        first_answer: a histogram, in seconds.
        kv_used: gauges, 0 to 1.
        engine: the label that tells engines apart.
        absent: why it lacks a figure, by the figure's name.
    """

    title: str
    engine: str
    running: tuple[str, ...] = ()
    waiting: tuple[tuple[str, ...], ...] = ()
    tokens: str = ""
    prompt_tokens: str = ""
    preemptions: str = ""
    first_answer: str = ""
    kv_used: tuple[Gauge, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def samples(self) -> Iterator[str]:
        """The names of all samples to read."""
        yield from self.running
        yield from (name for row in self.waiting for name in row)
        yield from (name for name in (self.tokens, self.prompt_tokens, self.preemptions) if name)
        yield from (f"{self.first_answer}{part}" for part in ("_bucket", "_count"))
        yield from (gauge.name for gauge in self.kv_used)


SERVERS: tuple[ServerNames, ...] = (
    # 0.5 to 0.32. The cache's gauge was renamed in 0.9; newer versions also split those that wait by reason.
    ServerNames(
        title="vLLM",
        engine="engine",
        running=("vllm:num_requests_running",),
        waiting=(("vllm:num_requests_waiting",), ("vllm:num_requests_waiting_by_reason",)),
        tokens="vllm:generation_tokens_total",
        prompt_tokens="vllm:prompt_tokens_total",
        preemptions="vllm:num_preemptions_total",
        first_answer="vllm:time_to_first_token_seconds",
        kv_used=(Gauge("vllm:kv_cache_usage_perc"), Gauge("vllm:gpu_cache_usage_perc")),
        # In vllm:cache_config_info; its kv_cache_memory_bytes was asked for, which tpu-inference ignores.
        absent={"kv_pool_hbm_ratio": "vLLM tells how many blocks its cache has, not how many bytes a block has"},
    ),
    # 0.2.2, which has two gauges only, and the last state of its repository. A request's tokens are counted when it
    # ends. Its cache has a slot for each request. `num_requests_waiting` is the sum of its three queues.
    ServerNames(
        title="JetStream",
        engine="idx",
        waiting=(
            ("jetstream_prefill_backlog_size", "jetstream_transfer_backlog_size", "jetstream_generate_backlog_size"),
        ),
        tokens="jetstream_request_output_length_sum",
        prompt_tokens="jetstream_request_input_length_sum",
        first_answer="jetstream_time_to_first_token",
        kv_used=(
            Gauge("jetstream_slots_used_percentage"),
            Gauge("jetstream_slots_available_percentage", is_free=True),
        ),
        absent={
            "requests_running": "JetStream tells the share of its slots in use, not their number",
            "kv_pool_hbm_ratio": "JetStream does not tell how many bytes its cache has",
        },
    ),
)


class ServerPage(Struct, frozen=True, kw_only=True):
    """One reading of a page: the metrics in the table.

    Attributes:
        names: whose page it is; None: of no server in the table.
        series: by name, as the table spells it.
    """

    names: ServerNames | None = None
    series: Mapping[str, _Series] = field(default_factory=dict)

    def of(self, name: str) -> _Series:
        """The values of a metric; none if the page lacks it."""
        return self.series.get(name, {})

    @property
    def labels(self) -> Iterator[Mapping[str, str]]:
        """The labels of every series."""
        return (dict(labels) for series in self.series.values() for labels in series)


def page_of(body: bytes) -> ServerPage:
    """Reads a page in Prometheus' text format; lines of other metrics are passed over.

    Raises:
        ValueError: it is none, is cut, or has too many lines; the message says so.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise ValueError("not text") from None
    if not text.endswith("\n"):
        raise ValueError("cut in the middle of a line" if text else "empty")
    if text.count("\n") > _MOST_LINES:
        raise ValueError(f"more than {_MOST_LINES} lines")
    lines = [line[0] for line in _WANTED.finditer(text)]
    if len(lines) > _MOST_SERIES:
        raise ValueError(f"more than {_MOST_SERIES} series of a server")
    if any(len(line) > _LONGEST_LINE for line in lines):
        raise ValueError(f"a line of more than {_LONGEST_LINE} characters")
    spelt: dict[str, dict[_Labels, float]] = {}
    for name, labels, value in _samples("\n".join(lines)):
        if labels in spelt.setdefault(name, {}):
            raise ValueError("a series twice")
        spelt[name][labels] = value
    # A page that has a metric under two names has it twice: one of them counts.
    series = {name: spelt[each] for name, spellings in _SPELLINGS.items() for each in spellings[::-1] if each in spelt}
    servers = [names for names in SERVERS if any(name in series for name in names.samples)]
    if len(servers) > 1:
        raise ValueError("metrics of two servers in one page")
    return ServerPage(names=servers[0], series=series) if servers else ServerPage()


def figures_of(page: ServerPage, before: ServerPage | None, elapsed_s: float) -> Figures:
    """The figures of a page: gauges as they are, rates and times of requests since the page before.

    Args:
        page: what was read now.
        before: what was read before; None: nothing, or another server.
        elapsed_s: time between the two.
    """
    if page.names is None:
        return Figures(absent=dict.fromkeys(_FIGURES, _NOT_SERVED))
    reader = _Reader(page, before, elapsed_s)
    figures: dict[str, float | Percentiles] = {}
    absent: dict[str, str] = {}
    for name, compute in _FIGURES.items():
        try:
            figures[name] = compute(reader, page.names)
        except _AbsentError as why:
            absent[name] = page.names.absent.get(name, str(why))
    engines = {labels[page.names.engine] for labels in page.labels if page.names.engine in labels}
    several = len(engines) if len(engines) > 1 else None
    return Figures(server=ServerFigures(**figures, engines=several), absent=absent)  # type: ignore[arg-type]


class _AbsentError(Exception):
    """Absence of a figure; the message says why."""


class _Reader:
    """Computes figures of one page and the one before. Values of several engines and processes are added up."""

    def __init__(self, page: ServerPage, before: ServerPage | None, elapsed_s: float) -> None:
        self._page = page
        self._before = before
        self._elapsed_s = elapsed_s

    def first(self, rows: Sequence[Sequence[str]]) -> list[float]:
        """All values of the first of these rows that the page has any of."""
        for row in rows:
            values = [value for name in row for value in self._page.of(name).values()]
            if values:
                return _possible(values)
        raise _AbsentError(_NOT_SERVED)

    def kv_used(self, gauges: Sequence[Gauge]) -> float:
        """Mean over engines; their caches have one size, so the mean is the share of all caches together."""
        gauge = next((gauge for gauge in gauges if self._page.of(gauge.name)), None)
        if gauge is None:
            raise _AbsentError(_NOT_SERVED)
        values = _possible(list(self._page.of(gauge.name).values()), most=1.0)
        mean = sum(values) / len(values)
        return 1 - mean if gauge.is_free else mean

    def rate(self, name: str) -> float:
        return sum(self._increases(name).values()) / self._elapsed_s

    def _increases(self, name: str) -> dict[_Labels, float]:
        """The increase of each series of a counter since the page before; one that is new began at 0."""
        now = self._page.of(name)
        if not now:
            raise _AbsentError(_NOT_SERVED)
        before = {} if self._before is None else self._before.of(name)
        if not before or self._elapsed_s <= 0:
            raise _AbsentError(_FIRST)
        _possible([*now.values(), *before.values()])
        if not before.keys() <= now.keys() or any(now[labels] < value for labels, value in before.items()):
            raise _AbsentError(_BEGAN_ANEW)
        return {labels: value - before.get(labels, 0.0) for labels, value in now.items()}

    def first_token(self, name: str) -> Percentiles:
        """Percentiles of the requests since the page before; values within a bucket count as evenly spread."""
        counts: dict[float, float] = {}
        for labels, count in self._increases(f"{name}_bucket").items():
            bound = _bound_of(labels)
            counts[bound] = counts.get(bound, 0.0) + count
        buckets = sorted(counts.items())
        if not buckets or buckets[-1][0] != math.inf or any(one[1] > other[1] for one, other in pairwise(buckets)):
            raise _AbsentError(_ODD)
        if not buckets[-1][1]:
            raise _AbsentError("no request got its first token since the reading before")
        return Percentiles(p50=_quantile(0.5, buckets), p95=_quantile(0.95, buckets))

    def not_served(self) -> float:
        raise _AbsentError(_NOT_SERVED)


_FIGURES: Mapping[str, Callable[[_Reader, ServerNames], float | Percentiles]] = {
    "requests_running": lambda reader, names: sum(reader.first([(each,) for each in names.running])),
    "requests_waiting": lambda reader, names: sum(reader.first(names.waiting)),
    "tokens_per_s": lambda reader, names: reader.rate(names.tokens),
    "prompt_tokens_per_s": lambda reader, names: reader.rate(names.prompt_tokens),
    "time_to_first_token_s": lambda reader, names: reader.first_token(names.first_answer),
    "kv_used_ratio": lambda reader, names: reader.kv_used(names.kv_used),
    "preemptions_per_s": lambda reader, names: reader.rate(names.preemptions),
    "kv_pool_hbm_ratio": lambda reader, _names: reader.not_served(),
}
"""By the figure's name: what computes it; raises `_AbsentError`."""


def _possible(values: list[float], *, most: float = 1e15) -> list[float]:
    if not all(0 <= value <= most for value in values):  # not a number is neither
        raise _AbsentError(_ODD)
    return values


def _quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float:
    """A quantile of cumulative buckets, as Prometheus computes it, except beyond the last bound."""
    rank = share * buckets[-1][1]
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            if bound == math.inf:
                raise _AbsentError(f"above {low:g} s, where the server's buckets end")
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    raise _AbsentError(_ODD)


def _bound_of(labels: _Labels) -> float:
    """The upper bound of a bucket, from its labels."""
    try:
        number = float(dict(labels).get("le", ""))
    except ValueError:
        number = math.nan
    if not number > 0:
        raise _AbsentError(_ODD)
    return number


def _samples(text: str) -> Iterator[tuple[str, _Labels, float]]:
    """Name, labels in order and value of each sample.

    Raises:
        ValueError: a line is none.
    """
    from prometheus_client.parser import text_string_to_metric_families  # here: it takes long to import

    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, tuple(sorted(sample.labels.items())), sample.value
    except Exception:  # noqa: BLE001 - whatever stands in a line of others
        raise ValueError("a line that is no sample") from None


def _spellings(name: str) -> tuple[str, ...]:
    """A name as servers and those between spell it: KServe puts its own before it, some drop the colon."""
    plain = (name, name.replace(":", "_")) if ":" in name else (name,)
    return (*plain, *(f"kserve_{each}" for each in plain))


_SPELLINGS = {name: _spellings(name) for names in SERVERS for name in names.samples}
_WANTED = re.compile(
    rf"^(?:{'|'.join(re.escape(each) for spellings in _SPELLINGS.values() for each in spellings)})(?=[{{ \t]).*$",
    re.MULTILINE,
)

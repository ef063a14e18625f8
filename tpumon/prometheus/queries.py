"""The queries: of our metrics and nothing else.

Several metrics come in one answer: `name_of` says which one a series is of.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from tpumon.errors import UsageError
from tpumon.figures import COMPARED, DUTY, FLOPS, HBM, HBM_BANDWIDTH, IDLE, INFEED, MXU, STEP
from tpumon.prometheus.table import Table

TARGET_INFO, WORKER_INFO, FINDING = "tpumon_target_info", "tpu_worker_info", "tpumon_finding"
SUCCESS, TOOK, WINDOW, INTERVAL = (
    "tpumon_target_last_success_timestamp_seconds",
    "tpumon_sample_duration_seconds",
    "tpumon_sample_window_seconds",
    "tpumon_sample_interval_seconds",
)
HBM_USED, HBM_TOTAL = "tpu_hbm_used_bytes", "tpu_hbm_total_bytes"
COLLECTIVE = "tpu_op_time_ratio"
"""Only that of collectives is read."""
UP, ACTIVE, BUSY, PAUSED, INDEPENDENT = (
    f"tpumon_target_{what}" for what in ("up", "active", "busy", "paused", "independent")
)
SINGLE = tuple(str(figure.metric) for figure in (MXU, IDLE, DUTY, FLOPS, HBM_BANDWIDTH))
RANGED = {
    key: tuple(name.format(end) for end in ("", "_min", "_max"))
    for key, name in ((STEP.key, "tpu_step_time{}_seconds"), (INFEED.key, "tpu_infeed{}_ratio"))
}
"""Names of average, min and max."""

GRAPHED = {key: str(figure.metric) for key, figure in COMPARED.items() if figure.metric is not None}
"""Metrics by key of the figure; HBM has none of its own."""

OF_WORKERS = (
    *SINGLE,
    *(name for names in RANGED.values() for name in names),
    *(SUCCESS, TOOK, WINDOW, INTERVAL),
)
RATIOS = frozenset(name for name in (*OF_WORKERS, COLLECTIVE) if name.endswith("_ratio"))
WHILE_0 = (UP, ACTIVE)
STATES = (BUSY, PAUSED, *WHILE_0)
"""Of these, those of `WHILE_0` are there while the value is 0, the others while it is 1."""
NAMES = (TARGET_INFO, WORKER_INFO, FINDING, COLLECTIVE, *OF_WORKERS, HBM_USED, HBM_TOTAL, *STATES, INDEPENDENT)
"""Every metric that is read."""

_NAME = "m"
_OF_COLLECTIVES, _OF_NO_OTHERS = 'kind="collective"', 'kind=~"|collective"'
_MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"'
_SELECTOR = re.compile(rf"\{{?\s*({_MATCHER}(?:\s*,\s*{_MATCHER})*)?\s*,?\s*\}}?")
_LONGEST_SELECTOR = 2000


def selector_of(text: str | None) -> str:
    """The label matchers of `--selector`, in braces.

    Raises:
        UsageError: it is not of the form {name="value",...}.
    """
    match = _SELECTOR.fullmatch((text or "").strip())
    if match is None or len(text or "") > _LONGEST_SELECTOR:
        raise UsageError('--selector: give label matchers, such as \'{job="tpumon",namespace=~"a|b"}\'')
    return f"{{{match[1] or ''}}}"


def name_of(labels: Mapping[str, str]) -> str:
    """What a series is of: the name of a metric, or the key of a figure."""
    return labels.get(_NAME) or labels.get("__name__", "")


def names_of(table: Table) -> Sequence[str]:
    """Likewise, of all series of a table."""
    return table.column(_NAME if _NAME in table.columns else "__name__")


class Queries:
    """The expressions for one selector.

    Args:
        selector: as `selector_of` returns it.
        identity: names of the labels that tell workers apart, `worker` the first.
        exactly: whether every selector names its metric, as Google's service requires. Otherwise what is asked most
            names several at once, which costs Prometheus a third less.
    """

    def __init__(self, selector: str, identity: Sequence[str] = ("worker",), *, exactly: bool = False) -> None:
        self._selector = selector
        self._by = ", ".join(identity)
        self._exactly = exactly

    @property
    def workers(self) -> str:
        """Who is there, with all labels; the sample's properties are in labels that the other one lacks."""
        return f"{TARGET_INFO}{self._selector} or {WORKER_INFO}{self._selector}"

    @property
    def names(self) -> str:
        """The names of the metrics that say who is there, found by a choice of names."""
        return f"group by (__name__) ({_any_of((TARGET_INFO, WORKER_INFO), self._selector)})"

    @property
    def numbers(self) -> str:
        """All numbers of all workers."""
        return self._each((*OF_WORKERS, COLLECTIVE))

    def devices(self, *, sizes: bool) -> str:
        """HBM used of their devices; with `sizes`, also how much there is, which does not change."""
        return self._each((HBM_USED, *([HBM_TOTAL] if sizes else [])), "device")

    @property
    def states(self) -> str:
        """What keeps workers from being live, and who is compared with none."""
        return _either([*map(self._trouble, STATES), self._trouble(INDEPENDENT)])

    def findings(self, *, judged: bool) -> str:
        """The findings that workers have; with `judged`, also, without `worker`, of how many each one is judged."""
        found = f"max by ({self._by}, finding) ({FINDING}{self._selector} == 1)"
        return f"{found} or count by (finding) ({FINDING}{self._selector})" if judged else found

    def troubles(self, marks: Collection[tuple[str, str]] | None = None) -> str:
        """Findings and states, for a time in the past.

        Args:
            marks: only these: of each the metric's name, and the finding or nothing. None: all.
        """
        states = [name for name in STATES if marks is None or (name, "") in marks]
        findings = sorted(finding for name, finding in marks or () if name == FINDING)
        selector = self._selector if marks is None else _narrowed(self._selector, f'finding=~"{"|".join(findings)}"')
        found = _marked(FINDING, f"max by ({self._by}, finding) ({FINDING}{selector} == 1)")
        return _either([*([found] if marks is None or findings else []), *map(self._trouble, states)])

    @property
    def compared(self) -> str:
        """What the workers of a slice are compared by, for a time in the past."""
        return self._each((str(IDLE.metric), str(STEP.metric), COLLECTIVE))

    def averages(self, *, hbm: bool) -> str:
        """The compared figures as averages over all workers, for a time in the past; with `hbm`, also that one."""
        by = [_marked(key, f"avg ({name}{self._selector})") for key, name in GRAPHED.items()]
        return _either([*by, *([_marked(HBM.key, f"avg ({self._hbm(self._selector)})")] if hbm else [])])

    def graphed(self, matchers: str) -> str:
        """The compared figures of some workers, for a time in the past.

        Args:
            matchers: label matchers that pick these workers; empty: all.
        """
        selector = _narrowed(self._selector, matchers) if matchers else self._selector
        by = [_marked(key, f"max by ({self._by}) ({name}{selector})") for key, name in GRAPHED.items()]
        return _either([*by, _marked(HBM.key, self._hbm(selector))])

    def _hbm(self, selector: str) -> str:
        """How full the fullest device is."""
        return f"max by ({self._by}) ({HBM_USED}{selector} / {HBM_TOTAL}{selector})"

    def waits_less(self, matchers: str) -> str:
        """How much less of the time some workers are idle or in collectives than the median of their slice.

        Args:
            matchers: label matchers that pick these workers.
        """

        def waited(selector: str) -> str:
            idle = f"max by ({self._by}) ({IDLE.metric}{selector})"
            collective = f"max by ({self._by}) ({COLLECTIVE}{_narrowed(selector, _OF_COLLECTIVES)})"
            of_slice = f"max by ({self._by}, slice) ({TARGET_INFO}{selector})"
            return f"(({idle} + {collective}) or {idle}) * on ({self._by}) group_right() {of_slice}"

        some = _narrowed(self._selector, matchers)
        return f"quantile by (slice) (0.5, {waited(self._selector)}) - on (slice) group_right() ({waited(some)})"

    def known(self, span: str, step: str) -> str:
        """Since when each worker is known, within a time, by its first sample at one of these steps."""
        seen = f"min_over_time(timestamp({TARGET_INFO}{self._selector})[{span}:{step}])"
        return f"min by ({self._by}) ({seen})"

    def _each(self, names: Sequence[str], *more: str) -> str:
        """These metrics of every worker; of `COLLECTIVE` only that of collectives."""
        by = ", ".join((self._by, *more))
        if not self._exactly:
            some = _any_of(names, _narrowed(self._selector, _OF_NO_OTHERS))
            return f"max by (__name__, {by}) ({some})"
        selectors = {COLLECTIVE: _narrowed(self._selector, _OF_COLLECTIVES)}
        return _either(
            [_marked(name, f"max by ({by}) ({name}{selectors.get(name, self._selector)})") for name in names]
        )

    def _trouble(self, name: str) -> str:
        """Where a state is. Few have one: comparing first leaves the server little to group."""
        return _marked(name, f"max by ({self._by}) ({name}{self._selector} == {0 if name in WHILE_0 else 1})")


def _narrowed(selector: str, matchers: str) -> str:
    return f"{selector[:-1]}{',' if len(selector) > 2 else ''}{matchers}}}"


def _any_of(names: Iterable[str], selector: str) -> str:
    return _narrowed(selector, f'__name__=~"{"|".join(names)}"')


def _marked(name: str, expression: str) -> str:
    return f'label_replace({expression}, "{_NAME}", "{name}", "", "")'


def _either(expressions: Sequence[str]) -> str:
    """All of them; halved again and again, because the server compares each side with all of the other."""
    if len(expressions) == 1:
        return expressions[0]
    half = len(expressions) // 2
    return f"({_either(expressions[:half])} or {_either(expressions[half:])})"

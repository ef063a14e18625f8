"""The figures of a server of models: rows of the table of figures; and the families of its programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tpumon.model.figure_spec import FigureSpec
from tpumon.model.figures import FamilyFigures, Figures, ProgramFamily


def _of_server(name: str) -> Callable[[Figures], float | None]:
    return lambda figures: getattr(figures.server, name, None)


def _first_token(name: str) -> Callable[[Figures], float | None]:
    return lambda figures: getattr(getattr(figures.server, "time_to_first_token_s", None), name, None)


def _runtime_duty(figures: Figures) -> float | None:
    """The duty cycle of a server as libtpu says it, over the devices that report it."""
    return None if figures.server is None else figures.runtime_duty_cycle_ratio


def _busy(figures: Figures) -> float | None:
    duty = _runtime_duty(figures)
    return _of_server("busy_ratio")(figures) if duty is None else duty


def _busy_method(figures: Figures) -> str | None:
    if _busy(figures) is None:
        return None
    return "programs" if _runtime_duty(figures) is None else "libtpu"


def families_of(figures: Figures) -> tuple[FamilyFigures, ...]:
    """The families of a server's programs, the one with most time first."""
    return () if figures.server is None else figures.server.families


def _main_family(figures: Figures) -> FamilyFigures | None:
    """The programs that make tokens: they go on while a server has requests. Otherwise the heaviest."""
    families = families_of(figures)
    return next((each for each in families if each.family in {"decode", "step"}), next(iter(families), None))


def _program(figures: Figures) -> float | None:
    family = _main_family(figures)
    return None if family is None or family.duration_s is None else family.duration_s.p50


BUSY = FigureSpec(
    key="busy",
    fields=("server.busy_ratio",),
    label="Busy",
    title="BUSY",
    about="Share of the time in which a server's programs ran: time in programs over traced time.",
    value=_busy,
    method=_busy_method,
    compared=True,
    always_shown=True,
    origin="programs",
)
"""On screens libtpu's duty cycle where it is there: it knows the time between traces, too."""
PROGRAM = FigureSpec(
    key="program",
    fields=("server.families",),
    label="Program",
    title="PROG ms",
    about="Runs, median and 95th percentile of their duration, share of the time of all programs, and sizes, of each "
    "family of a server's programs.",
    value=_program,
    method=lambda figures: None if _program(figures) is None else "median",
    subject=lambda figures: None if (family := _main_family(figures)) is None else family.family,
    unit="seconds",
    compared=True,
    always_shown=True,
    origin="programs",
)
TOKENS = FigureSpec(
    key="tokens",
    fields=("server.tokens_per_s",),
    label="Tokens/s",
    title="TOK/S",
    about="Tokens that a server generates, per second.",
    value=_of_server("tokens_per_s"),
    unit="rate",
    worse="low",
    compared=True,
    origin="requests",
    metric="tpu_server_tokens_per_second",
)
WAITING = FigureSpec(
    key="waiting",
    fields=("server.requests_waiting",),
    label="Requests waiting",
    title="WAITING",
    about="Requests that wait in a server's queue.",
    value=_of_server("requests_waiting"),
    unit="count",
    compared=True,
    origin="requests",
    metric="tpu_server_requests_waiting",
)
KV_USED = FigureSpec(
    key="kv",
    fields=("server.kv_used_ratio",),
    label="KV cache",
    title="KV",
    about="Share of a server's cache of keys and values that is in use.",
    value=_of_server("kv_used_ratio"),
    compared=True,
    origin="requests",
    metric="tpu_server_kv_used_ratio",
)
RUNNING = FigureSpec(
    key="running",
    fields=("server.requests_running",),
    label="Requests running",
    about="Requests that a server works on.",
    value=_of_server("requests_running"),
    unit="count",
    origin="requests",
    metric="tpu_server_requests_running",
)
TOKENS_PER_CHIP = FigureSpec(
    key="tokens-per-chip",
    fields=("server.tokens_per_s_per_chip",),
    label="Tokens/s per chip",
    about="Tokens that a server generates, per second and chip of its worker.",
    value=_of_server("tokens_per_s_per_chip"),
    unit="rate",
    worse="low",
    origin="both",
    metric="tpu_server_tokens_per_second_per_chip",
)
PROMPT_TOKENS = FigureSpec(
    key="prompt-tokens",
    fields=("server.prompt_tokens_per_s",),
    label="Prompt tokens/s",
    about="Tokens of prompts that a server takes in, per second.",
    value=_of_server("prompt_tokens_per_s"),
    unit="rate",
    origin="requests",
)
FIRST_TOKEN = FigureSpec(
    key="first-token",
    fields=("server.time_to_first_token_s",),
    label="Time to first token",
    about="Median time from a request to its first token.",
    value=_first_token("p50"),
    unit="seconds",
    origin="requests",
    metric="tpu_server_time_to_first_token_p50_seconds",
)
LATE_FIRST_TOKEN = FigureSpec(
    key="late-first-token",
    fields=("server.time_to_first_token_s",),
    label="Time to first token, p95",
    about="95th percentile of the time from a request to its first token.",
    value=_first_token("p95"),
    unit="seconds",
    origin="requests",
    metric="tpu_server_time_to_first_token_p95_seconds",
)
PREEMPTIONS = FigureSpec(
    key="preemptions",
    fields=("server.preemptions_per_s",),
    label="Preemptions/s",
    about="Requests that a server puts back for want of cache, per second.",
    value=_of_server("preemptions_per_s"),
    unit="rate",
    origin="requests",
)
DEVICE_PER_TOKEN = FigureSpec(
    key="device-per-token",
    fields=("server.device_s_per_token", "server.device_time_source"),
    label="Device time per token",
    about="Time in a server's programs, summed over cores, per generated token, by libtpu's duty cycle where that is "
    "there.",
    value=_of_server("device_s_per_token"),
    method=lambda figures: None if figures.server is None else figures.server.device_time_source,
    unit="seconds",
    origin="both",
    metric="tpu_server_device_seconds_per_token",
)
SERVER_PADDING = FigureSpec(
    key="server-padding",
    fields=("server.padding_ratio",),
    label="Padding of batches",
    about="Share of the tokens that a server computes that are padding up to the next compiled size.",
    value=_of_server("padding_ratio"),
    origin="programs",
    metric="tpu_server_padding_ratio",
)
HOST_GAP = FigureSpec(
    key="host-gap",
    fields=("server.host_gap_ratio",),
    label="Host gap",
    about="Share of the time with requests in which none of a server's programs ran.",
    value=_of_server("host_gap_ratio"),
    origin="both",
    metric="tpu_server_host_gap_ratio",
)
KV_POOL = FigureSpec(
    key="kv-pool",
    fields=("server.kv_pool_hbm_ratio",),
    label="KV cache of HBM",
    about="Share of HBM that a server's cache of keys and values was given.",
    value=_of_server("kv_pool_hbm_ratio"),
    origin="both",
    metric="tpu_server_kv_pool_hbm_ratio",
)

SERVER_FIGURES: tuple[FigureSpec, ...] = (BUSY, PROGRAM, TOKENS, WAITING, KV_USED, RUNNING, PROMPT_TOKENS, FIRST_TOKEN,
                                      LATE_FIRST_TOKEN, PREEMPTIONS, DEVICE_PER_TOKEN, SERVER_PADDING,
                                      HOST_GAP, TOKENS_PER_CHIP, KV_POOL)  # fmt: skip
"""Figures of servers; the ones by which servers are compared come first."""


_FAMILIES: Mapping[ProgramFamily, tuple[str, str]] = {
    "prefill": ("prefill|extend", ""),
    "decode": ("generate|decode", ""),
    "step": ("run_model|step_fun|run_and_sample", "forward"),
    "sample": ("sampler?|compute_logits", "logits|logprobs?|select"),
    "move": ("insert", "transfer|copy|kv(?:cache)?"),
}
"""Whole words, the first that fits: those that say that a job infers, then those that other jobs have, too.

As of tpu-inference, JetStream with MaxEngine, and sglang-jax.
"""

SERVING: frozenset[ProgramFamily] = frozenset({"prefill", "decode", "step"})
"""Families whose programs run the model; the others run beside them, in jobs of other kinds, too."""

_OTHERS = re.compile(r"train|grad|backward|loss|draft")  # of training, and of a second, smaller model


def _whole_words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z])(?:{pattern})(?![a-z])", re.IGNORECASE)


_INFERRING = {family: _whole_words(names) for family, (names, _) in _FAMILIES.items()}
_ANY = {family: _whole_words("|".join(filter(None, names))) for family, names in _FAMILIES.items()}


def family_of(function: str) -> ProgramFamily:
    """The family of a function's programs.

    Args:
        function: its name, with or without the `jit_` of its module.
    """
    for family, pattern in _ANY.items():
        if pattern.search(function) and not (family in SERVING and _OTHERS.search(function.lower())):
            return family
    return "other"


def inferring_family_of(function: str) -> ProgramFamily | None:
    """The family, if the name alone says that its job infers."""
    family = family_of(function)
    return family if family != "other" and _INFERRING[family].search(function) else None

"""Families of a server's programs, by the names of their functions, which change from release to release."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tpumon.model.figures import ProgramFamily

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


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z])(?:{pattern})(?![a-z])", re.IGNORECASE)


_INFERRING = {family: _words(names) for family, (names, _) in _FAMILIES.items()}
_ANY = {family: _words("|".join(filter(None, names))) for family, names in _FAMILIES.items()}


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

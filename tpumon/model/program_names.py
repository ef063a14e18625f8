"""Families of a server's programs, by the names of their functions, which change from release to release."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tpumon.model.figures import ProgramFamily

_FAMILIES: Mapping[ProgramFamily, str] = {
    "prefill": r"prefill|extend(?![a-z])",
    "decode": r"decode(?![a-z])|(?<![a-z])generate(?![a-z])",
    "step": r"run_model|step_fun(?![a-z])|run_and_sample|(?<![a-z])forward(?![a-z])",
    "sample": r"sample|logits|logprob|select",
    "move": r"insert|transfer|copy|(?<![a-z])kv",
}
"""The first that fits. As of tpu-inference, JetStream with MaxEngine, and sglang-jax."""

SERVING: frozenset[ProgramFamily] = frozenset({"prefill", "decode", "step"})
"""Families whose programs run the model; the others run beside them, in jobs of other kinds, too."""

_OTHERS = re.compile(r"train|grad|backward|loss|draft")  # of training, and of a second, smaller model
_NAMES = {family: re.compile(pattern) for family, pattern in _FAMILIES.items()}


def family_of(function: str) -> ProgramFamily:
    """The family of a function's programs.

    Args:
        function: its name, with or without the `jit_` of its module.
    """
    name = function.lower()
    for family, pattern in _NAMES.items():
        if pattern.search(name) and not (family in SERVING and _OTHERS.search(name)):
            return family
    return "other"

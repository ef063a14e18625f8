"""Options that name workers, or where samples come from, and contradict each other: which of them is obeyed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from tpumon.cli.options import TYPED

OF_A_TPU = ("zone", "project")
WAYS = ("service_addr", "workers_list", "tpu", "targets")
NAMING_WORKERS = (*WAYS, *OF_A_TPU)
"""Options that name workers."""

_HIDDEN_BY: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "from_": ("simulate", *NAMING_WORKERS, "job_kind", "server_metrics"),
        "simulate": NAMING_WORKERS,
        **dict.fromkeys(WAYS, WAYS),
    }
)


def not_obeyed(strengths: Mapping[str, int]) -> dict[str, tuple[Literal["not used", "refused"], str]]:
    """Options that are not obeyed: what becomes of each, and the one beside which it does.

    Args:
        strengths: of the options that are given, as `tpumon.cli.options.strength` says.
    """
    unused: dict[str, tuple[Literal["not used", "refused"], str]] = {}
    for name, others in _HIDDEN_BY.items():
        for other in others:
            is_open = name not in unused and other not in unused and strengths.keys() >= {name, other}
            if is_open and (how := _beside(name, other, strengths)):
                unused[other] = how, name
    return unused


def _beside(name: str, other: str, strengths: Mapping[str, int]) -> Literal["", "not used", "refused"]:
    """Returns what becomes of an option beside the one that may hide it; empty: it is obeyed."""
    stronger = strengths[name] - strengths[other]
    if other in OF_A_TPU:  # in a file it is only a default
        return "refused" if strengths[other] == TYPED else "not used"
    if stronger > 0:
        return "not used"
    if name not in WAYS:
        return "refused"
    if stronger < 0 or name == other:
        return ""
    return "refused" if "targets" in {name, other} else "not used" if other == "tpu" else ""


def contradiction(name: str, other: str) -> str:
    """The refusal of an option beside another."""
    option = f"--{other.replace('_', '-')}"
    if other == "job_kind":
        return f"{option} is decided where samples are taken; give it to the tpumon that --from reads"
    if other == "server_metrics":
        return f"{option} is read where samples are taken; give it to the tpumon that --from reads"
    if name == "from_":
        return f"--from shows another tpumon's samples; it cannot be combined with {option}"
    if name == "simulate":
        return f"--simulate cannot be combined with {option}, which names real workers"
    other = next(one for one in (name, other) if one != "targets")
    return f"--targets cannot be combined with --{other.replace('_', '-')}, which names workers, too"

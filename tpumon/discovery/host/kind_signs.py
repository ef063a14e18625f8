"""Signs of a job's kind in its process tree: a notebook's kernel, a server of models."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tpumon.model import KindSign

_NOTEBOOK = re.compile(r"\b(?:ipykernel(?:_launcher)?|colab_kernel_launcher|ipython3?)\b", re.IGNORECASE)
_SERVER = re.compile(
    r"\b(?:vllm|maxengine_server|sgl_jax|sglang|jetstream|tensorflow_model_server|tritonserver)\b", re.IGNORECASE
)


def kind_signs_of(commands: Iterable[str | None]) -> tuple[KindSign, ...]:
    """Signs in the commands of a process and of its ancestors; a command is a program and its script."""
    known = [command for command in commands if command is not None]
    signs: list[tuple[KindSign, re.Pattern[str]]] = [("notebook", _NOTEBOOK), ("server", _SERVER)]
    return tuple(sign for sign, pattern in signs if any(pattern.search(command) for command in known))

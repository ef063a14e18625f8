"""docs/sample.md, with docs/figures.md, names every field, reason, detail and code of the Sample object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import fields

from support import REPOSITORY
from tpumon.errors import REASONS, Detail
from tpumon.model import WarningCode
from tpumon.model.figure_table import STEP_PARTS
from tpumon.model.sample import SampleDocument


def _names(kind: Any) -> Iterator[str]:
    for item in fields(kind):
        yield item.name
        for inner in _within(item.type):
            if isinstance(inner, type) and issubclass(inner, Struct):
                yield from _names(inner)


def _within(hint: Any) -> Iterator[Any]:
    """A type and those that it is made of, such as X of `tuple[X, ...] | None`."""
    yield hint
    for part in get_args(hint):
        yield from _within(part)


def test_everything_in_the_json_is_documented() -> None:
    pages = [(REPOSITORY / "docs" / name).read_text() for name in ("sample.md", "figures.md")]
    documented = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`]+)`", "".join(pages)))))
    in_json = set(_names(SampleDocument))
    assert len(in_json) > 40
    assert not {*in_json, *REASONS, *get_args(Detail), *get_args(WarningCode), *STEP_PARTS} - documented

"""Values are compared, hashed and shown by their fields, as those of a dataclass are."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field, fields, replace

import pytest

from support import REPOSITORY
from tpumon import model
from tpumon.model.frozen import frozen


@frozen
class Ours:
    number: int
    words: tuple[str, ...] = ()
    told: dict[str, int] = field(default_factory=dict)
    aside: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    number: int
    words: tuple[str, ...] = ()
    told: dict[str, int] = field(default_factory=dict)
    aside: float | None = field(default=None, compare=False)


@frozen(kw_only=False)
class Pair:
    host: str
    port: int = 1


def test_a_value_is_as_a_dataclass_is():
    for given in ({"number": 1}, {"number": 2, "words": ("a", "b"), "told": {"x": 1}, "aside": 0.5}):
        ours, theirs = Ours(**given), Theirs(**given)
        assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
        assert ours == Ours(**given)
        assert ours != theirs
        assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
        for same in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), replace(ours)):
            assert same == ours
            assert same is not ours
    assert Ours(number=1) != Ours(number=2)
    assert Ours(number=1, aside=1.0) == Ours(number=1, aside=2.0)
    assert replace(Ours(number=1), number=2) == Ours(number=2)
    assert len({Pair("a", 1), Pair("a"), Pair("a", 2)}) == 2
    with pytest.raises(AttributeError):
        Pair("a").other = 1
    with pytest.raises(TypeError):
        Ours(1)


def test_the_models_values_are_declared_so():
    kinds = [kind for name in model.__all__ if isinstance(kind := getattr(model, name), type)]
    values = [kind for kind in kinds if hasattr(kind, "__dataclass_fields__")]
    assert len(values) > 20
    for kind in values:
        assert "__dict__" not in dir(kind)
        assert not kind.__dataclass_params__.eq


WITHOUT_THE_MODEL = ("errors.py", "wire/", "system/", "attach/", "logdir.py", "quoting.py", "text.py", "process.py")
"""What may not import it, see test_imports."""


def test_what_does_not_change_is_declared_so_wherever_the_model_is_known():
    tpumon = REPOSITORY / "tpumon"
    found = [str(path.relative_to(tpumon)) for path in tpumon.rglob("*.py") if _COSTLY in path.read_text()]
    assert [name for name in found if not name.startswith(WITHOUT_THE_MODEL)] == []


_COSTLY = "@dataclass(frozen=True, slots=True"


def test_the_model_has_the_names_that_it_declares_and_no_others():
    assert all(getattr(model, name) is not None for name in model.__all__)
    with pytest.raises(AttributeError, match=r"'tpumon.model' has no attribute 'Fgures'"):
        _ = model.Fgures

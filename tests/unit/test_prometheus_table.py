"""An answer as columns: what is read at once is what reading series by series finds."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.prometheus import PrometheusServer
from tpumon.prometheus.table import rows_of
from tpumon.prometheus.wire import TroubleError

SERVER = PrometheusServer("http://h:9090")


def series(value="1", at=1_790_000_000.5, **labels):
    return {"metric": labels, "value": [at, value]}


def body(rows, **more):
    told = {"status": "success", "data": {"resultType": "vector", "result": rows}, **more}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()


def one_by_one(answer):
    """Rows as the general reader finds them; labels that a series lacks are left out."""
    return [({name: text for name, text in one.labels.items() if text}, one.points[-1][1]) for one in answer.series]


def rows(table):
    return [
        ({name: column[place] for name, column in table.columns.items() if column[place]}, value)
        for place, value in enumerate(table.values)
    ]


def at_once(raw):
    return rows_of(raw.decode(), 250_000, str) is not None


TEXTS = st.text(st.sampled_from('aw-0"\\{}[],:\x1b\n ü'), max_size=8)
NUMBERS = st.sampled_from(["0", "1", "-1.5", "1e-07", "0.25", "NaN", "+Inf", "x", "", "1795351100.334"])
LABELS = st.one_of(
    st.fixed_dictionaries({"__name__": TEXTS, "worker": TEXTS}),
    st.dictionaries(st.sampled_from(["__name__", "worker", "device"]), TEXTS),
)
ROWS = st.lists(st.builds(lambda labels, value: series(value, **labels), LABELS, NUMBERS), max_size=5)


@given(ROWS)
def test_both_ways_find_the_same(found):
    raw = body(found)
    assert rows(SERVER.read_table(200, raw)) == one_by_one(SERVER.read(200, raw))


@given(ROWS, st.integers(0, 400))
def test_what_is_cut_off_is_no_answer(found, length):
    raw = body(found)[: -1 - length]
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
        SERVER.read(200, raw)
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
        SERVER.read_table(200, raw)


def test_equal_labels_are_read_at_once_and_safe():
    raw = body([series(str(n), __name__="m", worker=f"w\x7f{n}") for n in range(3)], warnings=["a store is gone"])
    assert at_once(raw)
    table = SERVER.read_table(200, raw)
    assert table.values == [0, 1, 2]
    assert table.column("__name__") == ["m"] * 3
    assert all(worker.isprintable() for worker in table.column("worker"))
    assert table.column("device") == [""] * 3
    assert table.warnings == ["a store is gone"]


@pytest.mark.parametrize(
    "odd",
    [
        series(worker="w", device="0"),
        series("NaN", worker="w"),
        series(worker='w"'),
        series(worker='{"metric":{'),
        {"metric": {"worker": "w"}, "values": [[1, "1"]]},
        {"metric": {"worker": "w"}, "value": [1, 1]},
        {**series(worker="w"), "histogram": []},
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_differs_is_read_series_by_series(odd, place):
    found = [series(worker="a"), series(worker="b")]
    found.insert(place, odd)
    raw = body(found)
    assert not at_once(raw)
    table = SERVER.read_table(200, raw)
    assert rows(table) == one_by_one(SERVER.read(200, raw))
    assert all(map(math.isfinite, table.values))


def test_only_some_of_very_many_labels():
    raw = body([series(**{f"l{n:03}": "x" for n in range(100)})])
    assert not at_once(raw)
    assert len(SERVER.read_table(200, raw).columns) == 40


def test_a_refusal_is_one():
    raw = json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error"}).encode()
    with pytest.raises(TroubleError, match="parse error"):
        SERVER.read_table(400, raw)
    with pytest.raises(TroubleError, match="wrong user"):
        SERVER.read_table(401, b"\xff")

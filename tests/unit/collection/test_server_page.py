"""Pages of servers' metrics, written by hand as each version has them, and what two of them in a row give."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tpumon.collection.sources.server_page import ServerPage, figures_of, page_of
from tpumon.model import Percentiles, ServerFigures

VLLM_05 = """\
# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_swapped{model_name="m"} 1.0
vllm:num_requests_waiting{model_name="m"} 2.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:cpu_cache_usage_perc{model_name="m"} 0.9
vllm:num_preemptions_total{model_name="m"} 4.0
vllm:prompt_tokens_total{model_name="m"} 1000.0
vllm:generation_tokens_total{model_name="m"} 500.0
vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 0.0
vllm:time_to_first_token_seconds_bucket{le="0.2",model_name="m"} 10.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 10.0
vllm:time_to_first_token_seconds_count{model_name="m"} 10.0
vllm:time_to_first_token_seconds_sum{model_name="m"} 1.5
"""

VLLM_010 = """\
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
vllm:generation_tokens_total{engine="0",model_name="m"} 500.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.2",model_name="m"} 10.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10.0
"""

# Requests that wait by reason, tokens of prompts by source, two engines.
VLLM_032 = """\
vllm:num_requests_running{engine="0",model_name="m"} 1.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 0.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="m",reason="capacity"} 0.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="m",reason="deferred"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.1
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.4
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:num_preemptions_total{engine="1",model_name="m"} 0.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 400.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 600.0
vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 999.0
vllm:generation_tokens_total{engine="0",model_name="m"} 500.0
vllm:generation_tokens_total{engine="1",model_name="m"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.2",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1",model_name="m"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.2",model_name="m"} 6.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="m"} 6.0
"""

# As vllm-tpu 0.32.0 writes it: the logger of the package itself, with an engine of its own settings.
VLLM_TPU_032 = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="/m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="/m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="/m",reason="capacity"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="/m",reason="deferred"} 0.0
vllm:engine_sleep_state{engine="0",model_name="/m",sleep_state="awake"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="/m"} 0.25
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="/m"} 0.0
vllm:prompt_tokens_total{engine="0",model_name="/m"} 0.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="/m",source="local_compute"} 0.0
vllm:generation_tokens_total{engine="0",model_name="/m"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="/m"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="/m"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="/m"} 0.0
vllm:cache_config_info{block_size="16",engine="0",gpu_memory_utilization="0.92",kv_cache_memory_bytes="None",\
num_gpu_blocks="64"} 1.0
"""

JETSTREAM_022 = """\
# TYPE jetstream_prefill_backlog_size gauge
jetstream_prefill_backlog_size{id="host"} 2.0
jetstream_slots_available_percentage{id="host",idx="0"} 0.75
"""

JETSTREAM_HEAD = """\
jetstream_prefill_backlog_size{id="host",model_name="m"} 1.0
jetstream_transfer_backlog_size{id="host",idx="0",model_name="m"} 0.0
jetstream_generate_backlog_size{id="host",idx="0",model_name="m"} 1.0
jetstream_slots_used_percentage{id="host",idx="0",model_name="m"} 0.2
jetstream_slots_used_percentage{id="host",idx="1",model_name="m"} 0.3
num_requests_waiting{id="host",model_name="m"} 2.0
kv_cache_utilization_perc{id="host",model_name="m"} 25.0
jetstream_request_success_count_total{id="host",model_name="m"} 10.0
jetstream_request_input_length_sum{id="host",model_name="m"} 1000.0
jetstream_request_output_length_sum{id="host",model_name="m"} 500.0
jetstream_time_to_first_token_bucket{id="host",le="0.1",model_name="m"} 0.0
jetstream_time_to_first_token_bucket{id="host",le="0.25",model_name="m"} 10.0
jetstream_time_to_first_token_bucket{id="host",le="+Inf",model_name="m"} 10.0
"""

SGLANG_JAX = """\
# TYPE pd_state_transition_total counter
pd_state_transition_total{from_state="a",to_state="b"} 17.0
pd_transfer_inflight 2.0
"""

FIRST = "needs two readings of the server's metrics"
LACKS = "the server has no metric of this"
ODD = "the server's metric holds an impossible value"
ALL = {
    *("requests_running", "requests_waiting", "tokens_per_s", "prompt_tokens_per_s"),
    *("time_to_first_token_s", "kv_used_ratio", "preemptions_per_s", "kv_pool_hbm_ratio"),
}


def page(text: str) -> ServerPage:
    return page_of(text.encode())


def with_value(text: str, value: float | str, *starts: str) -> str:
    """The text with this value in the lines that begin so."""
    lines = [f"{line.rpartition(' ')[0]} {value}" if line.startswith(starts) else line for line in text.split("\n")]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "running", "engines"),
    [
        (VLLM_05, 3, None),
        (VLLM_010, 3, None),
        (VLLM_032, 3, 2),
        (VLLM_TPU_032, 3, None),
        (JETSTREAM_022, None, None),
        (JETSTREAM_HEAD, None, 2),
    ],
    ids=["vLLM 0.5", "vLLM 0.10", "vLLM 0.32", "vllm-tpu 0.32.0", "JetStream 0.2.2", "JetStream at its end"],
)
def test_gauges_of_each_version(text, running, engines):
    """Requests of all engines together; the cache's use is their mean. Nothing that needs two readings."""
    figures = figures_of(page(text), None, 0.0)
    expected = ServerFigures(requests_running=running, requests_waiting=2, kv_used_ratio=0.25, engines=engines)
    assert figures.server == expected
    rates = {"tokens_per_s", "prompt_tokens_per_s", "time_to_first_token_s", "preemptions_per_s"}
    assert figures.absent.keys() == rates | {"kv_pool_hbm_ratio"} | (set() if running else {"requests_running"})
    assert "how many bytes" in figures.absent["kv_pool_hbm_ratio"]
    if running:
        assert {figures.absent[rate] for rate in rates} == {FIRST}
    else:
        assert "not their number" in figures.absent["requests_running"]
        assert figures.absent["preemptions_per_s"] == LACKS


def test_rates_since_the_reading_before():
    """Counters of all engines are added up; a counter that stands still is a measured zero."""
    later = with_value(VLLM_032, 1000, 'vllm:generation_tokens_total{engine="0"', 'vllm:prompt_tokens_total{engine="1"')
    figures = figures_of(page(later), page(VLLM_032), 5.0)
    assert figures.server.tokens_per_s == pytest.approx(100)
    assert figures.server.prompt_tokens_per_s == pytest.approx(80)
    assert figures.server.preemptions_per_s == 0
    assert figures.absent["time_to_first_token_s"] == "no request got its first token since the reading before"
    assert figures.absent.keys() == {"time_to_first_token_s", "kv_pool_hbm_ratio"}


def test_jetstream_counts_tokens_when_a_request_ends():
    later = with_value(JETSTREAM_HEAD, 600, "jetstream_request_output_length_sum")
    figures = figures_of(page(later), page(JETSTREAM_HEAD), 10.0)
    assert figures.server.tokens_per_s == pytest.approx(10)
    assert figures.server.prompt_tokens_per_s == 0


def test_what_jetstream_0_2_2_lacks_is_absent():
    figures = figures_of(page(JETSTREAM_022), page(JETSTREAM_022), 5.0)
    assert figures.absent["tokens_per_s"] == figures.absent["time_to_first_token_s"] == LACKS
    assert figures.server.tokens_per_s is None


@pytest.mark.parametrize("text", [SGLANG_JAX, "\n", "# TYPE a gauge\na 1\n", "num_requests_waiting 3\n"])
def test_a_page_of_another_server_has_no_figures(text):
    """sglang-jax counts transfers only; a name that anybody may use says nothing by itself."""
    figures = figures_of(page(text), None, 0.0)
    assert figures.server is None
    assert figures.absent == dict.fromkeys(ALL, LACKS)


@pytest.mark.parametrize("spelt", ["vllm_", "kserve_vllm:", "kserve_vllm_"])
def test_names_that_were_rewritten(spelt):
    """The same figures; a page with both has each once."""
    rewritten = VLLM_010.replace("vllm:", spelt)
    assert figures_of(page(rewritten), None, 0.0) == figures_of(page(VLLM_010), None, 0.0)
    both = with_value(rewritten, 77, spelt) + VLLM_010
    assert figures_of(page(both), None, 0.0).server.requests_running == 3


@pytest.mark.parametrize("name", ["my_vllm:num_requests_running", "vllm:num_requests_running_max", "xvllm_num"])
def test_other_names_are_not_taken_for_it(name):
    assert page(f"{name} 5\n").names is None


def buckets(*counts: float, bounds: tuple[str, ...] = ("0.1", "0.2", "1.0", "+Inf")) -> str:
    rows = zip(bounds, counts, strict=True)
    return "".join(f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}} {count}\n' for bound, count in rows)


def first_token(before: str, now: str) -> tuple[Percentiles | None, str | None]:
    figures = figures_of(page(now), page(before), 5.0)
    assert figures.server is not None
    return figures.server.time_to_first_token_s, figures.absent.get("time_to_first_token_s")


def test_times_are_those_of_the_requests_since_the_reading_before():
    """100 requests before took less than 0.1 s; of ten since, eight took 0.1 to 0.2 s and two up to 1 s."""
    times, _ = first_token(buckets(100, 100, 100, 100), buckets(100, 108, 110, 110))
    assert times is not None
    assert times.p50 == pytest.approx(0.1 + 0.1 * 5 / 8)
    assert times.p95 == pytest.approx(0.2 + 0.8 * 1.5 / 2)


def test_the_first_bucket_begins_at_0():
    times, _ = first_token(buckets(0, 0, 0, 0), buckets(10, 10, 10, 10))
    assert times == Percentiles(p50=pytest.approx(0.05), p95=pytest.approx(0.095))


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (buckets(5, 5, 5, 5), buckets(5, 5, 5, 5), "no request"),
        (buckets(0, 0, 0, 0), buckets(0, 0, 5, 10), "above 1 s, where the server's buckets end"),
        (buckets(9, 9, 9, 9), buckets(1, 1, 1, 1), "began anew"),
        (buckets(0, 0, 0, 0), buckets(5, 4, 3, 2), ODD),
        (buckets(0, 0, 0, 0), buckets(0, 1, 2, math.nan), ODD),
        (buckets(0, 0, bounds=("0.1", "1")), buckets(1, 2, bounds=("0.1", "1")), ODD),
        (buckets(0, 0, bounds=("x", "+Inf")), buckets(1, 2, bounds=("x", "+Inf")), ODD),
        (buckets(0, 0, bounds=("-1", "+Inf")), buckets(1, 2, bounds=("-1", "+Inf")), ODD),
        (buckets(0, 0, bounds=("NaN", "+Inf")), buckets(1, 2, bounds=("NaN", "+Inf")), ODD),
    ],
)
def test_times_that_are_not_known_have_a_reason(before, now, why):
    times, reason = first_token(before, now)
    assert times is None
    assert why in (reason or "")


def test_a_server_that_was_restarted():
    """Its counters are lower than before, or of another engine: nothing is known of the time between."""
    text = 'vllm:generation_tokens_total{engine="0"} 100\n'
    for later in (text.replace("100", "7"), text.replace('"0"', '"1"')):
        assert figures_of(page(later), page(text), 5.0).absent["tokens_per_s"] == "the server's counters began anew"


def test_an_engine_that_is_new_began_at_0():
    text = 'vllm:generation_tokens_total{engine="0"} 100\n'
    later = f'{text}vllm:generation_tokens_total{{engine="1"}} 50\n'
    assert figures_of(page(later), page(text), 5.0).server.tokens_per_s == pytest.approx(10)


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "-Inf", "1e300"])
@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("vllm:num_requests_running", "requests_running"),
        ("vllm:num_requests_waiting", "requests_waiting"),
        ("vllm:kv_cache_usage_perc", "kv_used_ratio"),
        ("vllm:generation_tokens_total", "tokens_per_s"),
    ],
)
def test_impossible_values_are_absent(name, figure, value):
    """And cost no other figure."""
    text = with_value(VLLM_010, value, name)
    figures = figures_of(page(text), page(text), 5.0)
    assert getattr(figures.server, figure) is None
    assert figures.absent[figure] == ODD
    assert figures.server.preemptions_per_s == 0


def test_a_share_of_the_cache_in_percent_is_no_ratio():
    figures = figures_of(page(with_value(VLLM_010, 55.0, "vllm:kv_cache_usage_perc")), None, 0.0)
    assert figures.absent["kv_used_ratio"] == ODD


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "empty"),
        (b"\x80\x00\xff" * 100, "not text"),
        (VLLM_010.encode()[:-5], "cut"),
        (b"\n" * 200_000, "lines"),
        (b"".join(b'vllm:num_requests_running{a="%d"} 1\n' % n for n in range(20_000)), "series"),
        (b'vllm:num_requests_running{a="' + b"x" * 5000 + b'"} 1\n', "characters"),
        (b"vllm:num_requests_running{ 1\n", "no sample"),
        (b'vllm:num_requests_running{a="b} 1\n', "no sample"),
        (b"vllm:num_requests_running many\n", "no sample"),
        (b"vllm:num_requests_running \n", "no sample"),
        (b'vllm:num_requests_running{a="1"} 1\nvllm:num_requests_running{a="1"} 1\n', "twice"),
        (f"{VLLM_010}{JETSTREAM_022}".encode(), "two servers"),
        (b"<html>\n" * 10 + b"vllm:num_requests_running</html>", "cut"),
    ],
)
def test_what_is_no_page(body, why):
    with pytest.raises(ValueError, match=why):
        page_of(body)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(VLLM_032.splitlines()),
            st.tuples(st.sampled_from(["vllm:num_requests_running", "vllm:time_to_first_token_seconds_bucket"]),
                      st.text(max_size=40)).map("".join),
        ),
        max_size=12,
    )
)  # fmt: skip
@example(['vllm:num_requests_running{a="\\'])
@example(["vllm:num_requests_running 1 1 1 # {} 1"])
def test_whatever_stands_there(lines):
    """A page is read, or a ValueError says why not; figures of it are possible ones."""
    try:
        read = page_of("".join(f"{line}\n" for line in lines).encode())
    except ValueError:
        return
    server = figures_of(read, read, 1.0).server
    values = [getattr(server, name) for name in ALL if name != "time_to_first_token_s"] if server else []
    assert all(value is None or 0 <= value < 1e16 for value in values)

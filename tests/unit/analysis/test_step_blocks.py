"""Slow-downs of one program, by step times made up here: none in what varies by itself, and each that is true."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tpumon.analysis.findings.step_blocks import Slow, StepBlocks
from tpumon.analysis.history import Moment

DAY_S, WEEK_S = 86_400, 604_800


def normal(chance, cv, _interval_s, at_most):
    while True:
        steps = chance.randint(1, at_most)
        yield 1 + cv * chance.gauss(0, 1) / math.sqrt(steps), steps


def lognormal(chance, cv, _interval_s, at_most):
    sigma = math.sqrt(math.log(1 + cv * cv))
    while True:
        steps = chance.randint(1, at_most)
        yield sum(chance.lognormvariate(-sigma * sigma / 2, sigma) for _ in range(steps)) / steps, steps


def drifting(over_s):
    """It wanders about its mean; after so long it is elsewhere."""

    def wander(chance, cv, interval_s, at_most):
        stays = math.exp(-interval_s / over_s)
        at = chance.gauss(0, cv)
        while True:
            at = stays * at + chance.gauss(0, cv * math.sqrt(1 - stays * stays))
            yield 1 + at, chance.randint(1, at_most)

    return wander


def periodic(period_s):
    """Half of what varies is a wave, half is chance."""

    def wave(chance, cv, interval_s, at_most):
        angle = chance.uniform(0, math.tau)
        while True:
            angle += math.tau * interval_s / period_s
            steps = chance.randint(1, at_most)
            yield 1 + cv * math.sin(angle) + cv * chance.gauss(0, 0.7) / math.sqrt(steps), steps

    return wave


def odd_once_in(count):
    """Most are alike, and one in so many is longer: windows so short that few hold what comes in turn with the step."""

    def odd(chance, cv, _interval_s, _at_most):
        more = cv * count / math.sqrt(count - 1)
        while True:
            yield 1 + 0.01 * chance.gauss(0, 1) + (more if chance.random() < 1 / count else 0), 1

    return odd


NOISE = {
    "normal": normal,
    "lognormal": lognormal,
    **{f"drifting over {over_s} s": drifting(over_s) for over_s in (60, 600, 3600, 36_000)},
    **{f"periodic, {period_s} s": periodic(period_s) for period_s in (180, 3600, DAY_S)},
    **{f"odd once in {count}": odd_once_in(count) for count in (8, 32)},
}


def moments(interval_s, count):
    for number in range(count):
        yield Moment(interval_s * number)


def episodes(noise, cv, interval_s, length_s, seed):
    """The slow-downs that are found where there is none."""
    chance = random.Random(f"{noise} {cv} {interval_s} {seed}")
    blocks, found, was_slow = StepBlocks(), 0, False
    samples = NOISE[noise](chance, cv, interval_s, 3)
    for at in moments(interval_s, int(length_s / interval_s)):
        blocks.add(*next(samples), at)
        found += blocks.slow is not None and not was_slow
        was_slow = blocks.slow is not None
    return found


@pytest.mark.parametrize("noise", NOISE)
def test_what_varies_by_itself_is_no_slow_down(noise):
    assert [episodes(noise, cv, 60, WEEK_S / 4, 1) for cv in (0.01, 0.03, 0.05, 0.1)] == [0] * 4


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("interval_s", [1, 10, 60])
@pytest.mark.parametrize("noise", NOISE)
def test_of_noise_less_than_one_slow_down_is_found_a_month(noise, interval_s):
    """Four weeks."""
    assert sum(episodes(noise, cv, interval_s, WEEK_S, 2) for cv in (0.01, 0.03, 0.05, 0.1)) == 0


# Coefficient of variation of a step: samples within which docs/findings.md says that 6 % more are found.
WITHIN = {0.01: 24, 0.03: 120, 0.05: 300, 0.1: 1500}


def found_after(more, cv, noise, before, seed):
    """The number of samples after which so much longer steps are found, and the begin that is told."""
    samples = NOISE[noise](random.Random(seed), cv, 10, 3)
    blocks = StepBlocks()
    for number, at in enumerate(moments(10, before + 3000)):
        time_s, steps = next(samples)
        blocks.add(time_s * (1 + more if number >= before else 1), steps, at)
        if blocks.slow is not None:
            return number + 1 - before, blocks.slow.since.time_unix_s
    return math.inf, None


@pytest.mark.parametrize("noise", ["normal", "lognormal"])
@pytest.mark.parametrize("cv", [0.01, 0.03, *(pytest.param(cv, marks=pytest.mark.nightly) for cv in (0.05, 0.1))])
def test_six_percent_more_are_found_within_the_samples_that_the_noise_asks_for(cv, noise):
    """Since is right within as many samples as it took."""
    before = 20 * WITHIN[cv]
    for seed in range(4):
        after, since_unix_s = found_after(0.06, cv, noise, before, seed)
        assert 0 < after <= WITHIN[cv]
        assert since_unix_s == pytest.approx(10 * before, abs=10 * WITHIN[cv])


def test_half_as_much_again_is_found_within_three_samples():
    assert found_after(0.5, 0.03, "normal", 60, 1) == (3, 600)


def given(*parts, interval_s=10):
    """Blocks after so many samples of each of some step times, and how many samples of the last one were slow."""
    chance, blocks, slow, at = random.Random(1), StepBlocks(), [], itertools.count(step=interval_s)
    for time_s, count in parts:
        slow = []
        for _ in range(count):
            blocks.add(time_s * chance.gauss(1, 0.01), 2, Moment(next(at)))
            slow.append(blocks.slow is not None)
    return blocks, slow


def test_what_is_back_to_normal_is_over_with_the_second_sample():
    assert given((1, 50), (1.3, 30), (1, 5))[1] == [True, False, False, False, False]


def test_one_odd_sample_says_nothing():
    """Neither that steps are slow nor how slow they are."""
    assert not any(given((1, 50), (9, 1))[1])
    blocks, _ = given((1, 50), (1.1, 30), (5, 1))
    assert blocks.slow.now_s == pytest.approx(1.1, rel=0.03)


def test_samples_each_second_are_as_many_in_a_row_as_15_s_have():
    assert given((1, 60), (1.3, 17), interval_s=1)[1] == [False] * 15 + [True] * 2


def test_what_is_odd_now_and_then_must_be_so_more_often_in_a_row():
    assert given((1, 60), (1.35, 1), (1, 20), (1.35, 5))[1] == [False, False, False, True, True]


def test_after_a_change_for_good_a_slow_down_is_found_as_before():
    """Input that became faster, once."""
    assert given((1, 200), (0.9, 300), (1.15, 3))[1] == [False, False, True]


def test_going_back_to_what_was_usual_earlier_is_no_slow_down():
    """Some minutes of a faster input, say."""
    assert not any(given((1, 600), (0.9, 60), (1, 200))[1])


@pytest.mark.parametrize("slow", [1.0, 1.3])
def test_what_is_kept_goes_on(slow):
    blocks, _ = given((1, 100), (slow, 10))
    again = StepBlocks(blocks.kept, blocks.slow)
    for count in range(6):
        again.add(1.3, 2, Moment(10.0 * count))
        assert (again.slow is not None) is (slow > 1 or count >= 2)
    again.add(1.0, 2, Moment(60.0))
    again.add(1.0, 2, Moment(70.0))
    assert again.slow is None


def test_what_varies_by_nature_is_said():
    """A few samples of lengths between 1 and 3."""
    blocks, chance = StepBlocks(), random.Random(1)
    for _ in range(40):
        blocks.add(chance.uniform(1, 3), 1, Moment(0.0))
    assert blocks.limit_ratio > 0.5


def test_a_slow_down_without_the_blocks_that_showed_it_goes_on():
    """As a state file of another version may have it."""
    blocks = StepBlocks((), Slow(3, Moment(0.0), 0.1, 0.06, 0.12))
    for second in range(80):
        blocks.add(0.1, 1, Moment(float(second)))
    assert blocks.slow is None

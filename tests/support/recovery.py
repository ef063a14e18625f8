"""How soon something was well again, in words that are the same with every run on an idle machine."""

from __future__ import annotations

_STEPS = ((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (360.0, "6 min"))


def within(duration_s: float) -> str:
    """A duration in seconds, rounded up far: "< 10 s"."""
    return next((f"< {words}" for limit_s, words in _STEPS if duration_s < limit_s), "6 min and more")


def after_queries(count: int) -> str:
    """The same where figures come with a query, counted from the end of the fault on."""
    return "the next query" if count == 1 else f"{count} queries"

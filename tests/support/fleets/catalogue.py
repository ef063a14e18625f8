"""All fleets of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from support.fleets import changing, collecting, real, shares_of_time
from support.fleets.courses import Fleet

KINDS: Mapping[str, Callable[[], Iterator[Fleet]]] = {
    make.__name__: make
    for make in (
        collecting.stragglers, collecting.slow_parts, collecting.by_design,
        shares_of_time.inputs, shares_of_time.hosts, shares_of_time.late_hosts, shares_of_time.transfers,
        shares_of_time.rates,
        shares_of_time.communication, shares_of_time.scopes,
        changing.slow_downs, changing.noises, changing.programs, changing.silences, changing.memory, changing.holes,
        changing.not_observed,
        real.cuts,
    )
}  # fmt: skip
"""By name, what makes the fleets of a kind."""

"""The one sampler of a host: commands that only show read a tpumon that samples its jobs already."""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from tpumon.collection.event_sources import NearbySource
from tpumon.collection.remote.nearby import find_nearby
from tpumon.discovery.host.processes import user_named
from tpumon.pipeline import FeedSettings

_log = logging.getLogger(__name__)


def with_one_sampler(settings: FeedSettings) -> FeedSettings:
    """The settings with a tpumon of this host as the source of samples, if it may be read and answers; says so."""
    if settings.nearby_level is None or not settings.origin.takes_samples:
        return settings
    page = asyncio.run(find_nearby(settings.nearby_level))
    if page is None:
        return settings
    _log.warning(
        "showing what %s, a tpumon of user %s on this host, samples; to sample here instead, give an "
        "option of sampling, such as --max-duty 0.01",
        page.name,
        user_named(page.uid),
    )
    return replace(settings, origin=NearbySource(page, settings.origin))

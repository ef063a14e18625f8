"""A channel to a worker that no fake source calls."""

from __future__ import annotations


class NoClient:
    """Is opened and closed, and nothing else."""

    def __init__(self, address):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        pass

    async def close(self):
        pass

"""`tpumon doctor`: what is here, what answers, what would be used, and why not.

Safe to paste into an issue: no environment, no tokens, no names of users.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Literal

from msgspec.structs import replace

from tpumon.cli.commands.doctor.checklist import render
from tpumon.cli.commands.doctor.diagnosis import Diagnosis, diagnose
from tpumon.cli.commands.doctor.problems import problems_of
from tpumon.discovery.selection import Selection, find_now
from tpumon.errors import NoTargetError
from tpumon.model.documents import encoded
from tpumon.system.console import show

_SCHEMA_VERSION = 1


def run(*, where: Selection, output: Literal["text", "json"] = "text", use_proxy: bool = False) -> int:
    """Looks around for a few seconds and prints the diagnosis.

    Returns:
        0; 3 if no figure is available.
    """
    diagnosis = asyncio.run(_diagnose(where, use_proxy=use_proxy))
    diagnosis = replace(diagnosis, problems=(*diagnosis.problems, *problems_of(diagnosis)))
    if output == "json":
        show(encoded({"schema": _SCHEMA_VERSION, **diagnosis.to_json()}))
    else:
        show("\n".join(render(diagnosis)))
    return 0 if diagnosis.usable else NoTargetError.exit_status


async def _diagnose(where: Selection, *, use_proxy: bool) -> Diagnosis:
    local = not (where.addresses or where.simulate or where.tpus or where.targets_file)
    async with AsyncExitStack() as stack:
        find = None if local else partial(find_now, where, stack)
        return await diagnose(find, port=where.port, use_proxy=use_proxy, pages=tuple(where.server_metrics.values()))

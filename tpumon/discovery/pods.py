"""Adds the pod in which the workers of this node run, where the kubelet says so."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from tpumon.collection.sources.pod_resources import pods_with_tpus
from tpumon.discovery.finder import Discovery, Refreshed
from tpumon.errors import SourceError
from tpumon.model import Pod, Target
from tpumon.untrusted_text import unexpected

_log = logging.getLogger(__name__)

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
"""The kubelet's; absent where there is none, or where it is not mounted into tpumon's container."""

_ASK_S = 30.0  # a job may start again in another pod, and everything else stays
_ANSWER_S = 2.0  # workers wait for it

_ask_kubelet = partial(pods_with_tpus, timeout_s=_ANSWER_S)


class WithPods(Refreshed):
    """Another discovery's workers of this node, with the pod that holds its TPUs.

    If several containers hold some, no worker gets one: the kubelet tells neither processes nor the pods' UIDs, which
    are all that a process's cgroup names, so nothing says whose which worker is.

    Args:
        discovery: finds the workers.
        socket: the kubelet's.
        ask: asks it.
        every_s: how often, besides each time when the workers have changed.
    """

    def __init__(
        self,
        discovery: Discovery,
        *,
        socket: Path = SOCKET,
        ask: Callable[[str], Awaitable[Collection[Pod]]] = _ask_kubelet,
        every_s: float = _ASK_S,
    ) -> None:
        super().__init__(discovery, every_s)
        self._socket = socket
        self._ask = ask
        self._pod: Pod | None = None
        self._said = False

    def _complete(self, targets: Sequence[Target]) -> Iterator[Target]:
        return (replace(target, pod=self._pod) for target in targets)

    async def _look(self, targets: Sequence[Target]) -> bool:
        self._pod = await self._only_pod() if targets else None
        return bool(targets)

    async def _only_pod(self) -> Pod | None:
        """The only container that holds TPUs; None: there is none, there are several, or it is not known."""
        try:
            self._socket.stat()
            pods = await self._ask(str(self._socket))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            why = "permission denied; tpumon must run as root for that"
        except SourceError as error:
            why = error.message
        except OSError as error:
            why = error.strerror or str(error)
        except Exception as error:  # noqa: BLE001 - whatever it answers
            why = unexpected(error)
        else:
            return next(iter(pods)) if len(pods) == 1 else None
        if not self._said:
            self._said = True
            _log.warning("%s: %s; workers go without the names of their pods", self._socket, why)
        return None

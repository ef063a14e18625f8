"""The metrics page of one simulated server of models, with vLLM's names."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from tpumon.errors import TpumonError
from tpumon.model import SIMULATED_MARK
from tpumon.simulator.scenario import SimulatedJob, to_ns

_LABELS = '{engine="0",model_name="simulated"}'


class ServerMetricsPage:
    """A page at /metrics, which can be closed and opened again on the same port.

    Args:
        job: the simulated job.
        host: address to bind.
        port: 0 for any free port; it is kept for later starts.
        clock: returns the seconds since the epoch.
        epoch_unix_ns: when the job started.
    """

    def __init__(
        self, job: SimulatedJob, *, host: str, port: int, clock: Callable[[], float], epoch_unix_ns: int
    ) -> None:
        self._job = job
        self._host = host
        self._port = port
        self._clock = clock
        self._epoch_unix_ns = epoch_unix_ns
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """URL of the page; with port 0, valid only after the first start."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/metrics"

    async def start(self) -> None:
        """Opens the port.

        Raises:
            TpumonError: the port is taken.
        """
        application = web.Application()
        application.router.add_get("/metrics", self._get)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise TpumonError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}; choose another port with --port"
            ) from None
        self._port = runner.addresses[0][1]
        self._runner = runner

    async def stop(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _get(self, _request: web.Request) -> web.Response:
        now_ns = to_ns(self._clock()) - self._epoch_unix_ns
        return web.Response(text=metrics_page(self._job, now_ns))


def metrics_page(job: SimulatedJob, now_ns: int) -> str:
    """The page at a moment, in nanoseconds since the job's start."""
    served = job.requests(now_ns)
    values = {
        "num_requests_running": served.running,
        "num_requests_waiting": served.waiting,
        "kv_cache_usage_perc": served.kv_ratio,
        "generation_tokens_total": served.tokens,
        "prompt_tokens_total": 4 * served.tokens,
        "num_preemptions_total": served.preemptions,
    }
    lines = [f"# {SIMULATED_MARK}"]
    for name, value in values.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE vllm:{name.removesuffix('_total')} {kind}", f"vllm:{name}{_LABELS} {value}"]
    return "\n".join(lines) + "\n"

"""One process following many exporters of one worker each: CPU share, exchanges a second, age of samples, RSS.

Another process plays 2,304 exporters, with a sample of 4 KB each 10 s. The time to the first picture and to a sample of
each is of a start; the rest is of the minute after. CPU is of the source alone, without judging or showing anything.

python tests/bench/many_exporters.py [exporters]
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.sample_kinds import traced
from tpumon.collection.remote import RemoteFleet
from tpumon.model import Sample, Workers

INTERVAL_S = 10.0
MEASURED_S = 60.0
OLD_S = 60.0  # what an exporter remembers

_ASKED = re.compile(rb"GET /(\d+)/samples\?(?:after=(\d+))?")


async def play(exporters: int) -> None:
    """Answers for all exporters, by the number in the path; prints the port."""
    kind = replace(traced(), interval_s=INTERVAL_S, took_s=1.2, findings=(), judged=())
    template = json.dumps(kind.to_json() | {"worker": "WORKER", "time_unix_s": "TIME"})
    began_s = time.time()

    def page(number: int, after: int | None) -> bytes:
        now_s = time.time()
        phase_s = INTERVAL_S * number / exporters
        newest = int((now_s - began_s - phase_s) / INTERVAL_S + 10)
        first = newest if after is None else max(after + 1, newest - int(OLD_S / INTERVAL_S))
        samples = (
            template.replace("WORKER", f"w{number}").replace(
                '"TIME"', f"{began_s + phase_s + INTERVAL_S * (each - 10) - kind.took_s:.3f}"
            )
            for each in range(first, newest + 1)
        )
        header = {
            "schema": 1, "tpumon": "1", "run": f"{number:016x}", "via": [], "now_unix_s": now_s, "sequence": newest,
            "level": 2, "waiting": None, "changed": 0, "statuses": [], "changes": [], "not_judged": [],
            "targets": [{"worker": f"w{number}", "address": "localhost:9999", "job": "job", "slice": "0"}],
        }  # fmt: skip
        return f'{json.dumps(header)[:-1]}, "samples": [{", ".join(samples)}]}}'.encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = _ASKED.match(await reader.read(65536))
        if asked is None:  # the other process has ended
            writer.close()
            return
        body = page(int(asked[1]), int(asked[2]) if asked[2] else None)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def follow(port: int, exporters: int) -> None:
    """Follows them, and prints what it costs."""
    ages_s: list[float] = []
    seen: set[str] = set()
    began_s = time.monotonic()
    first_s: list[float] = []
    all_s: list[float] = []
    complete = asyncio.Event()

    def take(event: object) -> None:
        if isinstance(event, Workers) and event.targets and not first_s:
            first_s.append(time.monotonic() - began_s)
        if isinstance(event, Sample):
            seen.add(event.worker)
            ages_s.append(time.time() - event.time_unix_s - event.took_s)
            if len(seen) == exporters and not all_s:
                all_s.append(time.monotonic() - began_s)
                complete.set()

    fleet = RemoteFleet(",".join(f"http://127.0.0.1:{port}/{number}" for number in range(exporters)))
    task = asyncio.create_task(fleet.feed(take))
    await complete.wait()
    print(f"first workers after {first_s[0]:.2f} s, a sample of each after {all_s[0]:.2f} s")
    await asyncio.sleep(2 * INTERVAL_S)
    ages_s.clear()
    before_s, then_s = time.process_time(), time.monotonic()
    await asyncio.sleep(MEASURED_S)
    share = (time.process_time() - before_s) / (time.monotonic() - then_s)
    spread = quantiles(ages_s, n=100)
    print(
        f"{exporters} exporters: {share:.1%} of a core, {len(ages_s) / MEASURED_S:.0f} samples a second, "
        f"age when they come: median {spread[49]:.1f} s, p95 {spread[94]:.1f} s, largest {max(ages_s):.1f} s; "
        f"RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB"
    )
    task.cancel()


def main(exporters: int) -> None:
    with subprocess.Popen([sys.executable, __file__, "play", str(exporters)], stdout=subprocess.PIPE) as player:
        assert player.stdout is not None
        try:
            asyncio.run(follow(int(player.stdout.readline()), exporters))
        finally:
            player.kill()


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        asyncio.run(play(int(sys.argv[2])))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 2304)

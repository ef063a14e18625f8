"""The exporter's endpoint under attack: how many scrapes are answered within a second, and the CPU that it takes.

The attacks are those of tests/component/edge/test_edge_http.py, each for 5 s. Targets: 95 % of scrapes where the
attacker has another address, 80 % where it has the same; half a core.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "component" / "edge")]

from test_edge_http import OTHER, PASSWORD, SCRAPER, ask, attackers, basic, exporter, hashed, idle_connections  # noqa: E402

ATTACK_S, SCRAPES = 5.0, 20


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def scrape(name: str, port: int, pid: int, authorization: str | None = None) -> None:
    """Scrapes for as long as the attack lasts, and prints what came of it."""
    quick, before_s, began_s = 0, cpu_s(pid), time.monotonic()
    for number in range(SCRAPES):
        start_s = time.monotonic()
        quick += ask(port, authorization=authorization) == 200 and time.monotonic() - start_s < 1.0
        time.sleep(max(0.0, began_s + (number + 1) * ATTACK_S / SCRAPES - time.monotonic()))
    share = (cpu_s(pid) - before_s) / (time.monotonic() - began_s)
    print(f"{name}: {quick} of {SCRAPES} scrapes within 1 s; {share:.0%} of a core", flush=True)


def main() -> None:
    for source in (OTHER, SCRAPER):
        whose = "another address" if source == OTHER else "the scraper's address"
        with exporter() as (port, pid), idle_connections(port, source):
            time.sleep(0.5)  # until all places are taken
            scrape(f"200 idle connections a second from {whose}", port, pid)
    with tempfile.TemporaryDirectory() as directory:
        users = Path(directory, "web.yml")
        users.write_text(hashed())
        for name, authorization in (("no credentials", None), ("wrong passwords", basic("guess"))):
            with exporter("--web-config", str(users)) as (port, pid):

                def attack(over, port=port, authorization=authorization):
                    ask(port, source=OTHER, authorization=authorization)
                    over.wait(0.2)

                with attackers(30, attack):
                    ask(port, authorization=basic(PASSWORD))
                    scrape(f"30 clients with {name}", port, pid, basic(PASSWORD))


if __name__ == "__main__":
    main()

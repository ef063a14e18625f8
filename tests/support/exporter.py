"""A running exporter that is told what a test wants it to show, and who asks it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from support import require, samples
from support.samples import failed_sample
from support.wired import Wired
from tpumon.model import MOST_OPS, Sample, Target, Workers
from tpumon.outputs import OutputSettings
from tpumon_exporters.prometheus import open_prometheus


def found(*workers: str) -> Workers:
    """These workers, at port 9999 of their names."""
    return Workers(targets=tuple(Target(worker=worker, address=f"{worker}:9999") for worker in workers))


def sample(worker: str = "w", *, reason: str | None = None, time_unix_s: float | None = None, **figures) -> Sample:
    """One that was taken just now, or failed for that reason."""
    usual = {
        "address": f"{worker}:9999",
        "time_unix_s": time.time() if time_unix_s is None else time_unix_s,
        "took_s": 1.25,
        "interval_s": 60.0,
    }
    if reason is not None:
        return failed_sample(worker, reason, reason, **(usual | figures))
    return samples.sample(worker, **(usual | {"mxu_utilization_ratio": 0.425} | figures))


@contextmanager
def serving(
    *workers: str, where: str = "127.0.0.1:0", web_config: Path | None = None, **context: Any
) -> Iterator[Wired]:
    """An exporter that follows these workers and knows nothing of them yet."""
    options = OutputSettings(web_config=None if web_config is None else str(web_config), ops=MOST_OPS)
    with closing(Wired(lambda given: open_prometheus(where, given), settings=options, **context)) as output:
        output.add(found(*workers))
        yield output


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def get(output: Wired, path: str, *, method: str = "GET", tls: ssl.SSLContext | None = None, **headers: str) -> Answer:
    """Asks it; refusals are answers, too. `Accept_Encoding="gzip"` is a header."""
    request = urllib.request.Request(
        f"{'http' if tls is None else 'https'}://{output.address}{path}",
        method=method,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
    handlers: Sequence[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if tls is not None:
        handlers = [*handlers, urllib.request.HTTPSHandler(context=tls)]
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=20) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return Answer(refusal.code, refusal.headers, refusal.read())


def certificates(directory: Path) -> Path:
    """There: `ca.crt`, and `server` and `client`, each `.crt` and `.key`, which it signed; for 127.0.0.1."""
    require(shutil.which("openssl"), "openssl")
    _openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=tests", "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        _openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        _openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                 "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.crt")  # fmt: skip
    return directory


def _openssl(directory: Path, *args: str) -> None:
    subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True, timeout=30)

"""Google's TPU API and a metadata server, on a port of this machine.

with Google() as google:
    google.nodes["my-tpu"] = node("my-tpu", ["10.0.0.2", "10.0.0.3"])
    ...  # google.environment(), google.requests
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

PROJECT, ZONE = "my-project", "us-central2-b"
_METADATA = "/computeMetadata/v1/"


def node(name: str, ips: list[str], state: str = "READY", **more: Any) -> dict[str, Any]:
    """A TPU as API v2 describes it."""
    endpoints = [{"ipAddress": ip, "port": 8470, "accessConfig": {"externalIp": "203.0.113.9"}} for ip in ips]
    return {
        "name": f"projects/{PROJECT}/locations/{ZONE}/nodes/{name}",
        "acceleratorType": "v5litepod-16",
        "state": state,
        "runtimeVersion": "v2-alpha-tpuv5-lite",
        "health": "HEALTHY",
        "apiVersion": "V2",
        "networkEndpoints": endpoints,
    } | more


@dataclass
class Google:
    """Both servers on one port.

    Attributes:
        nodes: TPUs by name.
        failures: statuses to answer the next requests to the API with, before anything else.
        token_lasts_s: lifetime of new tokens.
        valid: the tokens that the API takes; every new one is added.
        gives_tokens: whether the metadata server does.
        requests: paths asked for, without the ping and what google-auth wants to know of the account.
    """

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    token_lasts_s: int = 3600
    valid: set[str] = field(default_factory=set)
    gives_tokens: bool = True
    requests: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    raw: bytes | None = None

    def __enter__(self) -> Self:
        google = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body, kind = google._answer(
                    self.path, {name.lower(): value for name, value in self.headers.items()}
                )
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Location", "http://203.0.113.1/elsewhere")
                if self.path.startswith(_METADATA) or self.path == "/":
                    self.send_header("Metadata-Flavor", "Google")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = "{}:{}".format(*self._server.server_address)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def lookups(self) -> list[str]:
        """The names of the TPUs that were asked for."""
        return [path.rpartition("/")[2] for path in self.requests if path.startswith("/v2/")]

    def environment(self, home: Path) -> dict[str, str]:
        """Of a process whose whole world this is."""
        return {
            "GCE_METADATA_HOST": self.host,
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"http://{self.host}/",
            "CLOUDSDK_CONFIG": str(home),
            "HOME": str(home),
        }

    def _answer(self, path: str, headers: dict[str, str]) -> tuple[int, bytes, str]:
        path = urlsplit(path).path
        if path == "/":
            return 200, b"computeMetadata/", "text/plain"
        if path.startswith(_METADATA):
            if headers.get("metadata-flavor") != "Google":
                return 403, b"Missing Metadata-Flavor:Google header.", "text/html"
            return self._metadata(path.removeprefix(_METADATA))
        self.requests.append(path)
        return self._api(path, headers)

    def _metadata(self, key: str) -> tuple[int, bytes, str]:
        match key.rstrip("/"):
            case "instance/zone":
                return 200, f"projects/123/zones/{ZONE}".encode(), "text/plain"
            case "project/project-id":
                return 200, PROJECT.encode(), "text/plain"
            case "instance/service-accounts/default" | "instance/service-accounts/tpu@my-project.iam":
                account = {"email": "tpu@my-project.iam", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
                return 200, json.dumps(account).encode(), "application/json"
            case "universe/universe-domain":
                return 200, b"googleapis.com", "text/plain"
        if key.endswith("/token") and self.gives_tokens:
            token = f"secret-token-{len(self.tokens)}"
            self.tokens.append(token)
            self.valid.add(token)
            reply = {"access_token": token, "expires_in": self.token_lasts_s, "token_type": "Bearer"}
            return 200, json.dumps(reply).encode(), "application/json"
        return 404, b"", "text/plain"

    def _api(self, path: str, headers: dict[str, str]) -> tuple[int, bytes, str]:
        if self.failures:
            return self._error(self.failures.pop(0), "what went wrong\x1b[31m")
        if headers.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            return self._error(401, "Request had invalid authentication credentials.")
        if self.raw is not None:
            return 200, self.raw, "application/json"
        for name, node in self.nodes.items():
            if path == f"/v2/projects/{PROJECT}/locations/{ZONE}/nodes/{name}":
                return 200, json.dumps(node).encode(), "application/json"
        return self._error(404, f"Resource '{path}' was not found")

    @staticmethod
    def _error(status: int, message: str) -> tuple[int, bytes, str]:
        return status, json.dumps({"error": {"code": status, "message": message}}).encode(), "application/json"

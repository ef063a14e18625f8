"""The TPU API and this machine's metadata server, over HTTP. Blocks: call it in a thread.

Needs the extra `gcp` (google-auth, requests), imported only here and only when used. No text that leaves this file
contains any part of a credential.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import warnings
from typing import Any, NoReturn
from urllib.parse import urlsplit

from msgspec import Struct

from tpumon.errors import TpumonError, UsageError
from tpumon.system.extras import how_to_install
from tpumon.untrusted_text import one_line

ENDPOINT = "https://tpu.googleapis.com/"
_ENDPOINT_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"  # as gcloud calls it
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)

_API_S = 10.0
_METADATA_S = 3.0
LOOKUP_S = 45.0
"""Longest lookup. Without credentials google-auth looks for a metadata server for about ten seconds."""


class ApiError(TpumonError):
    """The TPU API did not say where a TPU is; the message is one line and says what to do.

    Attributes:
        passing: whether asking again later may help.
    """

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


class ApiNode(Struct, frozen=True, kw_only=True):
    """A TPU as the API describes it.

    Attributes:
        state: for example READY, CREATING, PREEMPTED.
        health: for example HEALTHY, UNHEALTHY_MAINTENANCE; None if it says nothing.
        health_words: its explanation of that.
        is_tpu_node: whether it is of the older kind, which is reached through Google's own server.
        job: name of the queued resource whose slices work together; None: it is no part of one.
        ips: internal addresses of its workers, in their order; None for one without an address yet.
    """

    state: str
    health: str | None
    health_words: str
    is_tpu_node: bool
    ips: tuple[str | None, ...]
    job: str | None = None


class TpuApi:
    """Looks TPUs up by name.

    Args:
        zone: of the TPUs; None: this machine's.
        project: of the TPUs; None: that of the credentials, or this machine's.
        endpoint: of the API; None: Google's, or CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU.
    """

    def __init__(self, *, zone: str | None, project: str | None, endpoint: str | None = None) -> None:
        self._zone = zone
        self._project = project
        self._endpoint = (endpoint or os.environ.get(_ENDPOINT_VARIABLE) or ENDPOINT).rstrip("/")
        self._session: Any = None

    @property
    def zone(self) -> str:
        """The zone; empty while unknown."""
        return self._zone or ""

    def node(self, name: str) -> ApiNode:
        """Looks a TPU up, by one GET of the TPU API v2: projects.locations.nodes.get.

        Raises:
            UsageError: an option or a package is missing.
            ApiError: the API did not describe this TPU.
        """
        import requests
        from google.auth import exceptions

        self._open(name)
        url = f"{self._endpoint}/v2/projects/{self._project}/locations/{self._zone}/nodes/{name}"
        try:
            # A token goes to the API and nowhere else.
            response = self._session.get(url, timeout=_API_S, allow_redirects=False)
        except exceptions.RefreshError as error:
            if error.retryable:
                raise ApiError("cannot get a token for the TPU API now", passing=True) from None
            raise _no_credentials("they were refused") from None
        except requests.Timeout:
            raise ApiError(f"the TPU API did not answer within {_API_S:.0f} s", passing=True) from None
        except (requests.RequestException, exceptions.GoogleAuthError) as error:
            words = f"the TPU API cannot be reached ({type(error).__name__}); check the way to {self._endpoint}"
            raise ApiError(words, passing=True) from None
        if response.status_code != requests.codes.ok:
            self._raise_error(name, response)
        try:
            return _node(response.json())
        except (ValueError, TypeError, AttributeError):
            raise ApiError(f"what answers at {self._endpoint} is not the TPU API", passing=True) from None

    def _open(self, name: str) -> None:
        """Finds credentials, zone and project, once."""
        if self._session is not None:
            return
        import google.auth
        from google.auth import exceptions
        from google.auth.transport.requests import AuthorizedSession

        _check_endpoint(self._endpoint)
        self._zone = self._zone or _metadata("instance/zone").rpartition("/")[2]
        if not self._zone:
            raise UsageError(f"--tpu {name}: give its --zone; this machine's own is unknown (no metadata server)")
        _quiet()
        try:
            credentials, project = google.auth.default(scopes=_SCOPES)
        except (exceptions.GoogleAuthError, OSError, ValueError):  # also a file that is broken, or may not be read
            raise _no_credentials("none found") from None
        self._project = self._project or project or _metadata("project/project-id")
        if not self._project:
            raise UsageError(f"--tpu {name}: give its --project; the credentials do not say one")
        make_session: Any = AuthorizedSession  # without types
        self._session = make_session(credentials, max_refresh_attempts=1, refresh_timeout=_API_S)

    def _raise_error(self, name: str, response: Any) -> NoReturn:
        """Raises the error that an HTTP status means to a user."""
        status = response.status_code
        said = _error_text(response)
        where = f"zone {self._zone} of project {self._project}"
        match status:
            case 401:
                raise _no_credentials("they were refused")
            case 403:
                words = f"these credentials may not look up TPUs in {where}; they need tpu.nodes.get (TPU Viewer)"
            case 404:
                words = f"there is no TPU {name} in {where}; `gcloud compute tpus tpu-vm list --zone Z` names them"
            case 429:
                words = "the TPU API's quota is used up for now"
            case _:
                words = f"the TPU API failed ({status})"
        passing = status not in {400, 403, 404}
        raise ApiError(f"{words}{': ' + said if said and status != 404 else ''}", passing=passing)


def _node(reply: dict[str, Any]) -> ApiNode:
    if not reply.get("name"):
        raise ValueError
    ips = [endpoint.get("ipAddress") for endpoint in reply.get("networkEndpoints") or ()]
    return ApiNode(
        state=str(reply.get("state") or "UNKNOWN"),
        health=reply.get("health"),
        health_words=one_line(str(reply.get("healthDescription") or "")),
        is_tpu_node=str(reply.get("apiVersion") or "").startswith("V1"),
        ips=tuple(str(ipaddress.ip_address(ip)) if ip else None for ip in ips),
        job=one_line(str(reply.get("queuedResource") or "").rpartition("/")[2]) or None
        if reply.get("multisliceNode") is True
        else None,
    )


def _error_text(response: Any) -> str:
    try:
        return one_line(str(response.json()["error"]["message"]), limit=160)
    except (ValueError, KeyError, TypeError):
        return ""


def _metadata(path: str) -> str:
    """A value of this machine's metadata server; empty if there is none."""
    import requests

    host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    with requests.Session() as session:
        session.trust_env = False  # a proxy cannot reach it
        try:
            answer = session.get(
                f"http://{host}/computeMetadata/v1/{path}",
                headers={"Metadata-Flavor": "Google"},
                timeout=_METADATA_S,
                allow_redirects=False,
            )
        except requests.RequestException:
            return ""
    is_google = answer.status_code == requests.codes.ok and answer.headers.get("Metadata-Flavor") == "Google"
    return one_line(answer.text) if is_google else ""


def _check_endpoint(endpoint: str) -> None:
    """Refuses an endpoint to which a token would go unencrypted."""
    parts = urlsplit(endpoint)
    loopback = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    if parts.scheme != "https" and not (parts.scheme == "http" and loopback):
        raise UsageError(f"the TPU API's endpoint {one_line(endpoint)!r} is not https://; unset {_ENDPOINT_VARIABLE}")


def _quiet() -> None:
    """Keeps google-auth from writing to stderr; what matters arrives as an exception."""
    logging.getLogger("google.auth").addHandler(logging.NullHandler())
    logging.getLogger("google.auth").propagate = False
    warnings.filterwarnings("ignore", message="Your application has authenticated using end user credentials")
    # It tries this address, not the host's, before it believes that there is a metadata server.
    if host := os.environ.get("GCE_METADATA_HOST"):
        os.environ.setdefault("GCE_METADATA_IP", host)


def _no_credentials(why: str) -> ApiError:
    return ApiError(
        f"no credentials for the TPU API ({why}); run `gcloud auth application-default login`, or run on a VM whose "
        "service account may view TPUs",
        passing=False,
    )


def check_installed() -> None:
    """Checks that the extra `gcp` is installed.

    Raises:
        UsageError: it is not.
    """
    try:
        import google.auth.transport.requests  # noqa: F401
        import requests  # noqa: F401
    except ImportError:
        raise UsageError(f"--tpu needs google-auth and requests: {how_to_install('gcp')}") from None

"""Time, software and profiler options of a capture, as its trace says."""

from __future__ import annotations

from google.protobuf.message import DecodeError
from msgspec import Struct

from tpumon.proto.profiler_pb2 import ProfileOptions
from tpumon.untrusted_text import one_line
from tpumon.xspace.planes.plane import Value
from tpumon.xspace.planes.space import Space, time_ns

_VERSIONS = ("jax_version", "jaxlib_version", "tpu_version", "libtpu_version", "tensorflow_version")
_OPTIONS = (
    "host_tracer_level",
    "device_tracer_level",
    "python_tracer_level",
    "enable_hlo_proto",
    "include_dataset_ops",
    "duration_ms",
)
_DEVICES = {0: "all", 1: "CPU", 2: "GPU", 3: "TPU", 4: "pluggable"}
_MOST_OPTIONS = 50


class CaptureEnvironment(Struct, frozen=True, kw_only=True, eq=False):
    """Where and how a host's trace was taken.

    Attributes:
        start_unix_s: when the window began; None where the trace does not say.
        duration_s: of the window, as the profiler says.
        versions: of software, by name.
        options: of the profiler, by name, as text.
    """

    start_unix_s: float | None = None
    duration_s: float | None = None
    versions: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()


def read_environment(space: Space) -> CaptureEnvironment:
    """Reads the planes that say it."""
    stats = space.environment
    start_ns, stop_ns = (time_ns(stats, f"profile_{end}_time") for end in ("start", "stop"))
    named = {**(space.metadata.stats if space.metadata else {}), **stats}
    return CaptureEnvironment(
        start_unix_s=None if start_ns is None else start_ns / 1e9,
        duration_s=(stop_ns - start_ns) / 1e9 if start_ns and stop_ns and stop_ns >= start_ns else None,
        versions=tuple((name, one_line(str(named[name]))) for name in _VERSIONS if isinstance(named.get(name), str)),
        options=_options(stats.get("profile_options")),
    )


def _options(raw: Value | None) -> tuple[tuple[str, str], ...]:
    if not isinstance(raw, bytes):
        return ()
    try:
        message = ProfileOptions.FromString(raw)
    except DecodeError:
        return ()
    shown = [(name, str(getattr(message, name)).lower()) for name in _OPTIONS]
    shown.append(("device_type", _DEVICES.get(message.device_type, str(message.device_type))))
    for name, value in list(message.advanced_configuration.items())[:_MOST_OPTIONS]:
        kind = value.WhichOneof("value")
        if kind is not None:
            shown.append((one_line(name), one_line(str(getattr(value, kind)))))
    return tuple(shown)

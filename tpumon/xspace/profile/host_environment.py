"""What a trace says of where and how it was taken."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError
from msgspec import Struct

from tpumon.proto.profiler_pb2 import ProfileOptions
from tpumon.untrusted_text import one_line
from tpumon.xspace.planes.plane import Plane, Value
from tpumon.xspace.profile.planes import ENVIRONMENT, METADATA, find_plane
from tpumon.xspace.wire.stored import Stored

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


class Surroundings(Struct, frozen=True, kw_only=True, eq=False):
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


def read_surroundings(stored: Stored) -> Surroundings:
    """Reads the planes that say it.

    Raises:
        SourceError: `malformed`.
    """
    environment, metadata = find_plane(stored, ENVIRONMENT), find_plane(stored, METADATA)
    stats = _stats(environment)
    start_ns, stop_ns = (_time_ns(stats.get(f"profile_{end}_time")) for end in ("start", "stop"))
    said = {**_stats(metadata), **stats}
    return Surroundings(
        start_unix_s=None if start_ns is None else start_ns / 1e9,
        duration_s=(stop_ns - start_ns) / 1e9 if start_ns and stop_ns and stop_ns >= start_ns else None,
        versions=tuple((name, one_line(str(said[name]))) for name in _VERSIONS if isinstance(said.get(name), str)),
        options=_options(stats.get("profile_options")),
    )


def _stats(plane: Plane | None) -> Mapping[str, Value]:
    return plane.stats if plane is not None else {}


def _time_ns(value: Value | None) -> int | None:
    return value if isinstance(value, int) and 0 < value < 1 << 62 else None


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

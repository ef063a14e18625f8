"""Spellings of other programs, translated into tpumon's: capture_tpu_profile's, and those of Prometheus' exporters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "monitoring_level": "--monitoring-level",
        "service_addr": "--service-addr",
        "workers_list": "--workers-list",
        "tpu": "--tpu",
        "tpu_name": "--tpu",
        "tpu_zone": "--zone",
        "gcp_project": "--project",
        "logdir": "--logdir",
        "duration_ms": "--duration-ms",
        "num_tracing_attempts": "--num-tracing-attempts",
        "num_queries": "--num-queries",
        "host_tracer_level": "--host-tracer-level",
        "web.listen-address": "--listen",
        "web.config.file": "--web-config",
    }
)
_IGNORED = {
    "include_dataset_ops": "dataset operations are always included",
    "display_timestamp": "timestamps are always shown",
}
_USUAL_DURATION_MS = "1000"


def translate(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Translates a command line into tpumon's spelling.

    Knows the flags of capture_tpu_profile 2.4.0, and --tpu_name of 1.5, with one dash or two, as absl accepted them;
    everything else stays as it is.

    Returns:
        The arguments, and notes for the user about flags that have no effect any more.
    """
    translated: list[str] = []
    notes: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in {"--", "run"}:  # the program's own words follow
            return [*translated, word, *rest], notes
        name, equals, value = word.lstrip("-").partition("=")
        ignored = name if name in _IGNORED else name.removeprefix("no")
        if not word.startswith("-"):
            translated.append(word)
        elif ignored in _IGNORED:
            notes.append(f"--{name} is deprecated and ignored: {_IGNORED[ignored]}")
        elif name in _OPTIONS:
            values = [value] if equals else rest[:1]
            del rest[: 0 if equals else 1]
            if name == "duration_ms" and values and _is_not_positive(values[0]):
                values = [_USUAL_DURATION_MS]  # 0, the old default, meant the usual duration
            translated += [_OPTIONS[name], *values]
        else:
            translated.append(word)
    return translated, notes


def _is_not_positive(value: str) -> bool:
    try:
        return int(value) <= 0
    except ValueError:
        return False

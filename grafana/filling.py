"""Values of `@{NAME}` in rules and queries, made from a `Config`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from grafana.config import Config

FLEET = "tpumon-fleet"
"""Identifier of the first dashboard, part of its URL."""

_PLACE = re.compile(r"@\{([^}]+)\}")


def filled(template: Any, values: Mapping[str, str]) -> Any:
    """Returns a text, list or dictionary with the values in their places.

    Raises:
        KeyError: a place has a name that is no value.
    """
    if isinstance(template, str):
        return _PLACE.sub(lambda place: values[place[1]], template)
    if isinstance(template, list):
        return [filled(item, values) for item in template]
    if isinstance(template, dict):
        return {key: filled(item, values) for key, item in template.items()}
    return template


def values(config: Config) -> Mapping[str, str]:
    """Returns the settings as texts, and what follows from them: lists of labels, matchers, the name of a job."""
    settings = {item.name: getattr(config, item.name) for item in fields(config)}
    of_slice = slice_labels(config)
    in_cluster = "".join(_IN_CLUSTER.replace("NAME", label) for label in config.cluster_labels)
    return {
        **{name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in settings.items()},
        "slice": ", ".join(of_slice),
        "worker": ", ".join((*of_slice, "worker")),
        "host": ", ".join((*config.cluster_labels, "worker")),
        "cluster": ", ".join(config.cluster_labels),
        "of_job": ", ".join((*config.cluster_labels, "tpu_job")),
        "exporter": ", ".join((*config.cluster_labels, "namespace", "job", "instance")),
        "braces": f"{{{config.selector}}}" if config.selector else "",
        "more": f", {config.selector}" if config.selector else "",
        "chosen_clusters": _matchers(config, config.cluster_labels),
        "chosen": _matchers(config, of_slice),
        "clusters": "".join(f"${{{label}:queryparam}}&" for label in config.cluster_labels),
        "job": _JOB + in_cluster,
        "in_cluster": in_cluster,
        "dashboard": f"{config.grafana.rstrip('/')}/d/{FLEET}?"
        + "&".join(_VARIABLE.replace("NAME", label) for label in of_slice),
        "missing": listed(_MISSING.replace("WORKER", ", ".join((*of_slice, "worker"))), of_slice, "worker"),
        **{
            f"having_{error}_error": listed(
                f"max_over_time(tpu_runtime_{error}_error{{@}}[5m]) == 1", of_slice, "worker"
            )
            for error in ("slice", "megascale")
        },
        "failing": listed(
            "increase(tpumon_sample_errors_total{@}[10m]) > 0",
            of_slice,
            "worker",
            " ({{ .Labels.reason }})",
            first="; errors: ",
        ),
        "exporters": listed("exporter:up:down{@}", (*config.cluster_labels, "tpu_job"), "instance"),
    }


def asked(query: str, labels: Sequence[str]) -> str:
    """Makes the part of an annotation's template that asks a query.

    Args:
        query: each `@` stands for matchers of the alert's own labels.
        labels: these.
    """
    matchers, given = ",".join(f"{label}=%q" for label in labels), [f"$labels.{label}" for label in labels]
    return f'query (printf "{query.replace("@", matchers)}" {" ".join(given * query.count("@"))})'


def listed(query: str, labels: Sequence[str], name: str, each: str = "", *, first: str = "") -> str:
    """Makes a template of an annotation that names the first series of a query, and how many more there are.

    Args:
        query: as in `asked`.
        labels: these.
        name: the label whose value is shown.
        each: a template that says more of a series.
        first: what stands before them, if there are any.
    """
    before = f"{{{{ else }}}}{first}" if first else ""
    filled_in = {"QUERY": asked(query, labels), "NAME": name, "EACH": each, "BEFORE": before}
    return re.sub("|".join(filled_in), lambda place: filled_in[place[0]], _LISTED)


def slice_labels(config: Config) -> tuple[str, ...]:
    """The labels of a slice: its cluster, and tpumon's own."""
    return (*config.cluster_labels, "tpu_job", "tpu_slice")


_JOB = (
    "{{ with $labels.tpu_job }}{{ . }}{{ else }}a job without a name{{ end }}"
    "{{ with $labels.tpu_slice }}, slice {{ . }}{{ end }}"
)
_MISSING = "max_over_time(worker:tpumon_target_up:max{@}[1h]) == 1 unless on (WORKER) worker:tpumon_target_up:max"
_VARIABLE = "var-NAME={{ with $labels.NAME }}{{ . | urlquery }}{{ end }}"
_LISTED = (
    "{{ $rows := QUERY }}{{ range $place, $_ := $rows }}{{ if lt $place 5 }}{{ if $place }}, BEFORE{{ end }}"
    "{{ .Labels.NAME }}EACH{{ end }}{{ end }}{{ if gt (len $rows) 5 }}, and more ({{ len $rows }} in all){{ end }}"
)
_IN_CLUSTER = "{{ with $labels.NAME }} ({{ . }}){{ end }}"


def _matchers(config: Config, labels: tuple[str, ...]) -> str:
    return ",".join(filter(None, (config.selector, *(f'{label}=~"${label}"' for label in labels))))

"""What `@{NAME}` stands for in rules and queries: values made from a `Config`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from grafana.config import Config

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
    exporter = (*config.job_labels[: config.job_labels.index("job") + 1], "instance")
    named = ("job", *(label for label in (*config.job_labels, "slice") if label != "job"))
    chosen = (config.selector, *(f'{label}=~"${label}"' for label in chosen_labels(config)))
    settings = {item.name: getattr(config, item.name) for item in fields(config)}
    return {
        **{name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in settings.items()},
        "job_labels": ", ".join(config.job_labels),
        "slice": ", ".join((*config.job_labels, "slice")),
        "exporter": ", ".join(exporter),
        "worker": ", ".join((*exporter, "worker")),
        "worker_job": _union((*exporter, "worker"), config.job_labels),
        "worker_slice": _union((*exporter, "worker"), (*config.job_labels, "slice")),
        "row": ", ".join((*exporter[:-1], "worker")),
        "braces": f"{{{config.selector}}}" if config.selector else "",
        "more": f", {config.selector}" if config.selector else "",
        "chosen_jobs": ",".join(part for part in chosen if part),
        "job_parameters": "&".join(f"${{{label}:queryparam}}" for label in chosen_labels(config)),
        "job": "".join(_if_present(label, first=label == "job") for label in named),
    }


def chosen_labels(config: Config) -> tuple[str, ...]:
    """The labels of a job that dashboards have variables for: those that every series has, and no others."""
    return config.job_labels[: config.job_labels.index("job") + 1]


def _if_present(label: str, *, first: bool) -> str:
    return f"{{{{ with $labels.{label} }}}}{'' if first else ', '}{{{{ . }}}}{{{{ end }}}}"


def _union(*lists: tuple[str, ...]) -> str:
    return ", ".join(dict.fromkeys(label for labels in lists for label in labels))

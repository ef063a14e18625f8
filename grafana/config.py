"""The one configuration of rules and dashboards: what identifies a job, thresholds, where the runbooks are."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

RUNBOOKS = "https://tpumon.example/runbooks"
"""A placeholder that does not exist."""


class ConfigError(ValueError):
    """The configuration cannot be used; the message says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What rules, queries and links are made from. Ratios are 0-1; durations are PromQL's, such as "10m".

    Attributes:
        job_labels: the labels that tell one job from another, beside tpumon's own label `slice`. Labels that your
            Prometheus does not attach do no harm.
        selector: matchers for all series of tpumon, for example `cluster="a"`; empty: all that there are.
        scrape_jobs: regular expression of the scrape jobs that are always tpumon's, for targets that never answered.
        runbooks: URL of the folder with the runbooks.
        lasting: how long a finding must last; tpumon's own thresholds decide what is one.
        soon: the same for what somebody must act on at once.
        idle_lasting: the same for TPUs that are not used, and for truncated traces.
        found_ratio: the share of that time in which it must be there.
        gap: how long it may be missing meanwhile.
        straggler_ratio: step time relative to the median of the slice, where no tpumon watches the whole slice.
        straggler_idle_ratio: how far idle time is below the median of the slice, likewise.
        hbm_full_within_s: HBM that grows and will be full within this time pages.
        traced_ratio: share of time for which a job is traced, by all tpumon processes together.
        unobserved: how long a worker may be busy or paused.
    """

    job_labels: tuple[str, ...] = ("cluster", "namespace", "job", "tpu_job", "tpu_slice")
    selector: str = ""
    scrape_jobs: str = ".*tpumon.*"
    runbooks: str = RUNBOOKS
    lasting: str = "10m"
    soon: str = "5m"
    idle_lasting: str = "30m"
    found_ratio: float = 0.7
    gap: str = "3m"
    straggler_ratio: float = 1.10
    straggler_idle_ratio: float = 0.10
    hbm_full_within_s: float = 3600.0
    traced_ratio: float = 0.05
    unobserved: str = "2h"


def read(path: Path) -> Config:
    """Reads a TOML file whose keys are the attributes of `Config`.

    Raises:
        ConfigError: the file cannot be read, or a key or value is none of `Config`'s.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return from_mapping(given, str(path))


def from_mapping(given: Mapping[str, object], where: str) -> Config:
    """Makes a configuration of some of its attributes; `where` names their origin in messages.

    Raises:
        ConfigError: a key or value is none of `Config`'s.
    """
    defaults = {item.name: item.default for item in fields(Config)}
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if name not in defaults:
            raise ConfigError(f"{where}: no such setting: {name}; choose one of {', '.join(defaults)}")
        settings[name] = _of_kind(type(defaults[name]), value, f"{where}: {name}")
    if "job" not in settings.get("job_labels", ("job",)):
        raise ConfigError(f'{where}: job_labels: must contain "job", which Prometheus attaches to every series')
    return Config(**settings)


def _of_kind(kind: type, value: object, where: str) -> object:
    if kind is tuple and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind is str and isinstance(value, str):
        return value
    wanted = {tuple: "a list of texts", float: "a number", str: "a text"}[kind]
    raise ConfigError(f"{where}: must be {wanted}")

"""The one configuration of rules and dashboards: what tells clusters apart, for how long, where the runbooks are."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
_REPOSITORY = _PROJECT["project"]["urls"]["Repository"]
_FOLDER = "grafana/runbooks"

PLACEHOLDER = "placeholder." + "invalid"
"""What stands for an address that is not known yet; in two pieces, for no file may hold it."""

RUNBOOKS = _FOLDER if PLACEHOLDER in _REPOSITORY else f"{_REPOSITORY}/blob/main/{_FOLDER}"
"""Where they are: in the repository, at its address once it has one."""


class ConfigError(ValueError):
    """The configuration cannot be used; the message says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of rules, queries and links. Ratios are 0-1; durations are PromQL's, such as "10m".

    Attributes:
        cluster_labels: the labels that tell clusters apart, as your Prometheus attaches them; none: one cluster.
        selector: matchers for all series of tpumon, for example `env="prod"`; empty: all that there are.
        scrape_jobs: regular expression of the scrape jobs that are always tpumon's, for targets that never answered.
        runbooks: URL of the folder with the runbooks.
        grafana: URL of your Grafana, for links from alerts to dashboards; empty: links within it.
        lasting_s: seconds that a finding must last; tpumon decides what is one, how bad it is, and since when.
        idle_lasting_s: the same for TPUs that are not used.
        gap: how long a finding is carried on while nothing tells of it.
        traced_ratio: share of time for which a job is traced, by all tpumon processes together.
    """

    cluster_labels: tuple[str, ...] = ("cluster",)
    selector: str = ""
    scrape_jobs: str = ".*tpumon.*"
    runbooks: str = RUNBOOKS
    grafana: str = ""
    lasting_s: float = 600.0
    idle_lasting_s: float = 1800.0
    gap: str = "5m"
    traced_ratio: float = 0.05


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

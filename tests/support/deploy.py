"""Reading the manifests and scrape configs of deploy/."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import yaml

from support import REPOSITORY, require

DEPLOY = REPOSITORY / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
VERSIONS = ("1.29", "1.30", "1.31", "1.32", "1.33")
"""Of Kubernetes, by whose schemas all is checked."""


def schemas_of_kubernetes() -> ModuleType:
    """The package with the schemas; its `validate` finds unknown fields when it is told to be strict."""
    require(importlib.util.find_spec("kubernetes_validate"), "the package kubernetes-validate")
    return importlib.import_module("kubernetes_validate")


def manifest(name: str) -> dict[str, Any]:
    """One file of deploy/kubernetes."""
    return yaml.safe_load((KUBERNETES / f"{name}.yaml").read_text())


def relabel_configs(name: str = "kubernetes") -> list[dict[str, Any]]:
    """Those of the first scrape config of a file of deploy/prometheus."""
    job, *_ = yaml.safe_load((DEPLOY / "prometheus" / f"{name}.yml").read_text())["scrape_configs"]
    return job["relabel_configs"]

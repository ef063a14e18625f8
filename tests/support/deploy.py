"""Reading the manifests and scrape configs of deploy/."""

from __future__ import annotations

from typing import Any

import yaml

from support import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
KUBERNETES = DEPLOY / "kubernetes"


def manifest(name: str) -> dict[str, Any]:
    """One file of deploy/kubernetes."""
    return yaml.safe_load((KUBERNETES / f"{name}.yaml").read_text())


def relabel_configs(name: str = "kubernetes") -> list[dict[str, Any]]:
    """Those of the first scrape config of a file of deploy/prometheus."""
    job, *_ = yaml.safe_load((DEPLOY / "prometheus" / f"{name}.yml").read_text())["scrape_configs"]
    return job["relabel_configs"]

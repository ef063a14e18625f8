"""`python -m grafana.generate` writes dashboards and Prometheus rules from the modules and templates in this folder.

It also writes the rules as the PrometheusRule of deploy/kubernetes.

With `--out DIR` it writes them for a deployment: with your configuration (`--config FILE.toml`, whose keys are those of
`grafana.config.Config`), and also as objects of Kubernetes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from grafana import alerting, fleet_dashboard, servers_dashboard, steps_dashboard, worker_dashboard
from grafana.config import Config, ConfigError, read

HERE = Path(__file__).parent
MANIFESTS = HERE.parent / "deploy" / "kubernetes"
RULE = "prometheusrule.yaml"


def dashboards(config: Config) -> Mapping[str, str]:
    """Returns all dashboards as JSON, by file name."""
    modules = (fleet_dashboard, worker_dashboard, steps_dashboard, servers_dashboard)
    made = (module.dashboard(config).to_json() for module in modules)
    return {f"{dashboard['uid']}.json": _text(dashboard) for dashboard in made}


def for_kubernetes(config: Config) -> Mapping[str, str]:
    """Returns rules and dashboards as objects of Kubernetes, by file name."""
    boards = {f"{_object_of(name)}.yaml": _configmap(name, text) for name, text in dashboards(config).items()}
    return {**alerting.kubernetes_rules(config), **boards}


def _configmap(name: str, text: str) -> str:
    """One object a dashboard: `kubectl apply` notes it in an annotation, which holds 262,144 bytes."""
    head = (
        "# For the sidecar of Grafana's Helm chart, which reads ConfigMaps with this label.\n"
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {_object_of(name)}\n"
        '  labels:\n    app.kubernetes.io/name: tpumon\n    grafana_dashboard: "1"\ndata:\n'
    )
    return head + f"  {name}: |\n" + "".join(f"    {line}\n" for line in text.splitlines())


def _object_of(name: str) -> str:
    return name.removesuffix(".json").replace("-", "-dashboard-")


def _text(dashboard: Mapping[str, object]) -> str:
    return json.dumps(dashboard, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _write(directory: Path, files: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m grafana.generate", description=__doc__)
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with your settings; only with --out")
    parser.add_argument("--runbooks", metavar="URL", help="URL of the folder with the runbooks; only with --out")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="write DIR/dashboards, DIR/prometheus and DIR/kubernetes instead"
    )
    options = parser.parse_args()
    if options.out is None and (options.config or options.runbooks):
        parser.error("--config and --runbooks need --out: the checked-in files keep the defaults")
    try:
        config = read(options.config) if options.config else Config()
    except ConfigError as error:
        sys.exit(f"grafana.generate: {error}")
    if options.runbooks:
        config = replace(config, runbooks=options.runbooks.rstrip("/"))
    out = options.out or HERE
    _write(out / "dashboards", dashboards(config))
    _write(out / "prometheus", alerting.rules(config))
    if options.out:
        _write(out / "kubernetes", for_kubernetes(config))
    else:
        _write(MANIFESTS, {RULE: alerting.kubernetes_rules(config)[RULE]})


if __name__ == "__main__":
    main()

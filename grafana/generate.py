"""`python -m grafana.generate` writes grafana/dashboards/*.json from the modules in this folder.

With `--runbooks URL --out DIR` it writes dashboards and Prometheus rules for deployment, which link to the runbooks at
that URL. It needs only the standard library.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from grafana import fleet, steps, worker

HERE = Path(__file__).parent
RUNBOOKS = "https://tpumon.example/runbooks"
"""A placeholder that does not exist."""


def dashboards(runbooks: str = RUNBOOKS) -> Mapping[str, str]:
    """Returns all dashboards as JSON, by file name."""
    made = (module.dashboard().to_json(runbooks) for module in (fleet, worker, steps))
    return {f"{dashboard['uid']}.json": _text(dashboard) for dashboard in made}


def rules(runbooks: str = RUNBOOKS) -> Mapping[str, str]:
    """Returns all files of Prometheus rules, by file name."""
    files = sorted((HERE / "prometheus").glob("*.rules.yml"))
    return {file.name: file.read_text(encoding="utf-8").replace(RUNBOOKS, runbooks) for file in files}


def _text(dashboard: Mapping[str, object]) -> str:
    return json.dumps(dashboard, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _write(directory: Path, files: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m grafana.generate", description=__doc__)
    parser.add_argument(
        "--runbooks", metavar="URL", default=RUNBOOKS, help="URL of the folder with the runbooks; only with --out"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="write DIR/dashboards and DIR/prometheus instead")
    options = parser.parse_args()
    runbooks = options.runbooks.rstrip("/")
    if options.out:
        _write(options.out / "dashboards", dashboards(runbooks))
        _write(options.out / "prometheus", rules(runbooks))
    elif runbooks != RUNBOOKS:
        parser.error("--runbooks needs --out: the checked-in files keep the placeholder")
    else:
        _write(HERE / "dashboards", dashboards())


if __name__ == "__main__":
    main()

"""Dashboards and rules. `python -m grafana.generate` writes the dashboards; nothing of this is part of the package."""

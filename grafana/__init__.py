"""Dashboards and rules, which `python -m grafana.generate` writes from these modules; not part of the package."""

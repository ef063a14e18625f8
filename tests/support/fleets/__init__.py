"""Fleets of which the truth is known: from XProf's definitions and docs/findings.md, not the simulator or the rules."""

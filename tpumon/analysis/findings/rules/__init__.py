"""The rules: one file per finding or family of findings."""

"""Writes blocks: as text for a terminal or a log, as Markdown, as one HTML page."""

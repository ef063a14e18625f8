"""Outputs that are found through the entry-point group `tpumon.exporters`, and what they share: HTTP, pages, files."""

"""Where samples go: one file an output, found through the entry-point group `tpumon.exporters`."""

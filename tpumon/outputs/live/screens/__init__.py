"""The screens of the live view: one file each, and a line in `tpumon.outputs.live.screens.screen_table`."""

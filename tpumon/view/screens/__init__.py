"""The screens of the live view: one file each, and a line in `tpumon.view.screens.table`."""

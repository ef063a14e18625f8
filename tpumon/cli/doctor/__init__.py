"""What `tpumon doctor` finds out, what it makes of it, and how it says so."""

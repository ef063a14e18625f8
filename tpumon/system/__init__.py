"""What the process shares with its host: signals, threads, and `tpumon pause`."""

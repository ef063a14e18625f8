"""How the process meets its host: signals, threads, and the pause that all tpumon processes obey."""

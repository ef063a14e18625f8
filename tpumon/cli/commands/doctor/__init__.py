"""`tpumon doctor`: a diagnosis, the problems in it, and its text."""

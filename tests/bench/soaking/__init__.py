"""The parts of the soak: the job that it monitors, its faults, the clock that jumps, and what is checked."""

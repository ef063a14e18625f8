"""What chips say of themselves: peaks, counters, GPUs."""

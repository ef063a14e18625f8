"""Contents of a report beyond the figures of a host's trace: ops by name, memory, programs, input, environment."""

"""What a report shows of a host's trace beyond its figures: ops by name, memory, programs, input, environment."""

"""Workers of this host: what listens here, whose it is, and which of it is a job's profiler server."""

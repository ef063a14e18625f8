"""Whether events were dropped, and which span of a trace is whole."""

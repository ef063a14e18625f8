"""One file per command, each with `run(settings) -> exit status`."""

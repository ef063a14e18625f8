"""One file a command, each with `run(settings) -> exit status`."""

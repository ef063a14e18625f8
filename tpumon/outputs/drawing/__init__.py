"""Lines, numbers as short text, graphs, colors, short names; a progress bar."""

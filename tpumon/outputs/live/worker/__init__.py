"""The page of one worker: its figures, graphs, and its place among its slice."""

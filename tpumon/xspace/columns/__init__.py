"""Events as arrays: the fields of all events of a line at once, and the arithmetic of their intervals."""

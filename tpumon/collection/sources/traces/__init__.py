"""Short device traces as a source of figures: when, how long, how taken, and the processes that read them."""

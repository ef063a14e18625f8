"""Where to look: addresses as people write them, and this host's own ports."""

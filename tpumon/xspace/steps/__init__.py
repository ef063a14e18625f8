"""Steps: as markers, programs and the host's threads show them."""

"""Rules about what the devices spend their time on."""

"""Finds workers: addresses and names as people write them, files, this host, the TPU API."""

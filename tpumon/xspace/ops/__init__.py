"""Kinds of ops, read from their metadata, and what the ops of a core did."""

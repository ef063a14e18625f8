"""Samples for people: text blocks, notices and the live view."""

"""Findings of servers of models: what requests wait for."""

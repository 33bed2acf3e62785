"""Experiments, metrics and their summaries: what kvlab claims, measured on this machine."""

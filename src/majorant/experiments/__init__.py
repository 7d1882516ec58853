"""Experiments: names with options, configuration, run folders, and the papers' experiments by name."""

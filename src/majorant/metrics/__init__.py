"""Per-client scores, what they say together, and rates of convergence."""

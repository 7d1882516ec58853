"""Benchmarks: each prints ratios measured in one run, because absolute times on shared machines mean little."""

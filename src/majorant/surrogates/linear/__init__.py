"""Linearly parameterized surrogates: the record, what its statistics are made of, and instances."""

from majorant.surrogates.linear.gradient import proximal_gradient
from majorant.surrogates.linear.record import LinearSurrogate, in_parameter_space, mean_statistic

__all__ = ["LinearSurrogate", "in_parameter_space", "mean_statistic", "proximal_gradient"]

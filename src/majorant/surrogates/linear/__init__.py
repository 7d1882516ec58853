"""Linearly parameterized surrogates: the record, what its statistics are made of, and instances."""

from majorant.surrogates.linear.gaussian_means import gaussian_means
from majorant.surrogates.linear.gaussian_mixture import MixturePrior, gaussian_mixture, mixture_parameters
from majorant.surrogates.linear.gradient import proximal_gradient
from majorant.surrogates.linear.poisson import PoissonConstants, poisson, poisson_constants
from majorant.surrogates.linear.record import LinearSurrogate, in_parameter_space, mean_statistic

__all__ = [
    "LinearSurrogate",
    "MixturePrior",
    "PoissonConstants",
    "gaussian_means",
    "gaussian_mixture",
    "in_parameter_space",
    "mean_statistic",
    "mixture_parameters",
    "poisson",
    "poisson_constants",
    "proximal_gradient",
]

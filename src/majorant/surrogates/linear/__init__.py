"""Linearly parameterized surrogates: the record, what its statistics are made of, and instances."""

from majorant.surrogates.linear.gaussian_means import gaussian_means
from majorant.surrogates.linear.gaussian_mixture import MixturePrior, gaussian_mixture, mixture_parameters
from majorant.surrogates.linear.gradient import proximal_gradient
from majorant.surrogates.linear.multinomial_mixture import multinomial_mixture
from majorant.surrogates.linear.poisson import PoissonConstants, poisson, poisson_constants
from majorant.surrogates.linear.record import LinearSurrogate, in_parameter_space, mean_statistic
from majorant.surrogates.linear.regression_mixture import regression_mixture

__all__ = [
    "LinearSurrogate",
    "MixturePrior",
    "PoissonConstants",
    "gaussian_means",
    "gaussian_mixture",
    "in_parameter_space",
    "mean_statistic",
    "mixture_parameters",
    "multinomial_mixture",
    "poisson",
    "poisson_constants",
    "proximal_gradient",
    "regression_mixture",
]

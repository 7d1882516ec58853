"""Surrogates, partial first-order ones and linearly parameterized ones, and the check of what they promise."""

from majorant.surrogates.basic import Minimized, minimize_by_surrogates
from majorant.surrogates.checks import SurrogateReport, check_surrogate
from majorant.surrogates.em import em_surrogate
from majorant.surrogates.linear import (
    LinearSurrogate,
    MixturePrior,
    gaussian_means,
    gaussian_mixture,
    mixture_parameters,
    multinomial_mixture,
    poisson,
    poisson_constants,
    proximal_gradient,
    regression_mixture,
)
from majorant.surrogates.logistic_bounds import logistic_bound
from majorant.surrogates.partial import Coefficients, PartialSurrogate
from majorant.surrogates.proximal import proximal_surrogate
from majorant.surrogates.quadratic import quadratic_surrogate

__all__ = [
    "Coefficients",
    "LinearSurrogate",
    "Minimized",
    "MixturePrior",
    "PartialSurrogate",
    "SurrogateReport",
    "check_surrogate",
    "em_surrogate",
    "gaussian_means",
    "gaussian_mixture",
    "logistic_bound",
    "minimize_by_surrogates",
    "mixture_parameters",
    "multinomial_mixture",
    "poisson",
    "poisson_constants",
    "proximal_gradient",
    "proximal_surrogate",
    "quadratic_surrogate",
    "regression_mixture",
]

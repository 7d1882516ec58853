"""Surrogates, partial first-order ones and linearly parameterized ones, and the check of what they promise."""

from majorant.surrogates.basic import Minimized, minimize_by_surrogates
from majorant.surrogates.checks import SurrogateReport, check_surrogate
from majorant.surrogates.em import em_surrogate
from majorant.surrogates.linear import LinearSurrogate, proximal_gradient
from majorant.surrogates.logistic_bounds import logistic_bound
from majorant.surrogates.partial import Coefficients, PartialSurrogate
from majorant.surrogates.proximal import proximal_surrogate
from majorant.surrogates.quadratic import quadratic_surrogate

__all__ = [
    "Coefficients",
    "LinearSurrogate",
    "Minimized",
    "PartialSurrogate",
    "SurrogateReport",
    "check_surrogate",
    "em_surrogate",
    "logistic_bound",
    "minimize_by_surrogates",
    "proximal_gradient",
    "proximal_surrogate",
    "quadratic_surrogate",
]

"""Partial first-order surrogates: the record, instances of it, and the check of what they promise."""

from majorant.surrogates.basic import Minimized, minimize_by_surrogates
from majorant.surrogates.checks import SurrogateReport, check_surrogate
from majorant.surrogates.em import em_surrogate
from majorant.surrogates.logistic_bounds import logistic_bound
from majorant.surrogates.partial import Coefficients, PartialSurrogate
from majorant.surrogates.proximal import proximal_surrogate
from majorant.surrogates.quadratic import quadratic_surrogate

__all__ = [
    "Coefficients",
    "Minimized",
    "PartialSurrogate",
    "SurrogateReport",
    "check_surrogate",
    "em_surrogate",
    "logistic_bound",
    "minimize_by_surrogates",
    "proximal_surrogate",
    "quadratic_surrogate",
]

"""Surrogates, partial first-order ones and linearly parameterized ones, and the check of what they promise."""

from majorant.surrogates.best_response import BestResponse, BestResponseReport, Pair, check_best_response
from majorant.surrogates.checks import check_surrogate
from majorant.surrogates.em import em_surrogate
from majorant.surrogates.linear import (
    LinearSurrogate,
    MixturePrior,
    dictionary_learning,
    gaussian_map,
    gaussian_means,
    gaussian_mixture,
    huber_regression,
    k_means,
    lasso_codes,
    matrix_factorization,
    mixture_parameters,
    multinomial_mixture,
    nonnegative_factorization,
    poisson,
    poisson_constants,
    proximal_gradient,
    regression_mixture,
)
from majorant.surrogates.logistic_bounds import logistic_bound
from majorant.surrogates.partial import Coefficients, PartialSurrogate
from majorant.surrogates.proximal import proximal_surrogate
from majorant.surrogates.quadratic import quadratic_surrogate
from majorant.surrogates.report import SurrogateReport
from majorant.surrogates.transport import transport_potentials

__all__ = [
    "BestResponse",
    "BestResponseReport",
    "Coefficients",
    "LinearSurrogate",
    "MixturePrior",
    "Pair",
    "PartialSurrogate",
    "SurrogateReport",
    "check_best_response",
    "check_surrogate",
    "dictionary_learning",
    "em_surrogate",
    "gaussian_map",
    "gaussian_means",
    "gaussian_mixture",
    "huber_regression",
    "k_means",
    "lasso_codes",
    "logistic_bound",
    "matrix_factorization",
    "mixture_parameters",
    "multinomial_mixture",
    "nonnegative_factorization",
    "poisson",
    "poisson_constants",
    "proximal_gradient",
    "proximal_surrogate",
    "quadratic_surrogate",
    "regression_mixture",
    "transport_potentials",
]

"""Linearly parameterized surrogates: the record, what its statistics are made of, and instances."""

from majorant.surrogates.linear.dictionary import dictionary_learning
from majorant.surrogates.linear.gaussian_map import gaussian_map
from majorant.surrogates.linear.gaussian_means import gaussian_means
from majorant.surrogates.linear.gaussian_mixture import MixturePrior, gaussian_mixture, mixture_parameters
from majorant.surrogates.linear.gradient import proximal_gradient
from majorant.surrogates.linear.huber import huber_regression
from majorant.surrogates.linear.kmeans import k_means
from majorant.surrogates.linear.lasso import lasso_codes
from majorant.surrogates.linear.missing_entries import matrix_factorization
from majorant.surrogates.linear.multinomial_mixture import multinomial_mixture
from majorant.surrogates.linear.nonnegative import nonnegative_factorization
from majorant.surrogates.linear.poisson import PoissonConstants, poisson, poisson_constants
from majorant.surrogates.linear.record import LinearSurrogate, in_parameter_space, mean_statistic
from majorant.surrogates.linear.regression_mixture import regression_mixture

__all__ = [
    "LinearSurrogate",
    "MixturePrior",
    "PoissonConstants",
    "dictionary_learning",
    "gaussian_map",
    "gaussian_means",
    "gaussian_mixture",
    "huber_regression",
    "in_parameter_space",
    "k_means",
    "lasso_codes",
    "matrix_factorization",
    "mean_statistic",
    "mixture_parameters",
    "multinomial_mixture",
    "nonnegative_factorization",
    "poisson",
    "poisson_constants",
    "proximal_gradient",
    "regression_mixture",
]

"""Linearly parameterized surrogates: the record, what its statistics are made of, and instances."""

from majorant.surrogates.linear.dictionary import dictionary_learning
from majorant.surrogates.linear.gradient import proximal_gradient
from majorant.surrogates.linear.huber import huber_regression
from majorant.surrogates.linear.kmeans import k_means
from majorant.surrogates.linear.lasso import lasso_codes
from majorant.surrogates.linear.missing_entries import matrix_factorization
from majorant.surrogates.linear.nonnegative import nonnegative_factorization
from majorant.surrogates.linear.record import LinearSurrogate, in_parameter_space, mean_statistic

__all__ = [
    "LinearSurrogate",
    "dictionary_learning",
    "huber_regression",
    "in_parameter_space",
    "k_means",
    "lasso_codes",
    "matrix_factorization",
    "mean_statistic",
    "nonnegative_factorization",
    "proximal_gradient",
]

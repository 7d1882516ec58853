"""Estimators with scikit-learn's conventions: ``fit(X, y, groups=...)``, where groups say which client a row is of."""

from majorant.estimators.factorization import FederatedDictionaryLearning, FederatedNMF
from majorant.estimators.fedem import FedEMClassifier, FedEMRegressor
from majorant.estimators.gaussian_mixture import FederatedGaussianMixture
from majorant.estimators.k_means import FederatedKMeans
from majorant.estimators.transport import FederatedTransport

__all__ = [
    "FedEMClassifier",
    "FedEMRegressor",
    "FederatedDictionaryLearning",
    "FederatedGaussianMixture",
    "FederatedKMeans",
    "FederatedNMF",
    "FederatedTransport",
]

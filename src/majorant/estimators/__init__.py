"""Estimators with scikit-learn's conventions: ``fit(X, y, groups=...)``, where groups say which client a row is of."""

from majorant.estimators.fed_em import FedEMClassifier, FedEMRegressor

__all__ = ["FedEMClassifier", "FedEMRegressor"]

"""Names of version 0.1: they still work, and say what to write instead."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

_METHODS = {
    "acd_pfl": "acd",
    "ascd_pfl": "ascd",
    "asvrcd_pfl": "asvrcd",
    "clustered_fl": "clustered",
    "fed_avg": "fedavg",
    "fed_avg_plus": "fedavg_plus",
    "fed_em": "fedem",
    "fed_mgda": "fedmgda_plus",
    "fed_mm": "fedmm",
    "fed_prox": "fedprox",
    "lsgd_pfl": "lsgd",
    "p_fed_me": "pfedme",
    "scd_pfl": "scd",
    "svrcd_pfl": "svrcd",
}
_SAME = {
    "methods": ("initial_statistic", "l2sgd_plus", "mm", "parameter_averaging", "q_ffl", "sa_ssmm"),
    "solvers": (
        "local_by_client",
        "local_function",
        "local_lbfgs",
        "local_least_squares",
        "local_newton",
        "local_torch",
    ),
    "solvers.schedules": ("constant", "cosine", "multi_step"),
    "surrogates": ("check_surrogate",),
    "tradeoffs": ("chebyshev", "weighted_sum", "with_criteria"),
}
_PLACE = (
    {old: ("methods", new) for old, new in _METHODS.items()}
    | {name: (module, name) for module, names in _SAME.items() for name in names}
    | {"agnostic": ("tradeoffs", "afl")}
)


def renamed(name: str) -> Any:
    """What a name of version 0.1 is called now, with a warning; an error for a name that nothing goes by."""
    if name not in _PLACE:
        raise AttributeError(f"module 'majorant' has no attribute {name!r}")
    module, new = _PLACE[name]
    front_door = "majorant" if new in importlib.import_module("majorant").__all__ else f"majorant.{module}"
    warnings.warn(f"majorant.{name} is now {front_door}.{new}", DeprecationWarning, stacklevel=3)
    return getattr(importlib.import_module(f"majorant.{module}"), new)

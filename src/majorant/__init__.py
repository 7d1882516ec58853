"""Majorant: personalized federated learning by surrogate optimization.

>>> import majorant as mj
>>> data = mj.data.synthetic_mixture(clients=20, dimension=10, seed=0)
>>> algorithm = mj.fed_em(mj.models.linear(data), components=3, local=mj.local_sgd(0.1, epochs=1, batch_size=128))
>>> run = mj.simulate(algorithm, data, rounds=10, seed=0)
>>> print(run.summary())
fedem on synthetic-paper: 10 rounds, 20 clients
...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from majorant import criteria as criteria
    from majorant import data as data
    from majorant import estimators as estimators
    from majorant import models as models
    from majorant import objectives as objectives
    from majorant import pareto as pareto
    from majorant import steps as steps
    from majorant import surrogates as surrogates
    from majorant.algorithms import acd_pfl as acd_pfl
    from majorant.algorithms import agnostic as agnostic
    from majorant.algorithms import apfl as apfl
    from majorant.algorithms import ascd_pfl as ascd_pfl
    from majorant.algorithms import asvrcd_pfl as asvrcd_pfl
    from majorant.algorithms import chebyshev as chebyshev
    from majorant.algorithms import clustered_fl as clustered_fl
    from majorant.algorithms import fed_avg as fed_avg
    from majorant.algorithms import fed_avg_plus as fed_avg_plus
    from majorant.algorithms import fed_em as fed_em
    from majorant.algorithms import fed_mgda as fed_mgda
    from majorant.algorithms import fed_mm as fed_mm
    from majorant.algorithms import fed_prox as fed_prox
    from majorant.algorithms import initial_statistic as initial_statistic
    from majorant.algorithms import l2sgd_plus as l2sgd_plus
    from majorant.algorithms import local as local
    from majorant.algorithms import lsgd_pfl as lsgd_pfl
    from majorant.algorithms import mm as mm
    from majorant.algorithms import mocha as mocha
    from majorant.algorithms import p_fed_me as p_fed_me
    from majorant.algorithms import parameter_averaging as parameter_averaging
    from majorant.algorithms import q_ffl as q_ffl
    from majorant.algorithms import sa_ssmm as sa_ssmm
    from majorant.algorithms import scd_pfl as scd_pfl
    from majorant.algorithms import surrogate_optimization as surrogate_optimization
    from majorant.algorithms import svrcd_pfl as svrcd_pfl
    from majorant.algorithms import weighted_sum as weighted_sum
    from majorant.algorithms import with_criteria as with_criteria
    from majorant.communication import compressors as compressors
    from majorant.communication import participation as participation
    from majorant.communication import topology as topology
    from majorant.communication.compression import compressed as compressed
    from majorant.communication.gossip import gossip as gossip
    from majorant.core import Algorithm as Algorithm
    from majorant.core import Server as Server
    from majorant.core import Upload as Upload
    from majorant.core import View as View
    from majorant.data.federated import FederatedData as FederatedData
    from majorant.engines.simulator import simulate as simulate
    from majorant.pareto.front import pareto_front as pareto_front
    from majorant.schedules import constant as constant
    from majorant.schedules import cosine as cosine
    from majorant.schedules import multi_step as multi_step
    from majorant.solvers import local_optax as local_optax
    from majorant.solvers import local_sgd as local_sgd
    from majorant.solvers.black_box import local_lbfgs as local_lbfgs
    from majorant.solvers.black_box import local_least_squares as local_least_squares
    from majorant.solvers.black_box import local_newton as local_newton
    from majorant.solvers.by_client import local_by_client as local_by_client
    from majorant.solvers.host_function import local_function as local_function
    from majorant.solvers.torch_solver import local_torch as local_torch
    from majorant.surrogates import check_surrogate as check_surrogate

__version__ = "0.1.0"

# Names are imported when they are first used, so that `majorant --help` answers without loading JAX.
_HOME = {
    "criteria": "",
    "data": "",
    "estimators": "",
    "models": "",
    "pareto": "",
    "surrogates": "",
    "Algorithm": "core",
    "FederatedData": "data.federated",
    "Server": "core",
    "Upload": "core",
    "View": "core",
    "apfl": "algorithms",
    "check_surrogate": "surrogates",
    "clustered_fl": "algorithms",
    "constant": "schedules",
    "cosine": "schedules",
    "fed_avg": "algorithms",
    "fed_avg_plus": "algorithms",
    "fed_em": "algorithms",
    "fed_mm": "algorithms",
    "fed_prox": "algorithms",
    "gossip": "communication.gossip",
    "local": "algorithms",
    "local_by_client": "solvers.by_client",
    "local_function": "solvers.host_function",
    "local_lbfgs": "solvers.black_box",
    "local_least_squares": "solvers.black_box",
    "local_newton": "solvers.black_box",
    "local_optax": "solvers",
    "local_sgd": "solvers",
    "local_torch": "solvers.torch_solver",
    "initial_statistic": "algorithms",
    "mm": "algorithms",
    "mocha": "algorithms",
    "parameter_averaging": "algorithms",
    "sa_ssmm": "algorithms",
    "steps": "",
    "multi_step": "schedules",
    "p_fed_me": "algorithms",
    "objectives": "",
    "acd_pfl": "algorithms",
    "ascd_pfl": "algorithms",
    "asvrcd_pfl": "algorithms",
    "l2sgd_plus": "algorithms",
    "lsgd_pfl": "algorithms",
    "scd_pfl": "algorithms",
    "svrcd_pfl": "algorithms",
    "compressed": "communication.compression",
    "compressors": "communication",
    "pareto_front": "pareto.front",
    "participation": "communication",
    "simulate": "engines.simulator",
    "surrogate_optimization": "algorithms",
    "topology": "communication",
    "agnostic": "algorithms",
    "chebyshev": "algorithms",
    "fed_mgda": "algorithms",
    "q_ffl": "algorithms",
    "weighted_sum": "algorithms",
    "with_criteria": "algorithms",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'majorant' has no attribute {name!r}")
    home = f"majorant.{_HOME[name]}" if _HOME[name] else "majorant"
    if not _HOME[name] or name in ("compressors", "participation", "topology"):
        value = importlib.import_module(f"{home}.{name}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

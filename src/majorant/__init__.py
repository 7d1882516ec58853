"""Majorant: personalized federated learning by surrogate optimization."""

from majorant import data, models
from majorant.algorithms.fed_avg import fed_avg
from majorant.algorithms.fed_em import fed_em
from majorant.engines.simulator import simulate
from majorant.solvers import local_optax, local_sgd

"""The federated methods, one file each: what it solves, the update in math, one factory that returns an `Algorithm`."""

from majorant.algorithms.acd_pfl import acd_pfl
from majorant.algorithms.apfl import apfl
from majorant.algorithms.asvrcd_pfl import ascd_pfl, asvrcd_pfl, scd_pfl, svrcd_pfl
from majorant.algorithms.chebyshev import agnostic, chebyshev
from majorant.algorithms.clustered import clustered_fl
from majorant.algorithms.fed_avg import fed_avg
from majorant.algorithms.fed_avg_plus import fed_avg_plus, tuned
from majorant.algorithms.fed_em import fed_em
from majorant.algorithms.fed_mgda import fed_mgda
from majorant.algorithms.fed_mm import fed_mm, initial_statistic, parameter_averaging
from majorant.algorithms.fed_prox import fed_prox
from majorant.algorithms.l2sgd_plus import l2sgd_plus
from majorant.algorithms.local import local
from majorant.algorithms.lsgd_pfl import lsgd_pfl
from majorant.algorithms.mm import mm, sa_ssmm
from majorant.algorithms.mocha import mocha
from majorant.algorithms.p_fed_me import p_fed_me
from majorant.algorithms.q_ffl import q_ffl
from majorant.algorithms.surrogate_optimization import surrogate_optimization
from majorant.algorithms.weighted_sum import weighted_sum, with_criteria

__all__ = [
    "acd_pfl",
    "agnostic",
    "apfl",
    "ascd_pfl",
    "asvrcd_pfl",
    "chebyshev",
    "clustered_fl",
    "fed_avg",
    "fed_avg_plus",
    "fed_em",
    "fed_mgda",
    "fed_mm",
    "fed_prox",
    "initial_statistic",
    "l2sgd_plus",
    "local",
    "lsgd_pfl",
    "mm",
    "mocha",
    "p_fed_me",
    "parameter_averaging",
    "q_ffl",
    "sa_ssmm",
    "scd_pfl",
    "surrogate_optimization",
    "svrcd_pfl",
    "tuned",
    "weighted_sum",
    "with_criteria",
]

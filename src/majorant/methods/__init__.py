"""The federated methods, one file each: what it solves, the update in math, one factory that returns an `Algorithm`."""

from majorant.methods.acd import acd
from majorant.methods.apfl import apfl
from majorant.methods.ascd import ascd
from majorant.methods.asvrcd import asvrcd
from majorant.methods.best_response import best_response, gradient_play
from majorant.methods.clustered import clustered
from majorant.methods.ditto import ditto
from majorant.methods.fedavg import fedavg
from majorant.methods.fedavg_plus import fedavg_plus, tuned
from majorant.methods.fedbn import fedbn
from majorant.methods.fedem import fedem
from majorant.methods.fedmgda_plus import fedmgda_plus
from majorant.methods.fedmm import fedmm, initial_statistic, parameter_averaging
from majorant.methods.fedper import fedper
from majorant.methods.fedprox import fedprox
from majorant.methods.fedrep import fedrep
from majorant.methods.l2sgd_plus import l2sgd_plus
from majorant.methods.local import local
from majorant.methods.lsgd import lsgd
from majorant.methods.mm import mm, sa_ssmm
from majorant.methods.mocha import mocha
from majorant.methods.pfedme import pfedme
from majorant.methods.q_ffl import q_ffl
from majorant.methods.scaffold import scaffold
from majorant.methods.scd import scd
from majorant.methods.surrogate_optimization import surrogate_optimization
from majorant.methods.svrcd import svrcd
from majorant.methods.transport import transport

__all__ = [
    "acd",
    "apfl",
    "ascd",
    "asvrcd",
    "best_response",
    "clustered",
    "ditto",
    "fedavg",
    "fedavg_plus",
    "fedbn",
    "fedem",
    "fedmgda_plus",
    "fedmm",
    "fedper",
    "fedprox",
    "fedrep",
    "gradient_play",
    "initial_statistic",
    "l2sgd_plus",
    "local",
    "lsgd",
    "mm",
    "mocha",
    "parameter_averaging",
    "pfedme",
    "q_ffl",
    "sa_ssmm",
    "scaffold",
    "scd",
    "surrogate_optimization",
    "svrcd",
    "transport",
    "tuned",
]

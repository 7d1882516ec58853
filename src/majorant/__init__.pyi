# The front door: what `majorant` offers by name. Names are imported when they are first used.
from . import data as data
from . import estimators as estimators
from . import methods as methods
from . import models as models
from . import objectives as objectives
from . import solvers as solvers
from . import surrogates as surrogates
from . import tradeoffs as tradeoffs
from .core import Algorithm as Algorithm
from .core import ClientData as ClientData
from .core import Server as Server
from .core import Upload as Upload
from .core import View as View
from .data import FederatedData as FederatedData
from .engines import simulate as simulate
from .exchange import compressed as compressed
from .exchange import compressors as compressors
from .exchange import gossip as gossip
from .exchange import participation as participation
from .exchange import topology as topology
from .math import steps as steps
from .methods import apfl as apfl
from .methods import clustered as clustered
from .methods import fedavg as fedavg
from .methods import fedavg_plus as fedavg_plus
from .methods import fedem as fedem
from .methods import fedmm as fedmm
from .methods import fedprox as fedprox
from .methods import local as local
from .methods import mocha as mocha
from .methods import pfedme as pfedme
from .methods import surrogate_optimization as surrogate_optimization
from .solvers import local_optax as local_optax
from .solvers import local_sgd as local_sgd
from .solvers import schedules as schedules
from .tradeoffs import criteria as criteria
from .tradeoffs import pareto_front as pareto_front

__version__: str
__all__: list[str]

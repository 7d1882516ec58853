"""Majorant: personalized federated learning by surrogate optimization.

>>> import majorant as mj
>>> data = mj.data.synthetic_mixture(clients=20, dimension=10, seed=0)
>>> algorithm = mj.fedem(mj.models.linear(data), components=3, local=mj.local_sgd(0.1, epochs=1, batch_size=128))
>>> run = mj.simulate(algorithm, data, rounds=10, seed=0)
>>> print(run.summary())
fedem on synthetic-paper: 10 rounds, 20 clients
...
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import lazy_loader

from majorant._renamed import renamed

__version__ = version("majorant")

# `__init__.pyi` lists the names; they are imported when first used, so that `majorant --help` does not load JAX.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    return renamed(name) if name not in __all__ else _load(name)

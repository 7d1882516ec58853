"""What the authors of the multi-objective paper ran: their notebooks differ from their text.

They have S = (c/2) ‖Θ‖² through Adam's L2 term, a fresh Adam in every round, every agent at an initial point of its own
in round 1, and a smaller network than Table 1's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import majorant as mj
from majorant.core import Algorithm, ClientData, Key, Tree, Upload, View, select
from majorant.models.base import HasSpec, Model, Spec
from majorant.solvers import LocalSolver

OWN_START_STREAM = 0x0FF5


class Released(NamedTuple):
    """The criterion's factor c, Adam's rate and the batch size."""

    factor: float
    lr: float
    batch_size: int


RELEASED = {"iid": Released(1e-2, 0.01, 64), "two-digits": Released(1e-9, 0.001, 50)}


def released(model: Model, setting: str, criteria: mj.criteria.Criterion | None = None, **options: Any) -> Algorithm:
    """The weighted sum as in the notebooks, "iid" or "two-digits", or with another criterion than theirs.

    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> released(mj.models.linear(data), "iid", weight=0.87).name
    'weighted-sum'
    """
    local = released_solver(setting)
    own = mj.criteria.squared_norm(RELEASED[setting].factor) if criteria is None else criteria
    return with_own_starts(mj.tradeoffs.weighted_sum(model, own, local=local, **options), model)


def released_solver(setting: str) -> LocalSolver:
    """Their local solver: an epoch of Adam, which starts anew in every round."""
    if setting not in RELEASED:
        raise ValueError(f"setting must be one of {', '.join(RELEASED)}, got {setting!r}")
    ran = RELEASED[setting]
    return mj.local_optax(optax.adam(ran.lr), epochs=1, batch_size=ran.batch_size, keep_moments=False)


def with_own_starts(algorithm: Algorithm, model: Model) -> Algorithm:
    """The algorithm, in round 1 of which every agent trains from an initial point of its own."""

    def update(view: View, state: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        own = model.init(jax.random.fold_in(key, OWN_START_STREAM))
        start = select(jnp.asarray(view.round) == 0, own, view.value)
        return algorithm.client.update(view._replace(value=start), state, data, key)

    return algorithm._replace(client=algorithm.client._replace(update=update))


def network(problem: HasSpec | Spec, variant: str = "released") -> Model:
    """Table 1's network ("paper"), or that of the notebooks: 5×5 convolutions of 8 and 16, 64 dense units.

    The notebooks' has zero padding here, as Table 1's.

    >>> model = network(Spec((28, 28), classes=10))
    >>> [layer["weight"].shape for layer in model.init(jax.random.key(0))["convolutions"]]
    [(5, 5, 1, 8), (5, 5, 8, 16)]
    """
    if variant not in ("paper", "released"):
        raise ValueError(f"variant must be 'paper' or 'released', got {variant!r}")
    options: dict[str, Any] = {} if variant == "paper" else {"channels": (8, 16), "hidden": 64, "kernel": 5}
    return mj.models.cnn(problem, **options)

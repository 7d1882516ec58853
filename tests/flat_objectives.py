"""An objective of the library as a problem over two vectors, with its reference solution, for `two_block_problem`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import two_block_problem
from majorant.core import ClientData
from majorant.data.federated import FederatedData
from majorant.objectives import Constants, Objective, reference


def samples(sizes: tuple[int, ...] = (4, 3, 5), dimension: int = 2, seed: int = 0) -> FederatedData:
    """Two classes, in a different direction on each client."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(owner), dimension))
    slopes = rng.normal(size=(len(sizes), dimension))
    y = ((x * slopes[owner]).sum(axis=1) + 0.5 * rng.normal(size=len(owner)) > 0).astype(int)
    return FederatedData.from_arrays(x, y, owner, split=(1, 0, 0), task="classification")


def flat_problem(
    objective: Objective, data: FederatedData, constants: Constants | None = None
) -> two_block_problem.Problem:
    """The problem with vectors in place of trees, all clients side by side; inside ``jax.enable_x64(True)``."""
    key = jax.random.key(0)
    w, tree_w = ravel_pytree(reference.double(objective.init(key)))
    beta, tree_beta = ravel_pytree(reference.double(objective.init_personal(key)))
    flat = objective._replace(
        init=lambda key: w,
        init_personal=lambda key: beta if beta.size else (),
        value=lambda w, beta, batch, id: objective.value(tree_w(w), tree_beta(jnp.asarray(beta)), batch, id),
        deploy=lambda w, beta, slot: (w, beta),
    )
    if objective.penalty is not None:
        base = objective.penalty.value
        flat = flat._replace(penalty=objective.penalty._replace(value=lambda x, batch: base(tree_beta(x), batch)))
    batches, ids = reference.training_batches(data)
    clients = ClientData(batches.x, batches.y, batches.size, ids, ids)
    best = reference.reference_solution(objective, data)
    betas = np.zeros((len(ids), 0)) if not beta.size else jax.vmap(lambda b: ravel_pytree(b)[0])(best.beta)
    return two_block_problem.Problem(
        flat,
        objective.constants(data) if constants is None else constants,
        clients,
        data.train.sizes[~data.unseen],
        (np.asarray(ravel_pytree(best.w)[0]), np.asarray(betas)),
    )

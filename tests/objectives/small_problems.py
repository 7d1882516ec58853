"""Small federated problems, and F as a function of one long vector, for the tests of objectives."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from compiling import quickly
from majorant.data.federated import FederatedData
from majorant.objectives import reference

SIZES = (7, 5, 9, 6)
UNSEEN = 1  # not the last, so that ids and places among the clients that train differ


def problem(task="regression", *, sizes=SIZES, dimension=3, classes=2, unseen=UNSEEN, seed=0):
    """Clients of different sizes with related tasks; one of them is unseen."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(owner), dimension)) * rng.uniform(0.5, 2, dimension)
    slopes = rng.normal(size=(dimension, classes)) + 0.5 * rng.normal(size=(len(sizes), dimension, classes))
    scores = np.einsum("nd,ndk->nk", x, slopes[owner]) + 0.5 * rng.normal(size=(len(owner), classes))
    if task == "counts":
        y = rng.poisson(np.exp(np.clip(0.4 * scores[:, 0], -2, 2))).astype(float)
    else:
        y = scores[:, 0] if task == "regression" else scores.argmax(axis=1)
    kind = "classification" if task == "classification" else "regression"
    data = FederatedData.from_arrays(x, y, owner, split=(1, 0, 0), task=kind)
    hidden = np.arange(len(sizes)) == unseen
    return replace(data, unseen=hidden)


def round_problem(clients=3, repeats=2):
    """Least squares whose second moments are the identity: f' has the Hessian (1 + l2) I."""
    signs = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], float)
    x = np.tile(signs, (clients * repeats, 1))
    y = np.random.default_rng(0).normal(size=len(x))
    return FederatedData.from_arrays(x, y, np.repeat(np.arange(clients), 4 * repeats), split=(1, 0, 0))


class Flat:
    """F, each f_m and each F_j in double precision, as functions of vectors; use inside ``jax.enable_x64(True)``."""

    def __init__(self, objective, data):
        key = jax.random.key(0)
        self.batches, self.ids = reference.training_batches(data)
        self.w, self.unravel_w = ravel_pytree(reference.double(objective.init(key)))
        beta, self.unravel_beta = ravel_pytree(reference.double(objective.init_personal(key)))
        self.value, self.clients, self.personal = objective.value, len(self.ids), beta.size
        self.size = self.w.size + self.clients * self.personal

    def client(self, joint, batch, id):
        return self.value(self.unravel_w(joint[: self.w.size]), self.unravel_beta(joint[self.w.size :]), batch, id)

    def total(self, point):
        betas = point[self.w.size :].reshape(self.clients, self.personal)
        joint = lambda beta: jnp.concatenate([point[: self.w.size], beta])
        return jax.vmap(lambda b, batch, id: self.client(joint(b), batch, id))(betas, self.batches, self.ids).mean()

    def hessians(self, cases):
        """The second derivatives of all f_m, ``(cases, M, p, p)``; a case is a point and a sample's place or None."""
        batches, joints = [], []
        for point, j in cases:
            only = self.batches.weight if j is None else (jnp.arange(self.batches.weight.shape[1]) == j) + 0.0
            size = self.batches.size if j is None else jnp.ones_like(self.batches.size)
            batches.append(self.batches._replace(weight=jnp.broadcast_to(only, self.batches.weight.shape), size=size))
            betas = point[self.w.size :].reshape(self.clients, self.personal)
            joints.append(np.hstack([np.tile(point[: self.w.size], (self.clients, 1)), betas]))
        each = jax.vmap(jax.vmap(jax.hessian(self.client)), in_axes=(0, 0, None))
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
        return np.asarray(quickly(each)(jnp.asarray(np.stack(joints)), stacked, self.ids))

    def assemble(self, hessians):
        """The Hessian of F = (1/M) Σ f_m(w, β_m) from those of the f_m, ``(M, p, p)``."""
        k, p = self.w.size, self.personal
        full = np.zeros((self.size, self.size))
        for m, h in enumerate(hessians):
            mine = np.r_[:k, k + m * p : k + (m + 1) * p]
            full[np.ix_(mine, mine)] += h / self.clients
        return full


def top(matrix):
    return float(np.linalg.eigvalsh(matrix)[-1]) if matrix.size else 0.0


def bottom(matrix):
    return float(np.linalg.eigvalsh(matrix)[0])

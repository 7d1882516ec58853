"""Personalized objectives: min F(w, β) = (1/M) Σ_m f_m(w, β_m), with w shared by all clients and β_m client m's own.

f_m is a mean over the client's samples, f_m = (1/n_m) Σ_j f_{m,j}. Constants of smoothness and convexity come with an
objective, because they set the step sizes of the solvers that need no tuning: F is μ-strongly convex, L^w-smooth in w
and L^β-smooth in β; each F_j = (1/M) Σ_m f_{m,j} is 𝓛^w- and 𝓛^β-smooth.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Section 1 and Assumptions 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax

from majorant.core import ClientData, Key, Tree
from majorant.data.federated import FederatedData
from majorant.solvers import Batch


class Constants(NamedTuple):
    """Strong convexity and smoothness of F, and the smoothness of the F_j, in both blocks."""

    mu: float
    smooth_w: float  # L^w
    smooth_beta: float  # L^β
    sample_smooth_w: float  # 𝓛^w
    sample_smooth_beta: float  # 𝓛^β


class Penalty(NamedTuple):
    """What ties clients to each other in f_m(w, β_m) = f'_m(β_m) + (λ/2) ‖s w − β_m‖², and nothing else does."""

    lambda_: float
    scale: float  # s
    value: Callable[[Tree, Batch], jax.Array]  # f' over the samples of a batch


class Objective(NamedTuple):
    """A personalized objective over ``clients`` clients that train.

    ``value(w, β, batch, slot)`` is f_m over the samples of a batch, terms without samples included: over all samples of
    the client it is f_m itself, over one it is f_{m,j}. ``deploy(w, β, slot)`` is what the client in a slot predicts
    with. ``constants`` come from all data in one place; where nobody has that, each client's ``curvature`` does: the
    largest numbers over all clients are what ``constants_of`` takes (of strong convexity, the negative).
    ``penalty`` takes f_m apart where it is of that form: what solvers made for it need.
    """

    name: str
    clients: int  # M
    init: Callable[[Key], Tree]  # w
    init_personal: Callable[[Key], Tree]  # β_m; () where nothing is personal
    value: Callable[[Tree, Tree, Batch, jax.Array], jax.Array]
    deploy: Callable[[Tree, Tree, jax.Array], Tree]
    predict: Callable[[Tree, jax.Array], jax.Array]  # (deployed, x) -> probabilities (n, classes) or values (n,)
    constants: Callable[[FederatedData], Constants]
    curvature: Callable[[ClientData], Tree] | None = None
    constants_of: Callable[[Tree], Constants] | None = None
    convex: bool = True
    adapt: Callable[[Tree, Batch], Tree] | None = None  # (deployed, own samples) -> deployed, where a last step is due
    penalty: Penalty | None = None

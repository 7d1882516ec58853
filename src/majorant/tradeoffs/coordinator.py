"""Several criteria with weights, as a coordinator has them: S = Σ_j w_j S_j, and its proximal operator.

Weights sum to 1, equal ones unless given: λ Σ_j w_j S_j is the (λ/N) Σ_j S_j of the weighted-sum method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Tree
from majorant.models.base import Model
from majorant.tradeoffs.criterion import Criterion, check_shapes


class Coordinator(NamedTuple):
    """Criteria with weights: S = Σ_j w_j S_j. Functions of ``weights`` take other ones in place of ``shares``."""

    criteria: tuple[Criterion, ...]
    shares: tuple[float, ...]

    def values(self, params: Tree) -> jax.Array:
        """Every S_j, ``(N,)``."""
        return jnp.stack([c.value(params).astype(jnp.result_type(float)) for c in self.criteria])

    def named(self, params: Tree) -> dict[str, jax.Array]:
        """Every S_j by name."""
        return dict(zip(self.names, self.values(params), strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The criteria's names, numbered where several have the same."""
        given = [c.name for c in self.criteria]
        return tuple(f"{n}_{given[: i + 1].count(n)}" if given.count(n) > 1 else n for i, n in enumerate(given))

    @property
    def share_names(self) -> tuple[str, ...]:
        """The weights' names as hyperparameters; a single criterion has none, as its weight is 1."""
        return tuple(f"share_{name}" for name in self.names) if len(self.criteria) > 1 else ()

    @property
    def hyper(self) -> dict[str, float]:
        """The weights w_j as hyperparameters."""
        return dict(zip(self.share_names, self.shares, strict=False))

    def shares_of(self, hyper: Mapping[str, Any]) -> tuple[Any, ...]:
        """The weights w_j that hyperparameters say; those that they do not name stay as they are."""
        known = self.hyper | dict(hyper)
        return tuple(known[name] for name in self.share_names) or self.shares

    def check_shares(self, hyper: Mapping[str, float]) -> None:
        """Complains about weights among hyperparameters that are negative, or do not sum to 1 with the others."""
        shares = [float(share) for share in self.shares_of(hyper)]
        if not min(shares) >= 0 or not abs(sum(shares) - 1) < 1e-6:
            named = ", ".join(f"{name} = {share:g}" for name, share in zip(self.share_names, shares, strict=True))
            raise ValueError(f"the criteria's weights must be at least 0 and sum to 1, got {named}")

    def decision_gaps(self, params: Tree) -> dict[str, jax.Array]:
        """By name, the gaps between groups' rates of decisions, of the criteria that are about groups."""
        pairs = zip(self.names, self.criteria, strict=True)
        return {name: c.decision_gap(params) for name, c in pairs if c.decision_gap is not None}

    def value(self, params: Tree, weights: Any = None, *, without_prox: bool = False) -> jax.Array:
        """Σ_j w_j S_j, or the part of it that a proximal step leaves to the gradient."""
        weights = self.shares if weights is None else weights
        terms = [
            w * c.value(params)
            for w, c in zip(weights, self.criteria, strict=True)
            if not (without_prox and c.prox is not None)
        ]
        return jnp.asarray(sum(terms, jnp.zeros(())))

    @property
    def all_have_prox(self) -> bool:
        """Whether a proximal step deals with every criterion."""
        return all(c.prox is not None for c in self.criteria)

    @property
    def smooth(self) -> bool:
        """Whether every criterion has a gradient."""
        return all(c.smooth for c in self.criteria)

    def prox(self, s: Tree, rho: jax.Array | float, weights: Any = None) -> Tree:
        """argmin_θ ρ Σ_j w_j S_j(θ) + ½ ‖θ − s‖² over the criteria that have a proximal operator, exactly.

        With A = Σ w_j c_j over the quadratic ones, the rest g has step ρ/(1 + ρA) at the weighted mean of s and the
        centers: prox(s) = prox_g((s + ρ Σ w_j c_j center_j) / (1 + ρA)).
        """
        pairs = list(zip(self.shares if weights is None else weights, self.criteria, strict=True))
        pulls = [(rho * w * c.quadratic.factor, c.quadratic.center) for w, c in pairs if c.quadratic is not None]
        total = 1 + sum(pull for pull, _ in pulls)
        for pull, center in pulls:
            if center is not None:
                check_shapes("the reference model of the distance", center, s)
                s = jax.tree.map(lambda a, c, pull=pull: a + pull * c, s, center)
        s = jax.tree.map(lambda a: (a / total).astype(a.dtype), s)
        for w, c in pairs:
            if c.prox is not None and c.quadratic is None:
                moved = c.prox(s, rho * w / total)
                check_shapes(f"what the proximal operator of {c.name} gives", moved, s)
                s = jax.tree.map(lambda new, old: new.astype(old.dtype), moved, s)
        return s

    def check(self, model: Model) -> None:
        """Refuses criteria that are not finite at a model's initial parameters: training could not start."""
        for name, value in self.named(model.init(jax.random.key(0))).items() if self.criteria else ():
            if not bool(jnp.isfinite(value)):
                raise ValueError(f"the criterion {name} is {value} at the initial parameters of {model.name}")


def coordinate(
    criteria: Criterion | Sequence[Criterion], weights: Sequence[float] | None = None, *, step: str = "explicit"
) -> Coordinator:
    """Criteria and their weights (equal ones unless given), checked for the kind of step that they are to take.

    >>> from majorant.tradeoffs.criteria import l1, squared_norm
    >>> both = coordinate([squared_norm(), l1()], [0.75, 0.25], step="implicit")
    >>> both.names, both.value(jnp.array([2.0]))
    (('squared_norm', 'l1'), Array(2., dtype=float32))
    """
    several = isinstance(criteria, Sequence) and not isinstance(criteria, Criterion)
    found: tuple[Criterion, ...] = tuple(criteria) if several else (criteria,)  # type: ignore[assignment, arg-type]
    if not found:
        raise ValueError("there are no criteria: give at least one of majorant.tradeoffs.criteria, or use fedavg")
    for each in found:
        if not isinstance(each, Criterion):
            raise ValueError(
                f"criteria must be made by majorant.tradeoffs.criteria, as in l1(), got {type(each).__name__}"
            )
    try:
        shares = tuple(1 / len(found) for _ in found) if weights is None else tuple(float(w) for w in weights)
    except (TypeError, ValueError):
        raise ValueError(f"the criteria's weights must be numbers, one for each criterion, got {weights!r}") from None
    if len(shares) != len(found):
        raise ValueError(f"there are {len(found)} criteria but {len(shares)} weights")
    if not min(shares) >= 0 or not abs(sum(shares) - 1) < 1e-6:
        raise ValueError(f"the criteria's weights must be at least 0 and sum to 1, got {shares}")
    if step not in ("explicit", "implicit"):
        raise ValueError(f"step must be 'explicit' or 'implicit', got {step!r}")
    without = [c.name for c in found if not c.smooth and c.prox is None]
    if without:
        raise ValueError(f"{without[0]} is not differentiable and has no proximal operator: give its prox")
    kinked = [c.name for c in found if not c.smooth]
    if step == "explicit" and kinked:
        raise ValueError(f"{kinked[0]} is not differentiable, so an explicit step is not valid: use step='implicit'")
    hard = [c.name for c in found if c.prox is not None and c.quadratic is None]
    if step == "implicit" and len(hard) > 1:
        raise ValueError(
            f"the proximal operator of {' + '.join(hard)} is not made of theirs: an implicit step takes one such "
            "criterion, beside any number of squared_norm and distance"
        )
    return Coordinator(found, shares)

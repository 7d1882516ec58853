"""The optax optimizers that go by a name: their options have types and ranges here, which optax does not check."""

from __future__ import annotations

import optax

from majorant.math.checks import check_range


def adam(
    learning_rate: float,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    nesterov: bool = False,
) -> optax.GradientTransformation:
    """optax.adam."""
    check_shares(b1=b1, b2=b2)
    check_terms(eps, eps_root=eps_root)
    return optax.adam(learning_rate, b1, b2, eps, eps_root, nesterov=nesterov)


def adamw(
    learning_rate: float,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: float = 1e-4,
    nesterov: bool = False,
) -> optax.GradientTransformation:
    """optax.adamw."""
    check_shares(b1=b1, b2=b2)
    check_terms(eps, eps_root=eps_root, weight_decay=weight_decay)
    return optax.adamw(learning_rate, b1, b2, eps, eps_root, weight_decay=weight_decay, nesterov=nesterov)


def yogi(
    learning_rate: float, *, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-3
) -> optax.GradientTransformation:
    """optax.yogi."""
    check_shares(b1=b1, b2=b2)
    check_terms(eps)
    return optax.yogi(learning_rate, b1, b2, eps)


def adagrad(
    learning_rate: float, *, initial_accumulator_value: float = 0.1, eps: float = 1e-7
) -> optax.GradientTransformation:
    """optax.adagrad."""
    check_terms(eps, initial_accumulator_value=initial_accumulator_value)
    return optax.adagrad(learning_rate, initial_accumulator_value, eps)


def rmsprop(
    learning_rate: float,
    *,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    centered: bool = False,
    momentum: float | None = None,
    nesterov: bool = False,
) -> optax.GradientTransformation:
    """optax.rmsprop."""
    check_shares(decay=decay, **({} if momentum is None else {"momentum": momentum}))
    check_terms(eps, initial_scale=initial_scale)
    return optax.rmsprop(
        learning_rate, decay, eps, initial_scale, centered=centered, momentum=momentum, nesterov=nesterov
    )


def lion(
    learning_rate: float, *, b1: float = 0.9, b2: float = 0.99, weight_decay: float = 1e-3
) -> optax.GradientTransformation:
    """optax.lion."""
    check_shares(b1=b1, b2=b2)
    check_range("weight_decay", weight_decay, least=0)
    return optax.lion(learning_rate, b1, b2, weight_decay=weight_decay)


def check_shares(**shares: float) -> None:
    """What is kept of a moving average, in [0, 1)."""
    for name, value in shares.items():
        check_range(name, value, least=0, below=1)


def check_terms(eps: float, **terms: float) -> None:
    """What is added: ``eps``, by which is divided, is positive, the others may be 0."""
    check_range("eps", eps, above=0)
    for name, value in terms.items():
        check_range(name, value, least=0)

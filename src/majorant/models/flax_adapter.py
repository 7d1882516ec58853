"""Models from flax.linen modules, with an explicit policy for batch normalisation.

Batch normalisation keeps statistics, and federated averaging must be told what they are. There is no safe default:

* ``"batch"``: every forward pass, at training and at evaluation, uses the statistics of its own batch; none are kept.
  A prediction then depends on the other samples of its batch, the repeated samples that fill a last batch included.
* ``"frozen"``: the statistics of initialisation (mean 0 and variance 1, in flax) are used for ever, so that the layer
  is a learned scale and shift.
* ``"averaged"``: running statistics are leaves of the parameters. ``train_apply`` normalises by the batch and refreshes
  them; ``apply`` uses them; the server averages them like weights.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp

from majorant._extras import require
from majorant.core.compilation import jit
from majorant.models.base import Draw, HasSpec, Loss, Model, Spec, as_float, spec_of
from majorant.models.functions import check_shapes, trace_samples
from majorant.models.losses import loss_for

if TYPE_CHECKING:
    from flax import linen

Normalisation = Literal["batch", "frozen", "averaged"]
STATISTICS = "batch_stats"
POLICIES = {
    "batch": "every pass uses the statistics of its own batch",
    "frozen": "the initial statistics are used for ever",
    "averaged": "running statistics are parameters, averaged by the server like weights",
}


def from_flax(
    module: linen.Module,
    problem: HasSpec | Spec,
    *,
    loss: str | Loss | None = None,
    normalisation: Normalisation | None = None,
    name: str | None = None,
) -> Model:
    """A model from a ``flax.linen`` module that maps a batch ``(n, *features)`` to outputs ``(n, k)``.

    A module that behaves differently in training takes one keyword argument in its ``__call__``: either
    ``train: bool`` or, as flax's own BatchNorm does, ``use_running_average: bool``. Modules with batch statistics need
    one of the two, and a ``normalisation`` policy (see the top of this file).

    Dropout is for training alone, and its keys are derived from each minibatch's own. It needs training mode, as the
    statistics of a batch do: with batch statistics as well, "averaged" is the one policy that goes with it. Modules of
    flax's newer ``nnx`` interface are for `from_nnx`.

    >>> from flax import linen as nn
    >>> model = from_flax(nn.Sequential([nn.Dense(8), nn.relu, nn.Dense(3)]), Spec((4,), classes=3))
    >>> model.apply(model.init(jax.random.key(0)), jnp.zeros((5, 4))).shape
    (5, 3)
    """
    module_name = _check_module(module)
    spec = spec_of(problem)
    flag = next(
        (f for f in ("train", "use_running_average") if f in inspect.signature(module.__call__).parameters), None
    )

    def mode(train: bool) -> dict[str, Any]:
        return {} if flag is None else {flag: train if flag == "train" else not train}

    def variables(key: jax.Array, x: jax.Array) -> Any:
        return module.init(key, x, **mode(train=False))

    # Traced, not run: which collections the module keeps, and whether its samples are real numbers or codes.
    start = lambda x: (variables(jax.random.key(0), x), x)
    collections, sample = trace_samples(f"init of {module_name}", start, shape=(1, *spec.features))
    zeros = jnp.zeros(sample.shape, sample.dtype)
    _check_policy(module_name, set(collections), flag, normalisation)
    draws = flag == "train" and _draws(module, collections, sample, mode(train=True))
    if draws and normalisation in ("batch", "frozen"):
        raise ValueError(
            f'{module_name} has dropout, which is for training alone, and normalisation="{normalisation}", which is '
            'the same at evaluation: use "averaged"'
        )

    def forward(
        params: Any, statistics: Any, x: jax.Array, train: bool, draw: Draw | None = None
    ) -> tuple[jax.Array, Any]:
        """Outputs and statistics; the gradient never moves the statistics."""
        state = {"params": params, **({} if statistics is None else {STATISTICS: jax.lax.stop_gradient(statistics)})}
        if not train:
            outputs: Any = module.apply(state, as_float(x), **mode(train=False))
            return outputs, statistics
        rngs = {"dropout": draw.key} if draws and draw is not None else None
        outputs, changed = module.apply(state, as_float(x), **mode(train=True), mutable=[STATISTICS], rngs=rngs)
        return outputs, jax.lax.stop_gradient(changed.get(STATISTICS))

    def model(**functions: Any) -> Model:
        by_batch = normalisation in ("batch", "averaged")
        made = Model(
            loss=loss_for(spec, loss), spec=spec, name=name or module_name, normalises_by_batch=by_batch, **functions
        )
        check_shapes(made)
        return made

    if normalisation == "averaged":

        def train_apply(params: Any, x: jax.Array, draw: Draw | None = None) -> tuple[jax.Array, Any]:
            outputs, statistics = forward(params["params"], params[STATISTICS], x, True, draw)
            return outputs, {**params, STATISTICS: statistics}

        return model(
            init=lambda key: dict(variables(key, zeros)),
            apply=lambda params, x: forward(params["params"], params[STATISTICS], x, train=False)[0],
            train_apply=train_apply,
            statistics=STATISTICS,
        )

    # Flax starts statistics at constants, so one initialisation knows them; compiled, it computes them alone.
    initial = jit(lambda: variables(jax.random.key(0), zeros).get(STATISTICS))()
    return model(
        init=lambda key: variables(key, zeros).get("params", {}),
        apply=lambda params, x: forward(params, initial, x, train=normalisation == "batch")[0],
        train_apply=(lambda params, x, draw: (forward(params, None, x, True, draw)[0], params)) if draws else None,
        statistics="" if draws else None,
    )


def _draws(module: linen.Module, collections: Any, sample: Any, training: dict[str, Any]) -> bool:
    """Whether a module asks for random numbers in training, which is traced."""
    from flax.errors import InvalidRngError

    run = lambda state, x: module.apply(state, x, **training, mutable=[STATISTICS])
    try:
        jax.eval_shape(run, collections, sample)
    except InvalidRngError:
        return True
    return False


def _check_module(module: Any) -> str:
    """The module's name, or an error for what is not a module."""
    if not isinstance(module, require("flax.linen", "flax", "from_flax").Module):
        raise TypeError(f"from_flax takes an instance of a flax.linen Module, not {module!r}")
    return module.name or type(module).__name__


def _check_policy(name: str, collections: set[str], flag: str | None, normalisation: str | None) -> None:
    if others := collections - {"params", STATISTICS}:
        raise ValueError(f"{name} keeps {sorted(others)}; only params and {STATISTICS} are supported")
    if normalisation is not None and normalisation not in POLICIES:
        raise ValueError(f"normalisation is one of {', '.join(POLICIES)}, not {normalisation!r}")
    if STATISTICS not in collections:
        if normalisation is not None:
            raise ValueError(f"{name} keeps no batch statistics: leave normalisation={normalisation!r} out")
        return
    if normalisation is None:
        choices = "; ".join(f'"{policy}" ({meaning})' for policy, meaning in POLICIES.items())
        raise ValueError(f"{name} keeps batch statistics, so say what happens to them by normalisation=: {choices}")
    if flag is None:
        raise ValueError(
            f"{name} keeps batch statistics, but its __call__ takes neither train nor use_running_average: add "
            f"`train: bool` and give BatchNorm use_running_average=not train"
        )

"""Models from PyTorch modules, which run on the host in the middle of a compiled program.

The parameters are the module's ``state_dict`` as a dictionary of floating point arrays: parameters, and buffers too, so
that the server averages running statistics like weights. Buffers of whole numbers, such as BatchNorm's counter, are
averaged as real numbers and rounded when they go back into a module.

Torch runs on the CPU, one client after the other, with the number of threads that you have set. JAX sees no gradients
of it: a torch model is trained by ``local_torch`` (see `majorant.solvers.torch_solver`), not by ``local_sgd``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant._extras import require
from majorant.models.base import HasSpec, Loss, Model, Spec, as_float, spec_of
from majorant.models.losses import loss_for

if TYPE_CHECKING:
    import torch

ONE_AT_A_TIME = threading.Lock()  # a compiled program may call from several threads; modules and seeds are shared


def from_torch(
    make_module: Callable[[], torch.nn.Module],
    problem: HasSpec | Spec,
    loss: str | Loss | None = None,
    *,
    name: str | None = None,
) -> Model:
    """A model from a function that makes a ``torch.nn.Module``, which maps a batch ``(n, *features)`` to ``(n, k)``.

    ``k`` is what the loss asks for: the number of classes for cross entropy, one for logistic and squared. The module
    is in evaluation mode. Each initial point is a module that ``make_module`` makes under a seed from the run's key.
    There are no gradients: train it with ``local_torch``.
    """
    torch = require("torch", "torch", "from_torch")
    module, spec = make_checked(make_module, "from_torch").eval(), spec_of(problem)
    fitting = loss_for(spec, loss)
    width, title = fitting.outputs(spec.classes), name or type(module).__name__
    _check_outputs(module, title, spec, fitting, width)
    kinds = {key: (tuple(value.shape), value.dtype) for key, value in module.state_dict().items()}
    shapes = {key: jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for key, (shape, _) in kinds.items()}

    def make(seed: Any) -> dict[str, np.ndarray]:
        with ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seed))
            return state_of(make_module(), {key: s.dtype for key, s in shapes.items()})

    def init(key: jax.Array) -> dict[str, jax.Array]:
        seed = jax.random.bits(key, dtype=jnp.uint32)
        return jax.pure_callback(make, shapes, seed, vmap_method="sequential")

    def outputs(params: Any, x: Any) -> np.ndarray:
        state = tensors(params, {key: dtype for key, (_, dtype) in kinds.items()})
        with ONE_AT_A_TIME, torch.no_grad():
            return torch.func.functional_call(module, state, (as_tensor(x),)).numpy().astype(np.float32)

    @jax.custom_jvp
    def apply(params: Any, x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct((x.shape[0], width), jnp.float32)
        return jax.pure_callback(outputs, shape, params, as_float(x), vmap_method="sequential")

    @apply.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise ValueError(
            f"{title} is a PyTorch model, whose gradients JAX does not see: train it with local_torch, or write it as "
            "a JAX function of the same parameters (models.from_functions)"
        )

    return Model(init, apply, fitting, spec, title)


def make_checked(make_module: Callable[[], Any], name: str) -> Any:
    torch = require("torch", "torch", name)
    if isinstance(make_module, torch.nn.Module) or not callable(make_module):
        raise TypeError(f"{name} takes a function that makes a torch module, such as lambda: MyModule(), not a module")
    with torch.random.fork_rng(devices=[]):
        module = make_module()
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{name}: make_module must make a torch.nn.Module, it gives {module!r}")
    return module


def as_tensor(array: Any) -> Any:
    """A tensor with an array's numbers in memory of its own: whole numbers as ``torch.long``, others as float32."""
    import torch

    array = np.asarray(array)
    return torch.from_numpy(np.array(array, np.float32 if array.dtype.kind == "f" else np.int64))


def tensors(params: Any, dtypes: dict[str, Any]) -> dict[str, Any]:
    """A ``state_dict`` from a dictionary of arrays; what was averaged but is a whole number is rounded."""
    found = {key: as_tensor(params[key]) for key in dtypes}
    return {key: (v if dtypes[key].is_floating_point else v.round()).to(dtypes[key]) for key, v in found.items()}


def state_of(module: Any, dtypes: dict[str, Any]) -> dict[str, np.ndarray]:
    """A module's parameters and buffers as arrays."""
    return {key: value.detach().cpu().numpy().astype(dtypes[key]) for key, value in module.state_dict().items()}


def _check_outputs(module: Any, name: str, spec: Spec, loss: Loss, width: int) -> None:
    """Runs the module on three samples of zeros, as real numbers or, where it takes none, as codes."""
    import torch

    n = 3
    try:
        with torch.no_grad():
            try:
                outputs = module(torch.zeros(n, *spec.features))
            except Exception:
                outputs = module(torch.zeros(n, *spec.features, dtype=torch.long))
    except Exception as error:
        raise ValueError(f"{name} fails on samples {(n, *spec.features)}: {error}") from error
    if getattr(outputs, "shape", None) != (n, width):
        got = tuple(outputs.shape) if hasattr(outputs, "shape") else type(outputs).__name__
        raise ValueError(
            f"{name} gives {got} for {n} samples; the {loss.name} loss with {spec.classes} classes needs ({n}, {width})"
        )

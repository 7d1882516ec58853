"""A local solver that is your own PyTorch training loop.

It trains the models of ``models.from_torch``. Torch clients can share a federation with others: write the same map as
a JAX function of the same dictionary of parameters (``models.from_functions``), and give ``local_torch`` to some of the
clients by ``local_by_client``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant._extras import require
from majorant.core import Tree
from majorant.models.torch_adapter import ONE_AT_A_TIME, as_tensor, make_checked, state_of, tensors
from majorant.solvers.host_function import HostFunction, local_function

if TYPE_CHECKING:
    import torch


def local_torch(
    make_module: Callable[[], torch.nn.Module],
    train: Callable[[torch.nn.Module, torch.Tensor, torch.Tensor, torch.Tensor], Any],
) -> HostFunction:
    """A local solver that is your own PyTorch loop: ``train(module, x, y, weights)``, which trains in place.

    The module has the client's parameters and is in training mode; the tensors have a row for each of the client's
    samples (classes as ``torch.long``). Go down ``(weights * losses).mean()``: FedEM's weights are responsibilities.
    What is random in it follows the run's seed. It trains any model whose parameters are a dictionary like the module's
    ``state_dict``: that of ``from_torch``, or a JAX function of the same arrays.
    """
    torch = require("torch", "torch", "local_torch")
    template = make_checked(make_module, "local_torch")
    kinds = {key: (tuple(value.shape), value.dtype) for key, value in template.state_dict().items()}

    def train_torch(params: Any, x: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> Tree:
        module = copy.deepcopy(template)
        module.load_state_dict(tensors(params, {key: dtype for key, (_, dtype) in kinds.items()}))
        module.train()
        x = x.astype(np.float32) / 255 if x.dtype == np.uint8 else x
        with ONE_AT_A_TIME, torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(seed)
            train(module, as_tensor(x), as_tensor(y), as_tensor(weights))
        return state_of(module, {key: params[key].dtype for key in kinds})

    check = lambda shapes: _check_layout(shapes, kinds, type(template).__name__)
    return local_function(train_torch)._replace(check=check)


def _check_layout(shapes: Any, kinds: dict[str, Any], name: str) -> None:
    """Refuses the parameters of another model before anything is trained, and a part of those of this one."""
    got = {key: value.shape for key, value in shapes.items()} if isinstance(shapes, dict) else type(shapes).__name__
    want = {key: shape for key, (shape, _) in kinds.items()}
    if isinstance(got, dict) and got.items() < want.items():
        raise ValueError(
            f"local_torch trains a {name} as a whole, and this method, or its newcomers, train a part of it alone "
            f"({', '.join(got)}): use a model that JAX can train"
        )
    if got != want:
        raise ValueError(f"local_torch trains a {name} with parameters {want}, but the model's are {got}")

"""Models: a record of pure functions, built in, from plain functions, from flax or from PyTorch."""

from majorant.models.base import HasSpec, Loss, Model, Spec, as_float, spec_of
from majorant.models.builtin import cnn, linear, mlp, softmax_regression
from majorant.models.convolution import conv2d
from majorant.models.flax_adapter import from_flax
from majorant.models.functions import check_shapes, from_functions
from majorant.models.layers import conv_init, dense, dense_init, max_pool, relu
from majorant.models.losses import cross_entropy, logistic, loss_for, squared
from majorant.models.torch_adapter import from_torch

__all__ = [
    "HasSpec",
    "Loss",
    "Model",
    "Spec",
    "as_float",
    "check_shapes",
    "cnn",
    "conv2d",
    "conv_init",
    "cross_entropy",
    "dense",
    "dense_init",
    "from_flax",
    "from_functions",
    "from_torch",
    "linear",
    "logistic",
    "loss_for",
    "max_pool",
    "mlp",
    "relu",
    "softmax_regression",
    "spec_of",
    "squared",
]

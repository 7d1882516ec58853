"""Models: a record of pure functions, built in, from plain functions, flax, equinox or PyTorch."""

from majorant.models.backbone import frozen_backbone
from majorant.models.base import Draw, HasSpec, Loss, Model, Spec, as_float, spec_of
from majorant.models.builtin import cnn, linear, mlp, softmax_regression
from majorant.models.convex import Potential, dense_icnn, icnn
from majorant.models.convolution import conv2d
from majorant.models.depthwise import depthwise_conv2d
from majorant.models.dropout import dropout
from majorant.models.equinox_adapter import from_equinox
from majorant.models.flax_adapter import from_flax
from majorant.models.functions import check_shapes, from_functions
from majorant.models.inverted_residuals import efficientnet_lite0, mobilenet_v2
from majorant.models.layers import conv_init, dense, dense_init, max_pool, relu
from majorant.models.losses import class_weighted, cross_entropy, logistic, loss_for, squared
from majorant.models.lstm import lstm
from majorant.models.nnx_adapter import from_nnx
from majorant.models.packed import packed
from majorant.models.pixels import augmented
from majorant.models.precision import mixed_precision
from majorant.models.pretrained import pretrained
from majorant.models.resnet import resnet18, resnet34
from majorant.models.torch_adapter import from_torch

__all__ = [
    "Draw",
    "HasSpec",
    "Loss",
    "Model",
    "Potential",
    "Spec",
    "as_float",
    "augmented",
    "check_shapes",
    "class_weighted",
    "cnn",
    "conv2d",
    "conv_init",
    "cross_entropy",
    "dense",
    "dense_icnn",
    "dense_init",
    "depthwise_conv2d",
    "dropout",
    "efficientnet_lite0",
    "from_equinox",
    "from_flax",
    "from_functions",
    "from_nnx",
    "from_torch",
    "frozen_backbone",
    "icnn",
    "linear",
    "logistic",
    "loss_for",
    "lstm",
    "max_pool",
    "mixed_precision",
    "mlp",
    "mobilenet_v2",
    "packed",
    "pretrained",
    "relu",
    "resnet18",
    "resnet34",
    "softmax_regression",
    "spec_of",
    "squared",
]

"""Everything that goes by a name: algorithms, data sets, models, participation and schedules.

The same names work on the command line, in TOML files and here; options follow a colon (see `names`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from majorant._tables import TABLES
from majorant.app.names import Registry, parse_raw

if TYPE_CHECKING:
    from majorant.data.federated import FederatedData
    from majorant.models.base import Model

algorithms = Registry("algorithm", arguments=1)
algorithms.register("fedem", "majorant.methods:fedem", "shared components, a mixture of them for each client")
algorithms.register("fedavg", "majorant.methods:fedavg", "one model for everybody")
algorithms.register("fedavg+", "majorant.methods:fedavg_plus", "one model, tuned by each client before use")
algorithms.register("fedprox", "majorant.methods:fedprox", "FedAvg whose clients stay close to the shared model")
algorithms.register("local", "majorant.methods:local", "every client alone; nothing is sent")
algorithms.register("clustered", "majorant.methods:clustered", "clients split into clusters, a model for each")
algorithms.register("pfedme", "majorant.methods:pfedme", "personal models drawn towards a shared one")
algorithms.register("apfl", "majorant.methods:apfl", "each client mixes a personal and the shared model")
algorithms.register("ditto", "majorant.methods:ditto", "FedAvg, and personal models near the shared one")
algorithms.register("fedper", "majorant.methods:fedper", "shared layers, and a personal last one")
algorithms.register("fedrep", "majorant.methods:fedrep", "a shared representation and personal heads, trained in turn")
algorithms.register("fedbn", "majorant.methods:fedbn", "one model, but for normalisation layers, which are personal")
algorithms.register(
    "scaffold", "majorant.methods:scaffold", "FedAvg whose clients' steps are corrected for their drift"
)
algorithms.register("mocha", "majorant.methods:mocha", "linear models with a learned relation between clients")
algorithms.register("afl", "majorant.tradeoffs:afl", "one model, as good as can be for the worst client")
algorithms.register("q-ffl", "majorant.methods:q_ffl", "one model, clients with larger losses count more")
algorithms.register("fedmgda+", "majorant.methods:fedmgda_plus", "one model, steps that are good for every client")

for _name, _help in {
    "lsgd": "local SGD on a personalized objective",
    "acd": "accelerated coordinate descent on a personalized objective",
    "asvrcd": "accelerated, stochastic, with control variates, on a personalized objective",
    "ascd": "accelerated and stochastic, on a personalized objective",
    "svrcd": "stochastic with control variates, on a personalized objective",
    "scd": "stochastic coordinate descent on a personalized objective",
}.items():
    algorithms.register(_name, f"majorant.methods:{_name}", _help)
algorithms.register("l2sgd+", "majorant.methods:l2sgd_plus", "local SGD without loops, on the mixture objective")

UNLABELLED = ("gaussian-mixture", "k-means", "dictionary", "factorization")  # by FedMM, on samples without labels
for _name, _help in {
    "gaussian-mixture": "a density of several Gaussians, without labels",
    "k-means": "clusters, without labels",
    "dictionary": "sparse codes on shared atoms, without labels",
    "factorization": "few factors for all features, without labels",
}.items():
    algorithms.register(_name, f"majorant.app.unlabelled:{_name.replace('-', '_')}", _help)


def needs_no_labels(algorithm: str) -> bool:
    """Whether a method learns from samples without labels.

    >>> needs_no_labels("k-means:clusters=3"), needs_no_labels("fedem")
    (True, False)
    """
    return parse_raw(algorithm)[0] in UNLABELLED if algorithm else False


objectives = Registry("objective", arguments=1)
for _name, _help in {
    "traditional": "one model for everybody",
    "fully-personal": "every client alone",
    "multi-task": "a shared model, and personal ones near it",
    "mixture": "personal models near their mean",
    "apfl2": "each client interpolates between its own and the shared model",
    "weight-sharing": "some parameters shared, the others personal",
    "residual": "a shared model of some features, corrected by a personal one of others",
    "maml": "a shared model that is good after one personal gradient step",
}.items():
    objectives.register(_name, f"majorant.objectives:{_name.replace('-', '_')}", _help)

models = Registry("model", arguments=1)
models.register("auto", "majorant.app.catalogue:natural_model", "cnn for images, linear for everything else")
models.register("linear", "majorant.models:linear", "linear (logistic or softmax) model")
models.register("softmax", "majorant.models:softmax_regression", "softmax regression, one output per class")
models.register("mlp", "majorant.models:mlp", "multilayer perceptron")
models.register("cnn", "majorant.models:cnn", "two 3×3 convolutions with pooling, then a dense layer")
models.register("mobilenet-v2", "majorant.models:mobilenet_v2", "MobileNet-v2, for images of 32×32 and larger")
models.register("resnet18", "majorant.models:resnet18", "ResNet-18")
models.register("resnet34", "majorant.models:resnet34", "ResNet-34")
models.register("efficientnet-lite0", "majorant.models:efficientnet_lite0", "EfficientNet-Lite0")
models.register("lstm", "majorant.models:lstm", "stacked LSTM for the next character of a sequence")

augmentations = Registry("augmentation", arguments=1)
augmentations.register("crop", "majorant.app.catalogue:cropped", "images shifted by up to so many pixels: crop:4")
augmentations.register("flip", "majorant.app.catalogue:flipped", "images mirrored, left to right, half of the time")

datasets = Registry("data set")
datasets.register("synthetic", "majorant.data:synthetic_mixture", "the FedEM paper's mixture of linear classifiers")

datasets.register("logistic", "majorant.data:heterogeneous_logistic", "logistic regressions that differ by sigma")

participations = Registry("participation")
participations.register("full", "majorant.exchange.participation:full", "everybody in every round")
participations.register("uniform", "majorant.exchange.participation:uniform", "a fixed share, without replacement")
participations.register("bernoulli", "majorant.exchange.participation:bernoulli", "each with a probability")
participations.register("cyclic", "majorant.exchange.participation:cyclic", "groups that take turns")

stages = Registry("channel")
for _name, _help in {
    "quantized": "stochastic quantization: 8 bits a coordinate, or fewer",
    "natural": "powers of two: 9 bits a coordinate",
    "random-k": "some coordinates, drawn at random",
    "top-k": "the largest coordinates, with error feedback",
    "clip": "displacements of at most a length",
    "lossy": "messages that are lost with a probability",
    "secure-sum": "the server learns the sum alone: whole numbers modulo 2^k; comes last",
    "identity": "everything as it is",
}.items():
    stages.register(_name, f"majorant.exchange.channel:{_name.replace('-', '_')}", _help)
NOISES = ("gaussian", "skellam")
stages.register("skellam", "majorant.exchange.noise:skellam", "noise that clients draw together, before secure-sum")
stages.register("adaptive-clip", "majorant.exchange.noise:adaptive_clip", "a length that follows a quantile of theirs")
stages.register(
    "gaussian", "majorant.exchange.noise:gaussian", "noise after clipping: hides clients (at=client: locally)"
)

combinations = Registry("combination")
for _name, _help in {
    "mean": "the weighted mean, which one hostile client can move anywhere",
    "median": "the median of every coordinate",
    "trimmed-mean": "the mean of every coordinate without a share of smallest and largest values",
    "geometric-median": "the point with the least sum of distances to all uploads (RFA)",
    "krum": "the upload that is nearest to most others, for a share of hostile clients",
    "multi-krum": "the mean of those that Krum likes best",
    "centered-clip": "steps towards the mean to which nobody adds more than a radius",
    "norm-bound": "the mean of displacements of at most a length",
    "self-centered-clip": "for peers: neighbours' values clipped around a node's own",
}.items():
    _factory = "_combine:weighted_mean" if _name == "mean" else f"robust:{_name.replace('-', '_')}"
    combinations.register(_name, f"majorant.exchange.{_factory}", _help)

attacks = Registry("attack")
for _name, _help in {
    "sign-flip": "displacements turned around",
    "scaling": "displacements that are too long",
    "noise": "Gaussian noise",
    "label-flip": "training on labels that are turned around",
    "model-replacement": "such training, boosted so that the mean becomes its model",
    "not-a-number": "NaN",
    "huge": "numbers of a size that no model has",
    "stale": "stragglers: what they would have sent some rounds ago",
    "alie": "a little is enough: the honest mean less some standard deviations",
    "inner-product": "the honest mean, turned around",
}.items():
    attacks.register(_name, f"majorant.exchange.attack:{_name.replace('-', '_')}", _help)

topologies = Registry("topology")
for _name, _help in {
    "ring": "each node and its two neighbours",
    "torus": "a grid that closes at its edges: four neighbours",
    "star": "one node in the middle talks to all others",
    "complete": "everybody with everybody, equal weights: the same as a server",
    "erdos-renyi": "each pair with a probability; varying=true draws anew each round",
    "exponential": "neighbours at distances 1, 2, 4, …",
    "one-peer-exponential": "one neighbour a round, at distances 1, 2, 4, … in turn",
    "matching": "random pairs, drawn anew each round",
}.items():
    topologies.register(_name, f"majorant.exchange.topology:{_name.replace('-', '_')}", _help)
topologies.register("edges", "majorant.exchange.topology:read_edges", "the links in a CSV file of two columns")

criteria = Registry("criterion", arguments=1)
for _name, _help in {
    "squared-norm": "small parameters: half their squared norm",
    "l1": "sparse parameters: the sum of their sizes",
    "group-lasso": "rows of parameters that vanish together",
    "distance": "parameters close to the shared model in a run folder",
    "public-loss": "a small loss on public samples from a file",
    "demographic-parity": "the same mean prediction for all groups of public samples",
    "equalized-odds": "the same mean prediction for all groups, within each true class",
}.items():
    criteria.register(_name, f"majorant.app.named_criteria:{_name.replace('-', '_')}", _help)

schedules = Registry("schedule")
schedules.register("constant", "majorant.solvers.schedules:constant", "the learning rate as given")
schedules.register("multi-step", "majorant.solvers.schedules:multi_step", "×0.1 at 1/2 and 3/4 of the rounds")
schedules.register("cosine", "majorant.solvers.schedules:cosine", "falls along half a cosine")

optimizers = Registry("local optimizer", arguments=1)
optimizers.register("sgd", "majorant.app.catalogue:no_optimizer", "stochastic gradient descent with momentum")
for _name in ("adam", "adamw", "yogi", "adagrad", "rmsprop", "lion"):
    optimizers.register(_name, f"majorant.app.named_optimizers:{_name}", f"optax.{_name}")

exact_solvers = Registry("solver of the whole local problem")
exact_solvers.register("lbfgs", "majorant.solvers.black_box:local_lbfgs", "L-BFGS on all of a client's samples")
exact_solvers.register(
    "newton", "majorant.solvers.black_box:local_newton", "damped Newton on all of a client's samples"
)
exact_solvers.register("least-squares", "majorant.solvers.black_box:local_least_squares", "in closed form")

KINDS = {
    "algorithms": algorithms,
    "objectives": objectives,
    "data": datasets,
    "models": models,
    "augmentations": augmentations,
    "participation": participations,
    "channel": stages,
    "combine": combinations,
    "attacks": attacks,
    "topologies": topologies,
    "criteria": criteria,
    "schedules": schedules,
    "optimizers": optimizers,
    "solvers": exact_solvers,
}


def natural_model(problem: Any) -> Any:
    """The paper's CNN for images of at least 12 × 12 pixels, else a linear model."""
    from majorant import models
    from majorant.models.base import spec_of

    features = spec_of(problem).features
    return models.cnn(problem) if len(features) == 3 and min(features[:2]) >= 12 else models.linear(problem)


def cropped(model: Model, pixels: int = 4) -> Model:
    """The model, trained on images that are shifted at random."""
    from majorant.math.checks import check_whole
    from majorant.models import augmented

    check_whole("pixels", pixels)
    return augmented(model, crop=pixels, flip=False)


def flipped(model: Model) -> Model:
    """The model, trained on images that are mirrored at random."""
    from majorant.models import augmented

    return augmented(model, crop=0, flip=True)


USUAL_PROBLEMS = {  # one sample's shape and the number of classes by which the cost of a model is shown
    "cnn": ((28, 28, 1), 10),
    "mobilenet-v2": ((32, 32, 3), 10),
    "resnet18": ((32, 32, 3), 10),
    "resnet34": ((32, 32, 3), 10),
    "efficientnet-lite0": ((32, 32, 3), 10),
    "lstm": ((80,), 80),
}


def costs_of_models() -> dict[str, str]:
    """What networks cost on a usual problem: parameters, and floating point operations of one forward pass."""
    from majorant.models.base import Spec
    from majorant.models.cost import forward_flops, parameter_count

    found = {}
    for name, (features, classes) in USUAL_PROBLEMS.items():
        model = models.make(name, Spec(features, classes))
        shape = "×".join(map(str, features))
        found[name] = f"{parameter_count(model):,} parameters, {forward_flops(model) / 1e6:.1f} MFLOP for {shape}"
    return found


def no_optimizer(learning_rate: float) -> None:
    """Plain SGD, which the local solver brings itself."""
    del learning_rate


def digits(
    *,
    clients: int = 20,
    partition: str = "dirichlet",
    alpha: float | None = None,
    k: int | None = None,
    per_client: int | None = None,
    skew: str | None = None,
    min_samples: int | None = None,
    unseen: float = 0.0,
    seed: int = 0,
) -> FederatedData:
    """scikit-learn's bundled digits."""
    options = {"alpha": alpha, "k": k, "per_client": per_client, "skew": skew, "min_samples": min_samples}
    return image_set("digits", clients, partition, options, 0, unseen, seed)


def rotated_digits(*, clients: int = 20, unseen: float = 0.0, seed: int = 0) -> FederatedData:
    """Digits turned by 0, 90, 180 or 270 degrees; each client's share one of the four."""
    from majorant.data import load_digits, partitioned, rotated

    x, y, owner, cluster = rotated(*load_digits(), clients=clients, seed=seed)
    return partitioned(x, y, owner, seed=seed, name="rotated-digits", unseen=unseen, truth={"cluster": cluster})


def named_table(name: str) -> Callable[..., FederatedData]:
    """The factory of a table with natural clients; runs read it as they read a file, with the flags of tables."""

    def make(*, unseen: float = 0.0, seed: int = 0) -> FederatedData:
        from majorant.data import load_table

        return load_table(name, unseen=unseen, seed=seed)[0]

    return make


def downloaded(name: str, usual_clients: int, usual_partition: str = "dirichlet") -> Callable[..., FederatedData]:
    """The factory of an image set that is read from disk or downloaded; ``samples`` (0: all) keeps a random part."""

    def make(
        *,
        clients: int = usual_clients,
        partition: str = usual_partition,
        alpha: float | None = None,
        k: int | None = None,
        per_client: int | None = None,
        skew: str | None = None,
        min_samples: int | None = None,
        samples: int = 0,
        unseen: float = 0.0,
        seed: int = 0,
    ) -> FederatedData:
        options = {"alpha": alpha, "k": k, "per_client": per_client, "skew": skew, "min_samples": min_samples}
        return image_set(name, clients, partition, options, samples, unseen, seed)

    return make


OF_PARTITIONS: dict[str, dict[str, Any]] = {  # the options of each, with what they are unless given; None: its own
    "iid": {},
    "dirichlet": {"alpha": 0.4, "min_samples": None},
    "classes": {"k": 2},
    "shards": {"per_client": None},
    "sizes": {"skew": None, "min_samples": None},
    "pachinko": {"alpha": 0.4},
    "kmeans": {},
}


def image_set(
    name: str, clients: int, partition: str, options: dict[str, Any], samples: int, unseen: float, seed: int
) -> FederatedData:
    """A plain labelled set, or some of its samples drawn at random, partitioned among clients."""
    import numpy as np

    from majorant import data
    from majorant.data.images import CIFAR100_COARSE

    if partition == "pachinko" and name != "cifar100":
        raise ValueError(f"pachinko needs labels with superclasses, which cifar100 has and {name} has not")
    usual = OF_PARTITIONS.get(partition, {})
    odd = next((key for key, value in options.items() if value is not None and key not in usual), None)
    if odd is not None and partition in OF_PARTITIONS:
        takes = f"takes {' and '.join(usual)}" if usual else "has no options"
        raise ValueError(f"{odd} means nothing for {name} with partition={partition}, which {takes}")
    asked = usual | {key: value for key, value in options.items() if value is not None and key in usual}
    given = {key: value for key, value in asked.items() if value is not None}
    x, y = getattr(data, f"load_{name.replace('-', '_')}")()
    if samples:
        if not 0 < samples <= len(x):
            raise ValueError(f"samples must be between 1 and {len(x)} (0: all), got {samples}")
        rows = np.random.default_rng([seed, 2]).permutation(len(x))[:samples]  # a stream of its own
        x, y = x[rows], y[rows]
    if partition == "pachinko":
        given["coarse_of_fine"] = CIFAR100_COARSE
    return data.partitioned(x, y, partition, clients=clients, seed=seed, name=name, unseen=unseen, **given)


datasets.register("digits", digits, "scikit-learn's 8×8 digits, partitioned")
datasets.register("rotated-digits", rotated_digits, "digits; four rotations are hidden clusters")
datasets.register("mnist", downloaded("mnist", 100), "MNIST, partitioned")
datasets.register("fashion-mnist", downloaded("fashion-mnist", 100), "Fashion-MNIST, partitioned")
datasets.register("emnist", downloaded("emnist", 100), "EMNIST by class (62 of them), partitioned")
datasets.register("femnist", "majorant.data:load_femnist", "handwritten characters as LEAF has them, a client a writer")
datasets.register("cifar10", downloaded("cifar10", 80), "CIFAR-10, partitioned")
datasets.register("cifar100", downloaded("cifar100", 100, "pachinko"), "CIFAR-100; Pachinko over its 20 superclasses")
datasets.register("shakespeare", "majorant.data:load_shakespeare", "Shakespeare's plays, a client for each role")
datasets.register("arrays", "majorant.app.own_arrays:load_arrays", "your own: an .npz file with x, y and client")
for _name, _facts in TABLES.items():
    datasets.register(_name, named_table(_name), _facts.summary)

"""The FedEM paper: its synthetic data, digits, CIFAR, Shakespeare, networks of peers."""

from typing import Any

from majorant.app.reproduce import Experiment, lazily


def experiment(place: str, help: str, **options: Any) -> Experiment:
    """An experiment of this package, "module:function"."""
    return lazily(f"majorant_reproductions.fedem.{place}", help, **options)


EXPERIMENTS = {
    "fedem/table2-synthetic": experiment(
        "synthetic:table2", "average and bottom-decile accuracy of all methods, tuned"
    ),
    "fedem/table2-synthetic-text": experiment(
        "synthetic:table2", "the same on data made by the paper's text", variant="paper"
    ),
    "fedem/table3-unseen": experiment(
        "synthetic:table3", "clients unseen at training (20 %) against FedAvg and FedAvg+"
    ),
    "fedem/table7-third": experiment("synthetic:table7", "FedEM with a third of the rounds"),
    "fedem/table8-sampling": experiment("synthetic:table8", "20 % of the clients in each of 1,200 rounds"),
    "fedem/figure1-sampling": experiment("synthetic:figure1_sampling", "accuracy against the share of sampled clients"),
    "fedem/figure1-components": experiment("synthetic:figure1_components", "accuracy against the number of components"),
    "fedem/figure2-samples": experiment("synthetic:figure2", "accuracy against an unseen client's number of samples"),
    "fedem/j4-clusters": experiment("synthetic:clusters", "clients from one component each: recovered clusters"),
    "fedem/j1-decentralized": experiment("decentralized:decentralized", "D-FedEM on networks of peers, and FedEM"),
    "fedem/failures": experiment("decentralized:failures", "D-FedEM while links fail and nodes come and go"),
    "fedem/rates": experiment("decentralized:rates", "the rates of Theorems 3.2 and 3.3, a run for every length"),
    "fedem/table2-cifar10": experiment(
        "deep_tables:table2", "CIFAR-10, MobileNet-v2 from random weights (needs a GPU)"
    ),
    "fedem/table2-cifar10-weights": experiment(
        "deep_tables:table2", "the same, EfficientNet-Lite0 from ImageNet weights", weights=True
    ),
    "fedem/table2-cifar10-split": experiment(
        "deep_tables:table2", "the same weights, the split of the paper's text", weights=True, split="paper"
    ),
    "fedem/table2-cifar100": experiment(
        "deep_tables:table2", "CIFAR-100, MobileNet-v2 from random weights", data="cifar100"
    ),
    "fedem/table2-cifar100-weights": experiment(
        "deep_tables:table2", "the same, EfficientNet-Lite0 as above", data="cifar100", weights=True
    ),
    "fedem/table2-emnist": experiment(
        "deep_tables:table2", "EMNIST, LEAF's network (needs its files, and a GPU)", data="emnist"
    ),
    "fedem/table2-mnist": experiment("deep_tables:table2", "MNIST in EMNIST's place", data="mnist"),
    "fedem/table2-fashion-mnist": experiment(
        "deep_tables:table2", "Fashion-MNIST in EMNIST's place", data="fashion-mnist"
    ),
    "fedem/table2-shakespeare": experiment(
        "deep_tables:table2", "Shakespeare, a stacked LSTM (needs a GPU, for hours)", data="shakespeare"
    ),
    "fedem/table3-cifar10": experiment("deep_tables:table3", "clients that join CIFAR-10 after training, and Figure 2"),
    "fedem/figure1-cifar10": experiment("deep_tables:figure1", "CIFAR-10: the share of clients in a round; components"),
    "fedem/table7-cifar10": experiment("deep_tables:table7", "CIFAR-10: FedEM with a third of the rounds"),
    "fedem/table8-cifar10": experiment("deep_tables:table8", "CIFAR-10: 20 % of the clients in each of 1,200 rounds"),
    "fedem/j1-cifar10": experiment("deep_tables:decentralized", "CIFAR-10: FedEM on a network of peers"),
    "fedem/j5-cifar10": experiment("deep_tables:larger", "CIFAR-10: ResNets against three networks of FedEM"),
    "fedem/heads-cifar10": experiment("deep_tables:heads", "CIFAR-10: personal networks, mixtures, personal heads"),
    "fedem/table2-cifar10-head": experiment(
        "deep_tables:table2", "CIFAR-10, the last layer over fixed ones alone: minutes, without a GPU", head=True
    ),
    "fedem/table2-cifar10-split-head": experiment(
        "deep_tables:table2", "the same, the split of the paper's text", head=True, split="paper"
    ),
    "fedem/table3-cifar10-head": experiment("deep_tables:table3", "the same, clients that join", head=True),
    "fedem/table7-cifar10-head": experiment("deep_tables:table7", "the same, a third of the rounds", head=True),
    "fedem/table8-cifar10-head": experiment(
        "deep_tables:table8", "the same, 20 % of the clients in a round", head=True
    ),
    "fedem/figure1-cifar10-head": experiment(
        "deep_tables:figure1", "the same, shares of clients; components", head=True
    ),
    "fedem/j1-cifar10-head": experiment("deep_tables:decentralized", "the same, a network of peers", head=True),
    "fedem/adaptive": experiment("adaptive:adaptive", "FedEM's starts, averages and pruned components"),
    "fedem/digits": experiment("synthetic:digits", "digits with labels Dirichlet(0.4) over clients"),
    "fedem/rotated-digits": experiment("synthetic:rotated_digits", "digits turned by four angles: hidden clusters"),
}

"""The FedEM paper: its synthetic data, digits, CIFAR, Shakespeare, networks of peers."""

from majorant.app.reproduce import lazily

EXPERIMENTS = {
    "fedem/table2-synthetic": lazily(
        "majorant_reproductions.fedem.synthetic:table2", "average and bottom-decile accuracy of all methods, tuned"
    ),
    "fedem/table2-synthetic-text": lazily(
        "majorant_reproductions.fedem.synthetic:table2_text", "the same on data made by the paper's text"
    ),
    "fedem/table3-unseen": lazily(
        "majorant_reproductions.fedem.synthetic:table3", "clients unseen at training (20 %) against FedAvg and FedAvg+"
    ),
    "fedem/table7-third": lazily("majorant_reproductions.fedem.synthetic:table7", "FedEM with a third of the rounds"),
    "fedem/table8-sampling": lazily(
        "majorant_reproductions.fedem.synthetic:table8", "20 % of the clients in each of 1,200 rounds"
    ),
    "fedem/figure1-sampling": lazily(
        "majorant_reproductions.fedem.synthetic:figure1_sampling", "accuracy against the share of sampled clients"
    ),
    "fedem/figure1-components": lazily(
        "majorant_reproductions.fedem.synthetic:figure1_components", "accuracy against the number of components"
    ),
    "fedem/figure2-samples": lazily(
        "majorant_reproductions.fedem.synthetic:figure2", "accuracy against an unseen client's number of samples"
    ),
    "fedem/j4-clusters": lazily(
        "majorant_reproductions.fedem.synthetic:clusters", "clients from one component each: recovered clusters"
    ),
    "fedem/j1-decentralized": lazily(
        "majorant_reproductions.fedem.decentralized:decentralized", "D-FedEM on networks of peers, and FedEM"
    ),
    "fedem/failures": lazily(
        "majorant_reproductions.fedem.decentralized:failures", "D-FedEM while links fail and nodes come and go"
    ),
    "fedem/rates": lazily(
        "majorant_reproductions.fedem.decentralized:rates", "the rates of Theorems 3.2 and 3.3, a run for every length"
    ),
    "fedem/table2-cifar10": lazily(
        "majorant_reproductions.fedem.deep_tables:table2", "CIFAR-10, MobileNet-v2 from random weights (needs a GPU)"
    ),
    "fedem/table2-cifar10-weights": lazily(
        "majorant_reproductions.fedem.deep_tables:table2_weights", "the same, EfficientNet-Lite0 from ImageNet weights"
    ),
    "fedem/table2-cifar10-split": lazily(
        "majorant_reproductions.fedem.deep_tables:table2_split", "the same weights, the split of the paper's text"
    ),
    "fedem/table2-cifar100": lazily(
        "majorant_reproductions.fedem.deep_tables:table2_hundred", "CIFAR-100, MobileNet-v2 from random weights"
    ),
    "fedem/table2-cifar100-weights": lazily(
        "majorant_reproductions.fedem.deep_tables:table2_hundred_weights", "the same, EfficientNet-Lite0 as above"
    ),
    "fedem/table2-emnist": lazily(
        "majorant_reproductions.fedem.deep_tables:table2_emnist", "EMNIST, LEAF's network (needs its files, and a GPU)"
    ),
    "fedem/table2-mnist": lazily("majorant_reproductions.fedem.deep_tables:table2_mnist", "MNIST in EMNIST's place"),
    "fedem/table2-fashion-mnist": lazily(
        "majorant_reproductions.fedem.deep_tables:table2_fashion", "Fashion-MNIST in EMNIST's place"
    ),
    "fedem/table2-shakespeare": lazily(
        "majorant_reproductions.fedem.deep_tables:table2_text", "Shakespeare, a stacked LSTM (needs a GPU, for hours)"
    ),
    "fedem/table3-cifar10": lazily(
        "majorant_reproductions.fedem.deep_tables:table3", "clients that join CIFAR-10 after training, and Figure 2"
    ),
    "fedem/figure1-cifar10": lazily(
        "majorant_reproductions.fedem.deep_tables:figure1", "CIFAR-10: the share of clients in a round; components"
    ),
    "fedem/table7-cifar10": lazily(
        "majorant_reproductions.fedem.deep_tables:table7", "CIFAR-10: FedEM with a third of the rounds"
    ),
    "fedem/table8-cifar10": lazily(
        "majorant_reproductions.fedem.deep_tables:table8", "CIFAR-10: 20 % of the clients in each of 1,200 rounds"
    ),
    "fedem/j1-cifar10": lazily(
        "majorant_reproductions.fedem.deep_tables:decentralized", "CIFAR-10: FedEM on a network of peers"
    ),
    "fedem/j5-cifar10": lazily(
        "majorant_reproductions.fedem.deep_tables:larger", "CIFAR-10: ResNets against three networks of FedEM"
    ),
    "fedem/heads-cifar10": lazily(
        "majorant_reproductions.fedem.deep_tables:heads", "CIFAR-10: personal networks, mixtures, personal heads"
    ),
    "fedem/adaptive": lazily(
        "majorant_reproductions.fedem.adaptive:adaptive", "FedEM's starts, averages and pruned components"
    ),
    "fedem/digits": lazily(
        "majorant_reproductions.fedem.synthetic:digits", "digits with labels Dirichlet(0.4) over clients"
    ),
    "fedem/rotated-digits": lazily(
        "majorant_reproductions.fedem.synthetic:rotated_digits", "digits turned by four angles: hidden clusters"
    ),
}

"""FL-bench's FedAvg and FedEM on our network and rows; run with a clone of FL-bench as second argument.

It imports packages for its own datasets and networks, for its evaluation, for several processes, and to choose among
GPUs; none is used here, and any may be absent. That includes torchvision, whose transforms it would call on every row
to change nothing: rows have no transform here, which saves it some time.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch

from benchmarks.peers.absent import may_be_absent
from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.torch_parts import mixture_accuracy, network, tensors
from benchmarks.peers.work import folder, load


def main() -> None:
    """Its own servers and clients, one client after the other; its evaluation is off while rounds are timed."""
    work, train, test = load(work_file())
    own = folder()
    copy = Path(own.name) / "FL-bench"  # it reads partitions from a folder of its own
    shutil.copytree(sys.argv[2], copy, ignore=shutil.ignore_patterns(".git"))
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    may_be_absent("pynvml", "torchvision", "ray", "pandas", "PIL", "sklearn", "matplotlib")
    import hydra
    from data.utils import datasets
    from hydra.core.hydra_config import HydraConfig
    from src.server import fedavg
    from src.server.fedem import FedEMServer
    from src.utils import models
    from src.utils.functional import parse_args

    (x, y), held_out = tensors(train), tensors(test)
    rows = np.arange(y.numel()).reshape(y.shape)
    place = copy / "data" / "rows"
    place.mkdir()
    (place / "args.json").write_text(json.dumps({"split": "sample", "monitor_window_name_suffix": "rows"}))
    everyone = list(range(work.clients))
    parts = [{"train": list(rows[t]), "val": [], "test": []} for t in everyone]
    separation = {"train": everyone, "val": everyone, "test": everyone, "total": work.clients}
    with (place / "partition.pkl").open("wb") as file:
        pickle.dump({"separation": separation, "data_indices": parts}, file)

    class Rows(datasets.BaseDataset):
        def __init__(self, root: Path, args: object = None, **transforms: object) -> None:
            super().__init__(x.flatten(0, 1), y.flatten(), list(range(work.classes)), **transforms)

        def _rescale_data(self) -> None:  # our features are no images in bytes
            pass

    class Ours(models.DecoupledModel):
        def __init__(self, dataset: str, pretrained: bool) -> None:
            super().__init__()
            layers = network(work, train.x.shape[2:], seed=None).cpu()
            layers = list(layers) if isinstance(layers, torch.nn.Sequential) else [layers]
            self.base, self.classifier = torch.nn.Sequential(*layers[:-1]), layers[-1]

    fedavg.get_optimal_cuda_device = lambda use_cuda: torch.device("cuda:0" if use_cuda else "cpu")
    fedavg.FedAvgServer.get_dataset_transforms = lambda self: {}
    datasets.DATASETS["rows"], models.MODELS["ours"] = Rows, Ours
    server_class, name = (FedEMServer, "fedem") if work.method == "fedem" else (fedavg.FedAvgServer, "fedavg")
    settings = [
        f"method={name}", "dataset.name=rows", "model.name=ours", f"optimizer.lr={work.lr}",
        f"optimizer.momentum={work.momentum}", f"optimizer.weight_decay={work.decay}", "common.local_epoch=1",
        f"common.join_ratio={work.sampled / work.clients}", f"common.global_epoch={work.rounds}",
        f"common.batch_size={work.batch}", "common.client_side_evaluation=false",
        f"common.use_cuda={work.device == 'cuda'}",
        "common.test.client.interval=-1", f"common.verbose_gap={10**9}", "common.save_log=false",
        "common.save_learning_curve_plot=false", "common.save_metrics=false", "common.seed=0",
        f"+fedem.n_learners={work.components}",
        f"hydra.run.dir={own.name}", f"hydra.runtime.output_dir={own.name}",
    ]  # fmt: skip
    with hydra.initialize_config_dir(str(copy / "config"), version_base=None):
        config = hydra.compose("defaults", settings, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    config = parse_args(config, name, getattr(server_class, "get_hyperparams", None))
    server = server_class(args=config)
    clock = Clock(work)

    def score() -> float:
        parameters, even = server.public_model_params, torch.full((work.components,), 1 / work.components)
        server.model.load_state_dict(parameters, strict=False)
        model = deepcopy(server.model).to(torch.device("cpu"))
        learners = getattr(model, "learners", [model])
        if work.components == 1:
            return mixture_accuracy(learners, torch.ones(work.clients, 1), held_out)
        weights = [even if w is None else w for w in server.client_learner_weights.values()]
        return mixture_accuracy(learners, torch.stack(weights), held_out)

    inner = server.train_one_round

    def one_round() -> None:
        inner()
        clock.round(score)

    server.train_one_round = one_round
    clock.ready()
    server.train()
    clock.finish(version=f"FL-bench, torch {torch.__version__}")


if __name__ == "__main__":
    main()

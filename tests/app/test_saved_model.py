"""What a saved model needs beside its folder, and what happens where that is not there any more."""

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import majorant as mj
from made_weights import made_file
from majorant.app.build import build
from majorant.app.config import make_config
from majorant.app.execute import run_in_folder
from majorant.app.saved_model import ModelMeta, federation_of, model_meta
from majorant.data import partitioned
from majorant.models import Spec, efficientnet_lite0


def images():
    """Three clients with a few images each."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (30, 32, 32, 3)).astype(np.uint8)
    return partitioned(x, np.arange(30) % 3, np.arange(30) % 2)


def test_a_head_belongs_to_the_weights_that_it_was_trained_over(tmp_path):
    path, rng = tmp_path / "weights.safetensors", np.random.default_rng(0)
    whole = efficientnet_lite0(Spec((32, 32, 3), 3), width=0.1, by_layers=True)
    shapes = jax.eval_shape(whole.init, jax.random.key(0))["weights"]
    save_file(made_file(shapes, 5, rng), path)
    model = f"efficientnet-lite0:width=0.1,weights={path},trained=head"
    settings = {"algorithm": "fedavg", "model": model, "rounds": 1, "local": {"schedule": "constant"}}
    data, folder = images(), tmp_path / "run"
    config = make_config(settings)
    run = run_in_folder(config, folder, problem=build(config, data))
    width = shapes["dense"]["weight"].shape[0]
    assert jax.tree.map(np.shape, run.server.value) == {"weight": (width, 3), "bias": (3,)}
    numbers = 2 * (3 * width + 3)  # of both clients' heads: nothing else is sent but a few sums
    assert 4 * numbers <= run.summary()["communication"]["bytes_up"] < 4 * numbers + 100
    run.model(0).save(tmp_path / "own")
    x = data.test.x
    kept = [mj.load_model(place).predict_proba(x) for place in (folder, tmp_path / "own")]
    np.testing.assert_allclose(kept[0], run.deployment.personalize(x[:0], np.zeros(0, int)).predict_proba(x), rtol=1e-6)

    first = path.read_bytes()
    save_file(made_file(shapes, 5, rng), path)
    for place in (folder, tmp_path / "own"):
        with pytest.raises(ValueError, match="is not the one that this model was trained from"):
            mj.load_model(place)
    more = make_config(settings, rounds=2)
    with pytest.raises(ValueError, match="was trained from other weights than there are now"):
        run_in_folder(more, folder, problem=build(more, data), resume=True)
    path.write_bytes(first)
    np.testing.assert_array_equal(mj.load_model(tmp_path / "own").predict_proba(x), kept[1])
    assert run_in_folder(more, folder, problem=build(more, data), resume=True).rounds == 2


def test_a_saved_network_has_the_nodes_that_trained():
    """Newcomers draw those that they ask from them; unseen clients are no nodes."""
    data = "synthetic:clients=6,dimension=2,unseen=0.34"
    config = make_config({"algorithm": "fedavg", "data": data, "topology": "ring"})
    problem = build(config)
    meta = ModelMeta.model_validate(model_meta(config, problem.data, None, 0))
    nodes = [each.exchange.network.nodes for each in (problem.federation, federation_of(config, meta))]
    assert nodes == [4, 4]

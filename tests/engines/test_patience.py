"""Early stopping on validation samples: the best round is kept, test samples play no part, resuming changes nothing."""

import jax
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.engines.patience import best_line, kept, merit, out_of_patience

LOCAL = mj.local_sgd(3.0, epochs=1, batch_size=4)  # too long: validation scores go up and down


def lines(*scores, metric="accuracy"):
    return [{f"validation_{metric}": {"mean": a}, "validation_loss": b} for a, b in scores]


def test_the_best_line_and_how_long_to_wait():
    history = lines((0.5, 0.9), (0.7, 0.8), (0.7, 0.6), (0.7, 0.6), (0.6, 0.1), (float("nan"), 0.0))
    assert best_line(history, "accuracy") == 2  # among equals the smaller loss, then the first
    assert [out_of_patience([history], "accuracy", n) for n in (3, 4, None)] == [True, False, False]
    assert not out_of_patience([history, history[:4]], "accuracy", 3)  # every run waits
    assert not out_of_patience([[]], "accuracy", 1)
    assert merit(lines((2.0, 3.0), metric="rmse")[0], "rmse") == (2.0, 3.0)
    before, now = {"a": np.zeros((2, 3)), "b": np.zeros(2)}, {"a": np.ones((2, 3)), "b": np.ones(2)}
    np.testing.assert_array_equal(kept(before, now, [False, True])["a"], [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(kept(before, now, [False, True])["b"], [0, 1])


@pytest.fixture(scope="module")
def data():
    return mj.data.synthetic_mixture(clients=6, dimension=4, seed=3)


@pytest.fixture(scope="module")
def algorithm(data):
    return mj.pfedme(mj.models.linear(data), mu=0.1, local=LOCAL)


def test_models_are_those_of_the_best_evaluation(data, algorithm):
    """Each seed keeps its own round; a run that ends there has the same models, and a resumed one the same end."""
    waiting = mj.Evaluation(every=1, patience=3)
    taken = []
    report = lambda records, snapshot: taken.append(snapshot())
    run = mj.simulate(algorithm, data, rounds=30, seeds=2, evaluation=waiting._replace(report=report))
    best = [best_line(history, "accuracy") for history in run.histories]
    assert run.summary()["kept_round"] == [
        history[place]["round"] for history, place in zip(run.histories, best, strict=True)
    ]
    assert run.rounds == max(run.summary()["kept_round"]) + 3 < 30
    assert "3 evaluations without a better one" in run.stopped
    assert "models of round" in str(run.summary())
    for i, place in enumerate(best):
        for part in ("test", "validation"):
            assert run[i].summary()[f"{part}_accuracy"] == run.histories[i][place][f"{part}_accuracy"]
        states = jax.tree.map(lambda a, i=i: a[i], (taken[place].server, taken[place].clients))
        mine = jax.tree.map(lambda a, i=i: a[i], (run.snapshot.server, run.snapshot.clients))
        jax.tree.map(np.testing.assert_array_equal, mine, states)
    half = taken[run.rounds // 2 - 1]
    again = mj.simulate(algorithm, data, rounds=30, seeds=2, evaluation=waiting, resume=half)
    jax.tree.map(np.testing.assert_array_equal, again.snapshot.clients, run.snapshot.clients)
    assert again.summary()["kept_round"] == run.summary()["kept_round"]
    assert again.rounds == run.rounds
    second = run[1].last  # ready to be resumed alone: what all runs hold has their axis
    runs = {len(leaf) for tree in (second.server, second.clients, second.best) for leaf in jax.tree.leaves(tree)}
    assert runs == {len(second.counters["history"])} == {1}
    assert second.counters["history"] == [run.histories[1]]


def test_patience_needs_validation_samples():
    with pytest.raises(ValueError, match="patience chooses by validation samples, and tiny has none"):
        mj.simulate(zoo.algorithm("local"), zoo.problem(), rounds=2, evaluation=mj.Evaluation(patience=1))

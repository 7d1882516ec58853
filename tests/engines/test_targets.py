"""Labels as people know them: predictions and RMSE in original units, and new clients with training's own classes."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import r2_score

import majorant as mj
from majorant.data import FederatedData, encode_table, from_table

MEAN, SCALE = 1e5, 2e4


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    price = MEAN + SCALE * (x @ [1.0, -0.5] + 0.1 * rng.normal(size=120))
    return pa.table({"shop": np.arange(120) % 3, "size": x[:, 0], "age": x[:, 1], "price": price})


@pytest.fixture(scope="module")
def trained(table):
    data, encoding = from_table(table, client_column="shop", label_column="price")
    algorithm = mj.fedavg(mj.models.linear(data), local=mj.local_sgd(0.1, epochs=1, batch_size=None))
    return data, encoding, mj.simulate(algorithm, data, rounds=40, seed=0, evaluation=mj.Evaluation(every=40))


def test_predictions_and_rmse_are_in_original_units(trained):
    data, _, run = trained
    assert abs(data.train.y).max() < 5
    summary = run.summary()
    errors = []
    for client in range(data.clients):
        x, y = data.test.client(client)
        predicted = run.model(client).predict(x)
        assert abs(predicted.mean() / MEAN - 1) < 0.5
        errors.append(predicted - data.label_values(y))
    rmse = np.sqrt(np.mean(np.concatenate(errors) ** 2))
    assert summary["test_rmse"]["mean"] == pytest.approx(rmse, rel=1e-4)
    assert run.history[-1]["test_rmse"]["mean"] == pytest.approx(rmse, rel=1e-4)
    assert 0.05 * SCALE < rmse < 0.3 * SCALE  # the noise, of 0.1 scales, is left
    assert all(0.05 * SCALE < summary[f"{part}_rmse"]["mean"] < 0.3 * SCALE for part in ("train", "validation"))
    x, y = data.test.client(0)
    prices = data.label_values(y)
    assert run.model(0).score(x, prices) == pytest.approx(r2_score(prices, run.model(0).predict(x)), rel=1e-5)


def test_a_new_client_speaks_in_original_units(table, trained):
    data, encoding, run = trained
    x, _ = encode_table(table, encoding)
    price = table["price"].to_numpy()
    model = run.personalize((x, price))
    assert np.sqrt(np.mean((model.predict(x) - price) ** 2)) < 0.3 * SCALE
    plain, _ = from_table(table, client_column="shop", label_column="price", scale_target=False)
    again = run.personalize(plain)[0]  # data whose targets were not scaled, with the same features
    assert np.allclose(again.predict(x), run.personalize(data)[0].predict(x), rtol=1e-5)
    mine, theirs = run.evaluate_new(data), run.evaluate_new(plain)
    assert np.allclose(mine.values["test_score"], theirs.values["test_score"], rtol=1e-3)
    assert mine.values["test_score"].min() > 0.01 * SCALE


def test_the_labels_of_a_new_table_go_straight_to_personalize(table, trained):
    _, encoding, run = trained
    x, y = encode_table(table, encoding)
    assert (y == table["price"].to_numpy()).all()
    assert np.sqrt(np.mean((run.personalize((x, y)).predict(x) - y) ** 2)) < 0.3 * SCALE


def test_a_score_is_r2_of_original_units_or_the_accuracy(table, trained):
    _, encoding, run = trained
    x, price = encode_table(table, encoding)
    model = run.personalize((x, price))
    assert model.score(x, price) == pytest.approx(r2_score(price, model.predict(x)))
    assert model.score(x, price) > 0.9
    assert np.isnan(model.score(x[:1], price[:1]))  # the labels have no variance that a model could explain
    for wrong in (price[:, None], price[:-1], price[:0]):
        with pytest.raises(ValueError, match="a label each"):
            model.score(x, wrong)
    with pytest.raises(ValueError, match="needs labels"):
        model.score(x)
    with pytest.raises(ValueError, match="no class probabilities"):
        model.predict_proba(x)
    data = pets("cat", "dog", "fox")
    classifier = mj.simulate(mj.local(mj.models.linear(data)), data, rounds=1).model(0)
    x, truth = data.train.x[:9], np.array(["cat", "dog", "fox"] * 3)
    assert classifier.score(x, truth) == np.mean(classifier.predict(x) == truth)
    with pytest.raises(ValueError, match="a label each"):
        classifier.score(x, truth[:, None])


@pytest.mark.parametrize("names", [("well", "sick"), (3, 1), (True, False)])
def test_labels_in_labels_out(table, names):
    """A new client's table holds labels of the table's own kind, and the model predicts such."""
    sick = table["price"].to_numpy() < MEAN
    labels = [names[int(value)] for value in sick]
    patients = table.drop_columns("price").append_column("state", pa.array(labels))
    data, encoding = from_table(patients, client_column="shop", label_column="state")
    algorithm = mj.fedem(mj.models.linear(data), components=2, local=mj.local_sgd(0.5, epochs=1, batch_size=None))
    run = mj.simulate(algorithm, data, rounds=20, seed=0, evaluation=mj.Evaluation(every=20))
    x, y = encode_table(patients, encoding)
    assert y.tolist() == labels
    predicted = run.personalize((x, y)).predict(x)
    assert np.mean(predicted == np.array(labels)) > 0.8
    none = run.personalize(encode_table(patients.slice(0, 0), encoding))  # a client that has no samples yet
    assert set(none.predict(x).tolist()) <= set(names)


def pets(*labels):
    rng = np.random.default_rng(1)
    return FederatedData.from_arrays(rng.normal(size=(36, 2)), np.resize(np.array(labels), 36), np.arange(36) // 12)


def test_new_clients_are_scored_by_the_classes_of_training():
    data = pets("cat", "dog")
    algorithm = mj.fedavg(mj.models.linear(data), local=mj.local_sgd(0.1, epochs=1, batch_size=None))
    run = mj.simulate(algorithm, data, rounds=1, seed=0)
    with pytest.raises(ValueError, match=r"have classes \['fox'\], which training did not know"):
        run.evaluate_new(pets("dog", "fox"))  # as many classes as in training
    dogs = pets("dog")
    scores = run.evaluate_new(dogs)
    for client in range(dogs.clients):
        predicted = run.personalize(dogs)[client].predict(dogs.test.client(client)[0])
        assert scores.values["test_score"][client] == pytest.approx(np.mean(predicted == "dog"))

"""Exported models predict the same outside: by hand with NumPy, in ONNX Runtime, and in JAX without this library."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import numpy as np
import onnxruntime
import pytest

import majorant as mj
from compiling import quickly
from made_tables import lines
from majorant.app.export.coefficients import coefficients
from majorant.data import from_table
from majorant.engines.deployment import PersonalModel
from majorant.methods.fedem import Mixture
from majorant.models import inverted_residuals as inverted
from majorant.models import resnet
from majorant.models.base import Spec

HEADER = "shop,size,when,kind,price,outcome"


def sales(path, seed: int):
    """Rows with gaps in numbers and categories, and numbers far from zero."""
    rng = np.random.default_rng(seed)
    rows = [
        f"s{i % 3},{'' if i % 7 == 3 else f'{1e6 + rng.normal():.4f}'},2024-03-{1 + i % 28:02},"
        f"{['a', 'b', ''][i % 3 if i % 5 else 2]},{900 + 50 * rng.normal():.3f},{'xyz'[rng.integers(3)]}"
        for i in range(60)
    ]
    return lines(path, HEADER, rows)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return sales(tmp_path_factory.mktemp("sales") / "sales.csv", 0)


def personal(data, encoding, components: int) -> PersonalModel:
    """A model with random parameters."""
    model = mj.models.linear(data)
    algorithm = mj.fedem(model, components=components) if components else mj.fedavg(model)
    tree = algorithm.server.init(jax.random.key(3)).value
    if components:
        tree = Mixture(tree, np.array([0.2, 0.8], np.float32))
    return PersonalModel(algorithm, tree, data.classes, data.spec.features, data.target_scale, encoding)


def by_hand(content: dict, rows: list[dict[str, str]]) -> np.ndarray:
    """Predictions from the file's content and the table's own cells, with NumPy alone."""
    found = []
    for row in rows:
        features: dict[str, float] = {}
        for column in content["columns"]:
            name, cell = column["name"], row[column["name"]]
            if column["kind"] == "number":
                features[name] = float(cell) if cell else column["value_if_missing"]
                if column["missing"]:
                    features[column["missing"]] = float(not cell)
            elif column["kind"] == "date":
                day = (np.datetime64(cell) - np.datetime64("1970-01-01")).astype(int)
                features[f"{name}.days"] = float(day)
                for part, mean in column["value_if_missing"].items():
                    features.setdefault(f"{name}.{part}", mean)
            elif cell or column["missing"]:
                features[f"{name}={cell}" if cell else column["missing"]] = 1.0
        z = [
            np.atleast_1d(part["intercept"])
            + sum(value * np.atleast_1d(part["coefficients"][name]) for name, value in features.items())
            for part in content["components"]
        ]
        weights = [part["weight"] for part in content["components"]]
        if content["task"] == "regression":
            found.append(z[0][0])
        else:
            each = [np.exp(v - v.max()) / np.exp(v - v.max()).sum() for v in z]
            found.append(np.average(each, axis=0, weights=weights))
    return np.array(found)


@pytest.mark.filterwarnings("ignore::majorant.data.TableNotice")
@pytest.mark.parametrize(("label", "components"), [("outcome", 2), ("price", 0)])
def test_coefficients_and_onnx_predict_as_the_model_does(table, tmp_path, label, components):
    drop = ["when", "outcome" if label == "price" else "price"]
    data, encoding = from_table(table, client_column="shop", label_column=label, drop=drop)
    model = personal(data, encoding, components)
    rows = [dict(zip(HEADER.split(","), line.split(","), strict=True)) for line in table.read_text().split()[1:]]
    expected = model.predict_proba(table) if model.classes else model.predict(table)
    model.export(tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text())
    np.testing.assert_allclose(by_hand(content, rows), expected, rtol=2e-4)

    model.export(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    names = json.loads(session.get_modelmeta().custom_metadata_map["features"])
    assert names == list(encoding.features)
    x = np.zeros((len(rows), len(names)))
    for i, row in enumerate(rows):
        x[i, names.index("size")] = float(row["size"]) if row["size"] else np.nan
        x[i, names.index("size (missing)")] = not row["size"]
        x[i, names.index(f"kind={row['kind'] or '(missing)'}")] = 1
    (found,) = session.run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    with pytest.raises(FileExistsError, match="exports go to new files"):
        model.export(tmp_path / "m.onnx")


@pytest.mark.filterwarnings("ignore::majorant.data.TableNotice")
def test_parts_of_dates_have_coefficients_in_days(table):
    data, encoding = from_table(table, client_column="shop", label_column="price", drop=["outcome", "kind", "size"])
    model = personal(data, encoding, 0)
    slopes = coefficients(model)["components"][0]["coefficients"]
    x = np.zeros((2, len(encoding.features)), np.float32)
    x[1, encoding.features.index("when.days")] = 1 / encoding["when"].scales[0]  # a day later
    later = np.diff(model.predict(x))
    assert slopes["when.days"] == pytest.approx(later[0], rel=1e-3)


def network(kind: str, spec: Spec) -> PersonalModel:
    """A mixture of two networks with random parameters; of the deep ones their first blocks."""
    first = inverted.MOBILENET_V2._replace(stages=inverted.MOBILENET_V2.stages[:2])
    model = {
        "cnn": lambda: mj.models.cnn(spec, channels=(2,), hidden=3),
        "mlp": lambda: mj.models.mlp(spec, hidden=(4,)),
        "lstm": lambda: mj.models.lstm(spec, embedding=2, hidden=3),
        "residual": lambda: resnet.network("residual", (1, 1, 1, 1), spec, "averaged", "unit", "large", 0.125),
        "inverted": lambda: inverted.network(first, spec, "averaged", 0.2, "unit", 0.1, 2),
    }[kind]()
    model = mj.models.packed(model) if kind in ("residual", "inverted") else model
    algorithm = mj.fedem(model, components=2)
    start = quickly(lambda key: algorithm.server.init(key).value)(jax.random.key(0))
    mixture = Mixture(start, np.array([0.4, 0.6], np.float32))
    return PersonalModel(algorithm, mixture, tuple(range(spec.classes)), spec.features)


def whole(model: PersonalModel) -> PersonalModel:
    """The same model, whose predictions are compiled as one program and not operation by operation."""
    deployment = model.algorithm.deployment
    deployment = deployment._replace(predict=quickly(deployment.predict))
    return model._replace(algorithm=model.algorithm._replace(deployment=deployment))


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("mlp", Spec((5,), 2)),
        ("cnn", Spec((5, 4), 3)),
        ("lstm", Spec((4,), 5)),
        ("residual", Spec((32, 32, 3), 3)),
        ("inverted", Spec((16, 16, 3), 3)),
    ],
)
def test_networks_predict_the_same_in_onnx_runtime(tmp_path, kind, spec):
    model = network(kind, spec)
    model.export(tmp_path / "m.onnx")
    model = whole(model)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for count in (1, 6):  # any number of samples
        x = np.random.default_rng(count).normal(size=(count, *spec.features)).astype(np.float32)
        x = np.floor(np.abs(x)) if kind == "lstm" else x
        np.testing.assert_allclose(session.run(None, {"x": x})[0], model.predict_proba(x), atol=1e-6)
    with pytest.raises(ValueError, match="is not linear"):
        model.export(tmp_path / "m.json")
    with pytest.raises(ValueError, match="ends with one of"):
        model.export(tmp_path / "m.pickle")


def test_coefficients_of_a_model_of_pixels_are_those_of_scaled_ones():
    model = network("mlp", Spec((4,), 2))._replace(origin={"in_bytes": True})
    line = mj.models.linear(Spec((4,), 2))
    algorithm = mj.fedavg(line)
    tree = algorithm.server.init(jax.random.key(0)).value
    model = model._replace(algorithm=algorithm, model=tree)
    slopes = coefficients(model)["components"][0]["coefficients"]
    np.testing.assert_allclose(list(slopes.values()), tree[0]["weight"][:, 0], rtol=1e-4)


def test_stablehlo_runs_in_jax_alone(tmp_path):
    model = network("mlp", Spec((5,), 2))
    model.export(tmp_path / "m.stablehlo")
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    program = (
        "import sys, numpy, jax.export, pathlib; folder = pathlib.Path(sys.argv[1]);"
        "program = jax.export.deserialize(bytearray((folder / 'm.stablehlo').read_bytes()));"
        "numpy.save(folder / 'y.npy', program.call(numpy.load(folder / 'x.npy')));"
        "assert 'majorant' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model.predict_proba(x), atol=1e-6)


def predicting(predict) -> PersonalModel:
    """A model of five features that predicts two numbers by a function of samples."""
    model = network("mlp", Spec((5,), 2))
    deployment = model.algorithm.deployment._replace(predict=lambda mixture, x: predict(x))
    return model._replace(algorithm=model.algorithm._replace(deployment=deployment))


@pytest.mark.parametrize(
    "predict",
    [
        lambda x: jax.lax.slice(x, (0, 1), (x.shape[0], 5), (1, 3)),  # columns 1 and 4
        lambda x: x[:, 2:4] ** 3 + x[:, -2:] ** -2,
        lambda x: (3 * x[:, :2]).astype(int).astype(x.dtype) + (x[:, 3:] > 0),
        lambda x: jax.numpy.log1p(x[:, :2] ** 2) * jax.lax.rsqrt(1 + abs(x[:, 1:3])),
        lambda x: jax.numpy.pad(x[:, :1], ((0, 0), (1, 0)), constant_values=7.0),
        lambda x: jax.numpy.concatenate([x[:, :1], x[:, 4:] != 0], axis=1).T.T,
        lambda x: x[:, np.array([3, 0])] - jax.numpy.split(x[:, 1:], 2, axis=1)[1],
        lambda x: jax.lax.scan(lambda c, v: (c * v[:, None] + 1, c), x[:, :2], x[:, 1:4].T)[0],
        lambda x: jax.lax.scan(lambda c, v: (c + v, c * v), x[:, 0], x[:, 1:3].T, reverse=True)[1].T,
    ],
    ids=["steps", "powers", "types", "roots", "padding", "parts", "entries", "loop", "loop backwards"],
)
def test_operations_mean_the_same_outside(predict, tmp_path):
    model = predicting(predict)
    model.export(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for count in (1, 6):
        x = np.random.default_rng(count).normal(size=(count, 5)).astype(np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], predict(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("predict", "words"),
    [
        (lambda x: jax.numpy.sort(x[:, :2], axis=1), "sort"),
        (lambda x: x[:, :2] - x[:, :2].mean(axis=0), "dim_as_value"),
        (lambda x: jax.vmap(lambda row: row[(row[:2] > 0).astype(int)])(x), "gather by computed places"),
        (lambda x: jax.lax.pad(x[:, :1], 0.0, ((0, 0, 0), (0, 0, 1)))[:, :2], "padding between entries"),
        (lambda x: jax.numpy.pad(jax.lax.slice(x, (0, 0), (x.shape[0] - 1, 2)), ((0, 1), (0, 0))), "up to some sample"),
    ],
    ids=["sort", "number of samples", "gather", "padding", "slice"],
)
def test_an_operation_without_counterpart_is_named(predict, words, tmp_path):
    with pytest.raises(ValueError, match=rf"{words} has no counterpart in ONNX files here: export to \.stablehlo"):
        predicting(predict).export(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()

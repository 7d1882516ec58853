"""The built-in models: scikit-learn's predictions from its weights, training that works, and clear refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits
from sklearn.linear_model import LinearRegression, LogisticRegression

from compiling import quickly
from majorant.models import Draw, Spec, check_shapes, cnn, linear, mlp, softmax_regression

key = jax.random.key(0)
MODELS = {"linear": linear, "softmax_regression": softmax_regression, "mlp": mlp, "cnn": cnn}


def digits(classes=10):
    x, y = load_digits(return_X_y=True)
    return (x / 16)[y < classes].astype(np.float32), y[y < classes]


@pytest.mark.parametrize(("build", "classes"), [(linear, 2), (linear, 10), (softmax_regression, 10)])
def test_linear_classifiers_predict_what_scikit_learn_does(build, classes):
    x, y = digits(classes)
    fitted = LogisticRegression(C=0.1, tol=1e-2, max_iter=500).fit(x, y)
    params = [{"weight": jnp.asarray(fitted.coef_.T), "bias": jnp.asarray(fitted.intercept_)}]
    model = build(Spec((64,), classes))
    assert jax.tree.map(jnp.shape, model.init(key)) == jax.tree.map(jnp.shape, params)
    np.testing.assert_allclose(model.predict(params, x), fitted.predict_proba(x), atol=1e-5)


def test_linear_regression_predicts_what_scikit_learn_does():
    x, y = load_diabetes(return_X_y=True)
    fitted = LinearRegression().fit(x, y)
    params = [{"weight": jnp.asarray(fitted.coef_[:, None]), "bias": jnp.asarray([fitted.intercept_])}]
    model = linear(Spec((10,), 0))
    np.testing.assert_allclose(model.predict(params, jnp.asarray(x)), fitted.predict(x), rtol=1e-4)
    gradient = jax.grad(lambda p: model.losses(p, jnp.asarray(x), jnp.asarray(y)).mean())(params)
    assert max(abs(leaf).max() for leaf in jax.tree.leaves(gradient)) < 1e-2  # y is of the order of 100


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("features", [(8, 8), (12, 9, 3)])
def test_every_model_takes_images_and_bytes(name, features):
    model = MODELS[name](Spec(features, 4))
    check_shapes(model)
    assert model.name == name
    pixels = np.random.default_rng(0).integers(0, 256, (5, *features)).astype(np.uint8)

    @quickly
    def outputs(pixels):
        params = model.init(key)
        return params, model.apply(params, pixels), model.apply(params, pixels.astype(jnp.float32) / 255)

    params, *both = outputs(pixels)
    np.testing.assert_array_equal(*both)
    assert jax.eval_shape(model.predict, params, pixels).shape == (5, 4)
    assert jax.eval_shape(model.losses, params, pixels, np.zeros(5, int)).shape == (5,)


@pytest.mark.parametrize(("classes", "width"), [(0, 1), (2, 1), (3, 3)])
@pytest.mark.parametrize("build", [linear, mlp, cnn])
def test_the_output_width_follows_the_problem(build, classes, width):
    model = build(Spec((8, 8), classes))
    assert jax.eval_shape(lambda: model.apply(model.init(key), jnp.zeros((2, 8, 8)))).shape == (2, width)


def test_softmax_regression_has_two_outputs_for_two_classes():
    model = softmax_regression(Spec((5,), 2))
    assert model.apply(model.init(key), jnp.zeros((3, 5))).shape == (3, 2)


@pytest.mark.parametrize("build", [linear, mlp, cnn])
def test_training_learns_the_digits(build):
    x, y = digits()
    x = x.reshape(-1, 8, 8)
    model = build(Spec((8, 8), 10))
    loss = lambda p, rows: model.losses(p, jnp.asarray(x)[rows], jnp.asarray(y)[rows]).mean()
    step = lambda p, rows: (jax.tree.map(lambda a, g: a - 0.2 * g, p, jax.grad(loss)(p, rows)), None)
    batches = jnp.tile(jnp.arange(1000).reshape(-1, 50), (12, 1))
    learn = quickly(lambda: model.predict(jax.lax.scan(step, model.init(key), batches)[0], x[1000:]).argmax(1))
    assert (learn() == y[1000:]).mean() > 0.8


def test_the_cnn_is_the_papers():
    shapes = jax.tree.map(jnp.shape, cnn(Spec((28, 28), 10)).init(key), is_leaf=lambda leaf: hasattr(leaf, "shape"))
    assert [layer["weight"] for layer in shapes["convolutions"]] == [(3, 3, 1, 32), (3, 3, 32, 64)]
    assert [layer["weight"] for layer in shapes["dense"]] == [(7 * 7 * 64, 128), (128, 10)]


def test_the_cnn_with_valid_padding():
    model = cnn(Spec((28, 28), 10), padding="valid", channels=(4, 6), hidden=16)
    assert model.init(key)["dense"][0]["weight"].shape == (5 * 5 * 6, 16)
    check_shapes(model)


def test_keys_matter_and_layers_differ():
    model = mlp(Spec((6,), 6), hidden=(6,))
    first, other = model.init(key), model.init(jax.random.key(1))
    assert not jnp.allclose(first[0]["weight"], first[1]["weight"])
    assert not jnp.allclose(first[0]["weight"], other[0]["weight"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cnn(Spec((64,), 10)), r"cnn needs images.*\(64,\).*use mlp or linear"),
        (lambda: cnn(Spec((2, 3, 4, 5), 10)), "cnn needs images"),
        (lambda: cnn(Spec((3, 28), 10)), "images of 3×28 are too small for 2 3×3 convolutions.*fewer channels$"),
        (lambda: cnn(Spec((8, 8), 10), padding="valid"), 'too small.*or padding="same"'),
        (lambda: cnn(Spec((8, 8), 10), padding="full"), 'padding is "valid" or "same"'),
        (lambda: cnn(Spec((8, 8), 10), channels=(0,)), "channels must be a positive whole number, got 0"),
        (lambda: cnn(Spec((8, 8), 10), hidden=0), "hidden must be a positive whole number, got 0"),
        (lambda: mlp(Spec((8,), 10), hidden=(16, 2.5)), "hidden must be a positive whole number, got 2.5"),
        (lambda: softmax_regression(Spec((8,), 0)), "does not fit a regression problem"),
        (lambda: linear(Spec((8,), 1)), "at least 2, not 1"),
        (lambda: linear(Spec((8,), 2), start="ones"), 'start must be "random" or "zeros"'),
    ],
)
def test_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_cnn_with_another_kernel():
    count = lambda model: sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.init, key)))
    small = cnn(Spec((28, 28), 10), channels=(8, 16), hidden=64, kernel=5)
    assert count(small) == (25 * 8 + 8) + (25 * 8 * 16 + 16) + (49 * 16 * 64 + 64) + (64 * 10 + 10)
    with pytest.raises(ValueError, match="5×5 convolutions"):
        cnn(Spec((9, 9), 10), kernel=5, padding="valid")


def test_a_cnn_drops_hidden_units_and_half_as_many_pooled_features(monkeypatch):
    """0.5 is the FedEM paper's network: 0.25 of what is pooled, and 0.5 of the hidden units."""
    shares = []
    monkeypatch.setattr("majorant.models.builtin.drop", lambda x, share, *draw, **which: shares.append(share) or x)
    model = cnn(Spec((8, 8), classes=3), channels=(2,), hidden=4, dropout=0.5)
    params, draw = jax.eval_shape(model.init, jax.random.key(0)), Draw(jax.random.key(1), jnp.ones(2))
    jax.eval_shape(lambda params: model.train_apply(params, jnp.zeros((2, 8, 8)), draw), params)
    assert shares == [0.25, 0.5]

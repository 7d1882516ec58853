"""conv2d agrees with XLA's convolution: values, both gradients, in loops and under vmap."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from majorant.models import conv2d

SHAPES = [((8, 9, 2), (3, 3)), ((8, 9, 2), (2, 5)), ((7, 6, 1), (3, 3)), ((7, 6, 3), (1, 1))]


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def reference(x, kernel, padding, stride):
    dimensions = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (stride, stride), padding.upper(), dimension_numbers=dimensions)


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def assert_equal(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype == jnp.float64
        assert a.shape == b.shape
        assert jnp.allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("shape", "size"), SHAPES)
def test_values_and_gradients(padding, stride, shape, size):
    x, kernel = normal(0, 3, *shape), normal(1, *size, shape[-1], 4)

    @functools.partial(jax.jit, static_argnums=0)
    def evaluated(convolution, x, kernel):
        value, pull = jax.vjp(convolution, x, kernel)
        return value, pull(jnp.sin(jnp.arange(value.size)).reshape(value.shape))

    expected = evaluated(lambda x, k: reference(x, k, padding, stride), x, kernel)
    for method in ("patches", "xla", None):
        ours = functools.partial(conv2d, padding=padding, stride=stride, method=method)
        assert_equal(evaluated(ours, x, kernel), expected)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("stride", [1, 2])
def test_vmap_over_kernels_and_images(padding, stride):
    kernels, images = normal(0, 5, 3, 3, 2, 4), normal(1, 5, 3, 8, 7, 2)
    loss = lambda conv: lambda x, k: jnp.square(conv(x, k)).sum()
    ours = loss(lambda x, k: conv2d(x, k, padding=padding, stride=stride))
    theirs = loss(lambda x, k: reference(x, k, padding, stride))
    for axes in ((0, 0), (None, 0), (0, None)):
        args = [a if axis == 0 else a[0] for a, axis in zip((images, kernels), axes, strict=True)]
        gradients = [jax.jit(jax.vmap(jax.grad(f, argnums=(0, 1)), in_axes=axes))(*args) for f in (ours, theirs)]
        assert_equal(*gradients)


def test_descent_inside_scan_and_while_loop():
    xs, kernel = normal(0, 4, 3, 6, 6, 1), normal(1, 3, 3, 1, 2)

    def descend(conv, k, x):
        return k - 0.01 * jax.grad(lambda k: jnp.square(conv(x, k)).sum())(k)

    expected = kernel
    for x in xs:
        expected = descend(lambda x, k: reference(x, k, "same", 1), expected, x)
    ours = lambda x, k: conv2d(x, k, padding="same")
    scanned = jax.jit(lambda k: lax.scan(lambda k, x: (descend(ours, k, x), None), k, xs)[0])(kernel)
    assert_equal(scanned, expected)
    step = lambda state: (state[0] + 1, descend(ours, state[1], xs[state[0]]))
    looped = jax.jit(lambda k: lax.while_loop(lambda state: state[0] < 4, step, (0, k))[1])(kernel)
    assert_equal(looped, expected)


def test_second_derivatives_and_forward_mode():
    x, kernel, direction = normal(0, 2, 5, 5, 1), normal(1, 3, 3, 1, 2), normal(2, 3, 3, 1, 2)
    loss = lambda conv: lambda k: jnp.tanh(conv(x, k)).sum()
    ours, theirs = loss(conv2d), loss(lambda x, k: reference(x, k, "valid", 1))
    product = lambda f: jax.jit(lambda k: jax.jvp(jax.grad(f), (k,), (direction,)))(kernel)
    assert_equal(product(ours), product(theirs))
    assert_equal(jax.jit(jax.hessian(ours))(kernel), jax.jit(jax.hessian(theirs))(kernel))


def test_mixed_types_are_promoted_by_every_method():
    x, kernel = normal(0, 1, 4, 4, 1).astype(jnp.float32), normal(1, 3, 3, 1, 1)
    assert_equal(conv2d(x, kernel, method="patches"), conv2d(x, kernel, method="xla"))


def test_one_by_one_is_a_matrix_product():
    program = jax.make_jaxpr(conv2d)(normal(0, 2, 4, 4, 3), normal(1, 1, 1, 3, 5))
    assert "dot_general" in str(program)
    assert "conv_general_dilated" not in str(program)


@pytest.mark.parametrize(
    ("x", "kernel", "options", "message"),
    [
        ((8, 8, 1), (3, 3, 1, 2), {}, r"takes x \(n, h, w, c\)"),
        ((1, 8, 8, 1), (3, 3, 2), {}, r"kernel \(kh, kw, c, k\)"),
        ((1, 8, 8, 3), (3, 3, 1, 2), {}, "3 channels but the kernel expects 1"),
        ((1, 8, 8, 1), (3, 3, 1, 2), {"padding": "full"}, "padding is"),
        ((1, 8, 8, 1), (3, 3, 1, 2), {"stride": 0}, "stride must be a positive whole number"),
        ((1, 2, 8, 1), (3, 3, 1, 2), {}, "smaller than the kernel"),
        ((1, 8, 8, 1), (3, 3, 1, 2), {"method": "fft"}, "method is"),
    ],
)
def test_errors(x, kernel, options, message):
    with pytest.raises(ValueError, match=message):
        conv2d(jnp.zeros(x), jnp.zeros(kernel), **options)

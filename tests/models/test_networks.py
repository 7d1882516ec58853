"""Deep networks against references written in NumPy, and what their policies promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

import majorant as mj
from compiling import quickly
from made_weights import made_file
from majorant.models import (
    Draw,
    Spec,
    cnn,
    depthwise_conv2d,
    dropout,
    frozen_backbone,
    lstm,
    mixed_precision,
    packed,
)
from majorant.models import inverted_residuals as inverted
from majorant.models.cost import forward_flops
from majorant.models.normalisation import KEPT, Norms, by_group, over_batch
from majorant.models.pixels import enlarged
from majorant.models.pretrained import fitted, pretrained
from majorant.models.resnet import block_init, max_pool_3x3, resnet18
from majorant.models.resnet import network as residual_network

rng = np.random.default_rng(0)
LITE = inverted.EFFICIENTNET_LITE0._replace(stages=inverted.EFFICIENTNET_LITE0.stages[:3], last=16)


def small(normalisation="averaged", share=0.0, classes=3):
    """EfficientNet-Lite0's first blocks, narrow, on 16×16 images."""
    return inverted.network(LITE, Spec((16, 16, 3), classes), normalisation, share, "imagenet", 0.25, 2)


def windows(x, size, stride, edges):
    """Windows (n, h', w', c, k, k) of images (n, h, w, c) with zeros around them."""
    x = np.pad(x, ((0, 0), *edges, (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))[:, ::stride, ::stride]


@pytest.mark.parametrize(("size", "length", "stride", "padding"), [(3, 5, 1, 1), (3, 6, 2, 1), (5, 4, 2, "same")])
def test_depthwise_is_xlas_grouped_convolution(size, length, stride, padding):
    x = rng.normal(size=(2, length, length, 4)).astype(np.float32)
    kernel = rng.normal(size=(size, size, 4)).astype(np.float32)
    edges = "SAME" if padding == "same" else [(padding, padding)] * 2

    def reference(x, kernel):
        return jax.lax.conv_general_dilated(
            x, kernel[:, :, None], (stride, stride), edges, dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=4,
        )  # fmt: skip

    ours = lambda x, kernel: depthwise_conv2d(x, kernel, stride=stride, padding=padding)
    assert jax.eval_shape(ours, x, kernel).shape == jax.eval_shape(reference, x, kernel).shape

    @quickly
    def both(*given):
        of = lambda f: jax.value_and_grad(lambda *a: jnp.sin(f(*a)).sum(), argnums=(0, 1))(*given)
        return of(ours), of(reference)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), *both(x, kernel))


def test_taps_that_meet_only_zeros_are_left_out():
    one_pixel = lambda x, k: depthwise_conv2d(x, k, padding=1)
    jaxpr = jax.make_jaxpr(one_pixel)(jnp.ones((2, 1, 1, 4)), jnp.ones((3, 3, 4)))
    assert str(jaxpr).count(" mul ") == 1


def test_no_grouped_convolution_under_vmap():
    model = small()
    params = jax.eval_shape(jax.vmap(model.init), jax.ShapeDtypeStruct((2,), jax.random.key(0).dtype))
    x = jax.ShapeDtypeStruct((2, 4, 16, 16, 3), jnp.uint8)
    assert "conv_general_dilated" not in str(jax.make_jaxpr(jax.vmap(model.apply))(params, x))


def test_batch_statistics_ignore_rows_that_fill_the_batch():
    x = rng.normal(3.0, 2.0, size=(5, 2, 2, 3)).astype(np.float32)
    mean, variance = over_batch(jnp.asarray(x), jnp.asarray([1.0, 1, 1, 0, 0]))
    np.testing.assert_allclose(mean, x[:3].mean((0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(variance, x[:3].var((0, 1, 2)), rtol=1e-4)


def test_groups_are_normalised_by_sample():
    x = rng.normal(size=(3, 2, 2, 16)).astype(np.float32)
    mean, variance = by_group(jnp.asarray(x))  # two groups of eight channels
    of = lambda f: np.repeat(f(x.reshape(3, 4, 2, 8), (1, 3)), 8, axis=1)[:, None, None]
    np.testing.assert_allclose(mean, of(np.mean), atol=1e-6)
    np.testing.assert_allclose(variance, of(np.var), rtol=1e-4)


def test_each_policy_keeps_what_it_says():
    layer = {"scale": jnp.ones(2), "shift": jnp.zeros(2)}
    given = [{"mean": jnp.array([1.0, 2.0]), "variance": jnp.array([4.0, 9.0])}]
    x, real = jnp.asarray(rng.normal(size=(4, 1, 1, 2)), jnp.float32), jnp.ones(4)
    by_given = (x - given[0]["mean"]) / jnp.sqrt(given[0]["variance"])
    for policy, mode, result in [("frozen", real, by_given), ("frozen", None, by_given), ("averaged", None, by_given)]:
        norms = Norms(policy, given, mode, 0.0)
        np.testing.assert_allclose(norms(layer, x), result, rtol=1e-5)
        assert norms.refreshed == given
    training = Norms("averaged", given, real, 0.0)
    normalised = training(layer, x)
    np.testing.assert_allclose(normalised.mean((0, 1, 2)), 0, atol=1e-5)
    moved = KEPT * given[0]["mean"] + (1 - KEPT) * x.mean((0, 1, 2))
    np.testing.assert_allclose(training.refreshed[0]["mean"], moved, rtol=1e-5)


def test_half_precision_loses_nothing_where_the_gradient_of_a_small_batch_cancels():
    """Two samples are normalised to −1 and 1, whatever they are: the parts of the gradient are large and cancel."""
    layer = {"scale": jnp.ones(64), "shift": jnp.zeros(64)}
    x = jnp.array([1.0, 1.0625]).reshape(2, 1, 1, 1) * jnp.ones((2, 1, 1, 64))  # which bfloat16 has exactly
    towards = jnp.asarray(rng.normal(size=x.shape), jnp.bfloat16).astype(jnp.float32)

    def along(x):
        normalised = Norms("batch", None, jnp.ones(2), 1e-5)(layer, x)
        return (normalised.astype(jnp.float32) * towards).sum()

    exact, half = jax.grad(along)(x), jax.grad(along)(x.astype(jnp.bfloat16))
    np.testing.assert_allclose(np.asarray(half, np.float32), exact, atol=0.01)  # each part is about 32


def test_dropout_of_a_row_does_not_depend_on_the_rows_after_it():
    draw = Draw(jax.random.key(3), jnp.ones(8))
    long, short = (dropout(jnp.ones((n, 40)), 0.25, draw, layer=1) for n in (8, 5))
    np.testing.assert_array_equal(long[:5], short)
    assert abs(float((long == 0).mean()) - 0.25) < 0.08
    assert dropout(long, 0.25, None) is long
    assert not np.array_equal(short, dropout(jnp.ones((5, 40)), 0.25, draw, layer=0))


def same_edges(n, k, s):
    """Zeros before and after, as TensorFlow pads."""
    total = max((-(-n // s) - 1) * s + k - n, 0)
    return total // 2, total - total // 2


def reference(w, x, strides=(1, 2, 1, 2, 1), edges=same_edges, epsilon=1e-3):
    """Networks of inverted residuals in NumPy, by default EfficientNet-Lite0's first stages; PyTorch's layout."""

    def conv(a, kernel, stride=1):
        k = kernel.shape[-1]
        cut = windows(a, k, stride, [edges(n, k, stride) for n in a.shape[1:3]])
        return np.einsum("nhwcij,ocij->nhwo", cut, kernel) if kernel.shape[1] > 1 else np.einsum(
            "nhwcij,cij->nhwc", cut, kernel[:, 0]
        )  # fmt: skip

    def norm(a, name):
        scale = w[name + "weight"] / np.sqrt(w[name + "running_var"] + epsilon)
        return (a - w[name + "running_mean"]) * scale + w[name + "bias"]

    act = lambda a: np.clip(a, 0, 6)
    a = (x / 255 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    a = act(norm(conv(a, w["_conv_stem.weight"], 2), "_bn0."))
    for i, stride in enumerate(strides):
        name, given = f"_blocks.{i}.", a
        if i:
            a = act(norm(conv(a, w[name + "_expand_conv.weight"]), name + "_bn0."))
        a = act(norm(conv(a, w[name + "_depthwise_conv.weight"], stride), name + "_bn1."))
        a = norm(conv(a, w[name + "_project_conv.weight"]), name + "_bn2.")
        a = a + given if a.shape == given.shape else a
    a = act(norm(conv(a, w["_conv_head.weight"]), "_bn1.")).mean((1, 2))
    return a @ w["_fc.weight"].T + w["_fc.bias"]


@pytest.fixture(scope="module")
def published():
    """A narrow network with weights from a made file: parameters, images, the reference's outputs, the file."""
    model = small("frozen")
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    arrays = made_file(shapes["weights"], 3, rng)
    weights, statistics = fitted(arrays, shapes["weights"], "made")
    x = rng.integers(0, 256, (4, 16, 16, 3)).astype(np.uint8)
    return model, {"weights": weights, "statistics": statistics}, x, arrays


def test_network_from_a_file_is_the_reference(published):
    model, params, x, arrays = published
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), reference(arrays, x), atol=2e-4)


def test_mobilenet_pads_as_pytorchs_networks_do():
    plan = inverted.MOBILENET_V2._replace(stages=inverted.MOBILENET_V2.stages[:2], last=16)
    model = inverted.network(plan, Spec((16, 16, 3), 3), "frozen", 0.0, "imagenet", 0.25, 2)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    arrays = made_file(shapes["weights"], 3, rng)
    weights, statistics = fitted(arrays, shapes["weights"], "made")
    x = rng.integers(0, 256, (4, 16, 16, 3)).astype(np.uint8)
    around = lambda n, k, s: ((k - 1) // 2, (k - 1) // 2)
    expected = reference(arrays, x, strides=(1, 2, 1), edges=around, epsilon=1e-5)
    found = jax.jit(model.apply)({"weights": weights, "statistics": statistics}, x)
    np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("stem", ["large", "small"])
def test_residual_network_is_the_reference(stem):
    """ResNet's blocks in NumPy: two 3×3 convolutions beside a shortcut, 1×1 where the shape changes."""
    model = residual_network("small", (2, 1, 1, 1), Spec((32, 32, 3), 3), "frozen", "unit", stem, 0.125)
    params = jax.tree.map(np.asarray, quickly(model.init)(jax.random.key(0)))
    params = jax.tree.map(lambda leaf: leaf + rng.uniform(0.0, 0.1, leaf.shape).astype(np.float32), params)
    x = rng.integers(0, 256, (2, 32, 32, 3)).astype(np.uint8)
    rest = iter(params["statistics"])

    def conv_norm(a, layer, stride=1):
        kernel, own = layer["kernel"], next(rest)
        k = kernel.shape[0]
        cut = windows(a, k, stride, [((k - 1) // 2, (k - 1) // 2)] * 2)
        a = np.einsum("nhwcij,ijco->nhwo", cut, kernel)
        return (a - own["mean"]) / np.sqrt(own["variance"] + 1e-5) * layer["scale"] + layer["shift"]

    relu = lambda a: np.maximum(a, 0)
    a = relu(conv_norm(x / 255, params["weights"]["stem"], 2 if stem == "large" else 1))
    if stem == "large":
        a = windows(a, 3, 2, [(1, 1), (1, 1)]).max((4, 5))  # what is above 0 wins over zeros around
    for layer, stride in zip(params["weights"]["blocks"], (1, 1, 2, 2, 2), strict=True):
        b = conv_norm(relu(conv_norm(a, layer["first"], stride)), layer["second"])
        a = relu((conv_norm(a, layer["shortcut"], stride) if "shortcut" in layer else a) + b)
    dense = params["weights"]["dense"]
    expected = a.mean((1, 2)) @ dense["weight"] + dense["bias"]
    np.testing.assert_allclose(quickly(model.apply)(params, x), expected, rtol=1e-4, atol=1e-4)


def test_mixed_precision_rounds_the_arithmetic_and_nothing_that_is_kept(published):
    model, params, x, arrays = published
    mixed, draw, y = mixed_precision(model), Draw(jax.random.key(0), jnp.ones(4)), jnp.array([0, 1, 2, 0])

    def loss(params):
        outputs, refreshed = mixed.train_apply(params, x, draw)
        return mixed.loss.per_sample(outputs, y).mean(), (outputs, refreshed)

    gradients, (outputs, refreshed) = jax.jit(jax.grad(loss, has_aux=True))(params)
    exact = reference(arrays, x)
    assert 1e-4 < np.abs(outputs - exact).max() < 0.2 * np.abs(exact).max()
    assert {leaf.dtype.name for leaf in jax.tree.leaves((gradients, refreshed, outputs))} == {"float32"}
    assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(gradients["statistics"]))
    assert any(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(gradients["weights"]))


def test_pixels_are_halved_in_mixed_precision_and_statistics_are_refreshed():
    seen = []
    model = cnn(Spec((8, 8, 1), 3), channels=(2,), hidden=4)
    spy = lambda params, x, draw: (seen.append(x) or x[:, 0, 0], {"seen": params["seen"] + 1, "own": params["own"]})
    both = mixed_precision(model._replace(train_apply=spy, statistics="seen"))
    params, x = {"seen": jnp.zeros(2), "own": jnp.ones(2)}, jnp.full((2, 8, 8, 1), 255, jnp.uint8)
    outputs, refreshed = both.train_apply(params, x, None)
    assert (seen[0].dtype, seen[0].max(), outputs.dtype) == (jnp.bfloat16, 1, jnp.float32)
    assert refreshed["own"] is params["own"]
    assert refreshed["seen"].tolist() == [1, 1]
    with jax.enable_x64(True), pytest.raises(ValueError, match="double precision, which mixed precision would lose"):
        mixed_precision(model)


def test_head_alone_is_trained(published):
    model, params, x, _ = published
    head = frozen_backbone(model._replace(normalises_by_batch=True), params)
    assert head.convex
    assert not head.normalises_by_batch  # nothing spoils a small batch
    outputs = jax.jit(head.apply)(params["weights"]["dense"], x)
    np.testing.assert_allclose(outputs, jax.jit(model.apply)(params, x), atol=1e-5)
    shapes = jax.eval_shape(head.init, jax.random.key(0))
    assert jax.tree.map(jnp.shape, shapes) == {"weight": (16, 3), "bias": (3,)}
    assert head.train_apply is None
    with pytest.raises(ValueError, match="normalises by the batch that it is given, so that its layers"):
        frozen_backbone(small("batch"), params)


def test_networks_start_from_a_file_layer_by_layer_and_packed(published, tmp_path):
    model, _, x, arrays = published
    counters = {"_bn0.num_batches_tracked": np.array(7)}  # which PyTorch keeps beside statistics
    save_file(arrays | counters, tmp_path / "weights.safetensors")
    for whole in (model, packed(model)):
        started = pretrained(whole, tmp_path / "weights.safetensors")
        params = quickly(started.init)(jax.random.key(1))
        shapes = jax.eval_shape(whole.init, jax.random.key(0))
        assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, shapes)
        np.testing.assert_allclose(jax.jit(started.apply)(params, x), reference(arrays, x), atol=2e-4)


def test_files_that_do_not_fit_are_refused_by_name(published):
    model, _, _, arrays = published
    shapes = jax.eval_shape(model.init, jax.random.key(0))["weights"]
    missing = {k: v for k, v in arrays.items() if k != "_blocks.1._bn0.bias"}
    with pytest.raises(ValueError, match=r"_blocks.1._bn0.bias is missing \(1 in all\)"):
        fitted(missing, shapes, "made")
    with pytest.raises(ValueError, match=r"_extra.weight belongs to no layer"):
        fitted(arrays | {"_extra.weight": np.zeros(3)}, shapes, "made")
    with pytest.raises(ValueError, match=r"_conv_stem.weight has shape"):
        fitted(arrays | {"_conv_stem.weight": np.zeros((8, 3, 5, 5))}, shapes, "made")
    with pytest.raises(ValueError, match=r"_bn0.weight has numbers that are NaN or infinite"):
        fitted(arrays | {"_bn0.weight": np.full_like(arrays["_bn0.weight"], np.nan)}, shapes, "made")
    with pytest.raises(ValueError, match=r"_bn0.running_var has negative variances"):
        fitted(arrays | {"_bn0.running_var": -arrays["_bn0.running_var"]}, shapes, "made")
    with pytest.raises(ValueError, match=r"_bn0.weight has numbers of type int32"):
        fitted(arrays | {"_bn0.weight": arrays["_bn0.weight"].astype(np.int32)}, shapes, "made")


def test_of_a_file_with_other_classes_all_but_the_last_layer_is_taken(published, tmp_path):
    model, params, _, arrays = published
    save_file({k: v[:2] if k.startswith("_fc") else v for k, v in arrays.items()}, tmp_path / "w.safetensors")
    start = pretrained(model, tmp_path / "w.safetensors").init
    started, fresh = quickly(lambda key: (start(key), model.init(key)["weights"]["dense"]))(jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, started["weights"], params["weights"] | {"dense": fresh})


def test_a_file_that_is_cut_off_or_something_else_is_refused_by_name(published, tmp_path):
    model, _, _, arrays = published
    whole = tmp_path / "whole.safetensors"
    save_file(arrays, whole)
    for name, content in {"cut": whole.read_bytes()[:-9], "text": b"no such file", "empty": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} is damaged, or no safetensors file"):
            pretrained(model, tmp_path / name)


def test_max_pooling_with_a_border():
    x = rng.normal(size=(2, 6, 6, 3)).astype(np.float32)
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    cut = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(1, 2))[:, ::2, ::2]
    np.testing.assert_array_equal(max_pool_3x3(jnp.asarray(x)), cut.max((4, 5)))


@pytest.mark.parametrize("normalisation", ["batch", "frozen", "averaged", "group"])
def test_residual_networks_have_the_shapes_they_say(normalisation):
    model = resnet18(Spec((32, 32, 3), 10), normalisation=normalisation, width=0.2)
    params = jax.eval_shape(model.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((3, 32, 32, 3), jnp.uint8)
    assert jax.eval_shape(model.apply, params, x).shape == (3, 10)
    if model.train_apply is not None:
        draw = jax.eval_shape(lambda: Draw(jax.random.key(0), jnp.ones(3)))
        outputs, refreshed = jax.eval_shape(model.train_apply, params, x, draw)
        assert outputs.shape == (3, 10)
        assert jax.tree.structure(refreshed) == jax.tree.structure(params)
    assert ("statistics" in params) == (normalisation in ("frozen", "averaged"))


def test_arithmetic_is_what_the_papers_say():
    """Sandler et al., Table 4: 300 M multiply-adds; He et al., Table 1: 1.8 G. Ours also counts what is no product."""
    mobile, residual = (f(Spec((224, 224, 3), 1000)) for f in (inverted.mobilenet_v2, resnet18))
    assert 600e6 < forward_flops(mobile) < 650e6
    assert 3.6e9 < forward_flops(residual) < 3.7e9


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"16×16 are too small for mobilenet_v2.*at least 32×32"):
        inverted.mobilenet_v2(Spec((16, 16, 3), 10))
    with pytest.raises(ValueError, match=r'too small for resnet18.*stem="small"'):
        resnet18(Spec((16, 16, 3), 10))
    for make in (inverted.mobilenet_v2, resnet18):
        with pytest.raises(ValueError, match="width must be a finite number greater than 0, got -1"):
            make(Spec((32, 32, 3), 10), width=-1)
    with pytest.raises(ValueError, match="stem_stride must be a positive whole number, got 0"):
        inverted.mobilenet_v2(Spec((32, 32, 3), 10), stem_stride=0)
    with pytest.raises(ValueError, match="enlarge must be a positive whole number, got 0"):
        inverted.mobilenet_v2(Spec((32, 32, 3), 10), enlarge=0)
    with pytest.raises(ValueError, match="give enlarge=3"):
        inverted.mobilenet_v2(Spec((12, 14, 3), 10))
    with pytest.raises(ValueError, match=r"normalisation is one of batch, frozen, averaged, group, not 'layer'"):
        small("layer")
    with pytest.raises(ValueError, match=r"pixels='cifar10' is for 3 channels, and these images have 1"):
        inverted.mobilenet_v2(Spec((32, 32), 10), pixels="cifar10")
    with pytest.raises(ValueError, match=r"sequences of one length, samples of shape \(length,\), not \(4, 2\)"):
        lstm(Spec((4, 2), classes=5))


def test_networks_say_what_training_does_to_them():
    for policy, by_batch in (("averaged", True), ("batch", True), ("frozen", False), ("group", False)):
        assert small(policy).normalises_by_batch is by_batch
    assert small("group").train_apply is None
    assert small("group", share=0.2).train_apply is not None


def test_options_of_networks_are_used(monkeypatch):
    asked, model = [], small()
    monkeypatch.setattr(inverted, "network", lambda *given: asked.append(given[2:]) or model)
    options = {"normalisation": "group", "dropout": 0.3, "pixels": "cifar10", "width": 0.5, "stem_stride": 1}
    options["enlarge"] = 2
    for network in (inverted.mobilenet_v2, inverted.efficientnet_lite0):
        network(Spec((32, 32, 3), 3), by_layers=True, **options)
    assert asked == [tuple(options.values())] * 2


def test_a_network_enlarges_images_before_it_reads_them():
    plan = inverted.MOBILENET_V2._replace(stages=inverted.MOBILENET_V2.stages[:2])
    make = lambda side, factor: inverted.network(plan, Spec((side, side, 3), 3), "frozen", 0.0, "unit", 0.1, 2, factor)
    x = jnp.asarray(rng.uniform(size=(2, 8, 8, 3)), jnp.float32)
    params = make(8, 2).init(jax.random.key(0))
    found = quickly(make(8, 2).apply)(params, x)
    np.testing.assert_allclose(found, quickly(make(16, 1).apply)(params, enlarged(x, 2)), rtol=1e-5)
    assert make(8, 2).spec.features == (8, 8, 3)


def test_convolutions_start_with_the_variance_of_their_fan_out():
    """2 / fan-out: 3·3·64 outputs that an input reaches, and 3·3 where each channel is by itself."""
    for shape, fan_out in (((3, 3, 16, 64), 576), ((3, 3, 400), 9)):
        kernel = inverted.conv_norm_init(jax.random.key(0), shape)["kernel"]
        assert float(kernel.var()) == pytest.approx(2 / fan_out, rel=0.1)


@pytest.mark.parametrize("method", [mj.methods.fedmgda_plus, mj.methods.q_ffl])
def test_methods_that_do_not_average_refuse_running_statistics(method):
    with pytest.raises(
        ValueError, match=r"running statistics of efficientnet_lite0 must be averaged: use normalisation="
    ):
        method(small("averaged"))
    for policy in ("group", "batch", "frozen"):
        method(small(policy))


def test_pretrained_weights_are_asked_for_where_only_the_head_is_trained():
    with pytest.raises(ValueError, match="give weights="):
        inverted.efficientnet_lite0(Spec((32, 32, 3), 10), trained="head")
    whatever = {"weights": "nowhere.safetensors", "trained": "head"}
    with pytest.raises(ValueError, match="leave dropout out"):
        inverted.efficientnet_lite0(Spec((32, 32, 3), 10), dropout=0.1, **whatever)
    for policy in ("batch", "group"):
        with pytest.raises(ValueError, match=f"which normalisation='{policy}' has no use for"):
            inverted.efficientnet_lite0(Spec((32, 32, 3), 10), normalisation=policy, **whatever)
    with pytest.raises(FileNotFoundError, match="there is no file nowhere"):
        inverted.efficientnet_lite0(Spec((32, 32, 3), 10), weights="nowhere.safetensors")


def test_a_variance_moved_below_zero_is_none():
    layer = {"scale": jnp.ones(1), "shift": jnp.zeros(1)}
    moved = [{"mean": jnp.zeros(1), "variance": jnp.array([-1.0])}]
    assert np.isfinite(Norms("averaged", moved, None, 1e-5)(layer, jnp.ones((1, 1, 1, 1)))).all()


def test_the_convolutions_of_a_block_start_apart():
    params = block_init(jax.random.key(0), 2, 2, 1)
    assert not np.allclose(params["first"]["kernel"], params["second"]["kernel"])

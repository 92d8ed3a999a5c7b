"""Tests the operations with NumPy arrays, on the emulated device."""

import threading

import sys

import numpy as np
import pytest

from warpsmith import ops

RANDOM = np.random.default_rng(5)
FLOATS = [np.float32, np.float64, np.float16]


def normal(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def close(found, expected, dtype=np.float32):
    assert isinstance(found, np.ndarray) and found.dtype == dtype
    tolerance = {np.float16: 4e-3, np.float32: 2e-5, np.float64: 1e-12}.get(dtype, 0)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (0,), (33,), (5, 64)])
def test_elementwise(dtype, shape):
    x = normal(*shape, dtype=dtype)
    y = np.asarray(np.abs(normal(*shape, dtype=dtype)) + dtype(0.5))
    wide = x.astype(np.float64)
    close(ops.exp(x), np.exp(wide), dtype)
    close(ops.rsqrt(y), 1 / np.sqrt(y.astype(np.float64)), dtype)
    close(ops.silu(x), wide / (1 + np.exp(-wide)), dtype)
    close(ops.add(x, y), np.add(x, y), dtype)
    close(ops.div(x, y), x / y, dtype)
    close(ops.maximum(x, y), np.maximum(x, y), dtype)


def test_row_as_second_operand():
    x, row = normal(3, 4, 33), normal(33)
    close(ops.mul(x, row), x * row)
    np.testing.assert_array_equal(ops.sub(np.arange(6).reshape(2, 3), np.arange(3)), [[0, 0, 0], [3, 3, 3]])


@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions(dtype):
    x = normal(6, 7, 31, dtype=dtype)
    for dim in (None, -1, 2):
        axis = None if dim is None else -1
        close(ops.sum(x, dim), x.sum(axis, dtype=np.float64).astype(dtype), dtype)
        close(ops.mean(x, dim=dim), x.mean(axis, dtype=np.float64), dtype)
        close(ops.max(x, dim), x.max(axis), dtype)
        close(ops.argmin(x, dim), x.argmin(axis), np.int64)
    assert ops.sum(np.full(3, 2**30, dtype=np.int32)) == 3 * 2**30
    assert ops.prod(np.array([2, 3, 4], dtype=np.uint32)).dtype == np.uint64
    with pytest.raises(ValueError, match="last dimension"):
        ops.sum(x, 0)
    with pytest.raises(ValueError, match="max"):
        ops.max(x[:0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows(dtype):
    x, weight, bias = normal(2, 5, 40, dtype=dtype), normal(40, dtype=dtype), normal(40, dtype=dtype)
    wide = x.astype(np.float64)
    exponentials = np.exp(wide)
    softmax = exponentials / exponentials.sum(-1, keepdims=True)
    close(ops.softmax(x), softmax, dtype)
    close(ops.log_softmax(x), np.log(softmax), dtype)
    centred = wide - wide.mean(-1, keepdims=True)
    normalized = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5)
    close(ops.layer_norm(x), normalized, dtype)
    close(ops.layer_norm(x, weight, bias), normalized * weight + bias, dtype)
    rms = np.sqrt(np.square(wide).mean(-1, keepdims=True) + 0.5)
    close(ops.rms_norm(x, weight, epsilon=0.5), wide / rms * weight, dtype)
    with pytest.raises(ValueError, match="weight"):
        ops.rms_norm(x, weight[:-1])


def test_order():
    x = normal(4, 100)
    np.testing.assert_array_equal(ops.sort(x), np.sort(x))
    np.testing.assert_array_equal(ops.sort(x[0], descending=True), np.sort(x[0])[::-1])
    np.testing.assert_array_equal(ops.argsort(x[1]), np.argsort(x[1], stable=True))
    np.testing.assert_array_equal(ops.cumsum(np.arange(1000)), np.cumsum(np.arange(1000)))
    values, indices = ops.top_k(x, 3)
    np.testing.assert_array_equal(values, np.sort(x)[:, :-4:-1])
    np.testing.assert_array_equal(np.take_along_axis(x, indices, -1), values)
    with pytest.raises(ValueError, match="`k` is 101"):
        ops.top_k(x, 101)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("batch", [((), ()), ((3,), (3,)), ((3,), ())])
def test_matmul(dtype, batch):
    a, b = normal(*batch[0], 24, 16, dtype=dtype), normal(*batch[1], 16, 40, dtype=dtype)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    close(ops.matmul(a, b), expected, dtype)
    # The same matrix in column-major order.
    turned = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    close(ops.matmul(a, turned), expected, dtype)
    with pytest.raises(ValueError, match="16 x 40"):
        ops.matmul(a[..., :8].copy(), b)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal):
    q, k, v = (normal(2, heads, 10, 64, dtype=np.float16) for heads in (4, 2, 2))
    keys, values = (x.astype(np.float64).repeat(2, 1) for x in (k, v))
    scores = q.astype(np.float64) @ keys.swapaxes(-1, -2) / 8
    if is_causal:
        scores += np.triu(np.full((10, 10), -np.inf), 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ values
    close(ops.attention(q, k, v, is_causal=is_causal), expected, np.float16)
    # In memory, the token dimension precedes the head dimension.
    turned = np.ascontiguousarray(q.swapaxes(1, 2)).swapaxes(1, 2)
    close(ops.attention(turned, k, v, None, is_causal), expected, np.float16)


def test_strides():
    x = normal(8, 30)
    close(ops.sum(x[:, 3:20], -1), x[:, 3:20].sum(-1))
    close(ops.softmax(x[::2]), ops.softmax(x)[::2])
    for wrong in (x.T, x[:, ::2], x[:, 1:]):
        with pytest.raises(ValueError, match="contiguous"):
            ops.exp(wrong)
    with pytest.raises(ValueError, match="stride"):
        ops.exp(x[::-1])


def test_read_only():
    x = normal(5)
    x.flags.writeable = False
    close(ops.neg(x), -x)


def test_wrong_arguments():
    x = normal(4, 6)
    with pytest.raises(TypeError, match="argument `x` must be a tensor, not list"):
        ops.exp([1.0])
    with pytest.raises(TypeError, match="missing the required argument `y`"):
        ops.add(x)
    with pytest.raises(TypeError, match="unexpected keyword argument `axis`"):
        ops.sum(x, axis=0)
    with pytest.raises(ValueError, match="shapes"):
        ops.add(x, x[:2])
    with pytest.raises(ValueError, match="complex64"):
        ops.exp(x.astype(np.complex64))
    with pytest.raises(ValueError, match="float64, not float32"):
        ops.add(x, x.astype(np.float64))


class Once:
    """Producer that returns the same capsule in each call, so that it can be consumed only once."""

    def __init__(self, array):
        self.capsule = array.__dlpack__(max_version=(1, 0))

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        return self.capsule


def test_consumed_capsule():
    x = normal(9)
    once = Once(x)
    result = ops.neg(once)
    close(np.from_dlpack(result), -x)
    with pytest.raises(ValueError, match="already consumed"):
        np.from_dlpack(result)
    with pytest.raises(ValueError, match="already consumed"):
        ops.neg(once)


def test_threads():
    failed = []

    def run(seed):
        x = np.random.default_rng(seed).standard_normal((2, 100)).astype(np.float32)
        for _ in range(20):
            if not (ops.sort(x) == np.sort(x)).all() or not (ops.neg(x) == -x).all():
                failed.append(seed)

    threads = [threading.Thread(target=run, args=(seed,), daemon=True) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failed


def test_an_operator_that_fails_releases_its_arguments():
    x = np.ones((4, 8), dtype=np.float32)
    references = sys.getrefcount(x)
    for _ in range(10):
        with pytest.raises(ValueError):
            ops.softmax(x.astype(np.int32))
        with pytest.raises(ValueError):
            ops.add(x, x[:2])
        ops.exp(x)
    assert sys.getrefcount(x) == references

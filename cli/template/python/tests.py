"""Tests the functions with NumPy arrays, on the emulated device, so no GPU is needed."""

import numpy as np
import pytest

import {{crate}}


@pytest.mark.parametrize("shape", [(0,), (1,), (31, 33), (2, 3, 1024)])
def test_axpy(shape):
    generator = np.random.default_rng(1)
    x, y = (generator.standard_normal(shape, dtype=np.float32) for _ in range(2))
    np.testing.assert_allclose({{crate}}.axpy(x, y, a=3.0), 3 * x + y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("columns", [1, 8, 100, 1024, 5000])
def test_rms_norm(columns):
    generator = np.random.default_rng(2)
    x, residual = (generator.standard_normal((7, columns), dtype=np.float32) for _ in range(2))
    weight = generator.standard_normal(columns, dtype=np.float32)
    out, total = {{crate}}.rms_norm(x, residual, weight)
    np.testing.assert_array_equal(total, x + residual)
    rms = np.sqrt(np.square(x + residual, dtype=np.float64).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(out, (x + residual) / rms * weight, rtol=1e-4, atol=1e-5)


def test_wrong_arguments():
    x = np.zeros((4, 6), dtype=np.float32)
    with pytest.raises(ValueError, match="same shape"):
        {{crate}}.axpy(x, x[:2])
    with pytest.raises(ValueError, match="float64"):
        {{crate}}.axpy(x.astype(np.float64), x.astype(np.float64))
    with pytest.raises(ValueError, match="not contiguous"):
        {{crate}}.axpy(x[:, :3], x[:, :3])
    with pytest.raises(TypeError, match="must be a tensor"):
        {{crate}}.axpy([1.0], x)

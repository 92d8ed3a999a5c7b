"""Tests the PyTorch operators with CPU tensors, and with CUDA tensors if a GPU is available."""

import pytest

torch = pytest.importorskip("torch")

import {{crate}}.torch  # noqa: E402

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def tensors(device, *shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]


def rms_norm(x, residual, weight, epsilon=1e-6):
    total = x + residual
    return torch.nn.functional.rms_norm(total, weight.shape, weight, epsilon), total


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_results(device, dtype):
    x, y, weight = tensors(device, (5, 512), (5, 512), (512,), dtype=dtype)
    torch.testing.assert_close({{crate}}.torch.axpy(x, y, 2.0), 2 * x + y)
    out, total = {{crate}}.torch.rms_norm(x, y, weight)
    torch.testing.assert_close((out, total), rms_norm(x, y, weight))


@pytest.mark.parametrize("device", DEVICES)
def test_operators_obey_pytorch(device):
    x, y, weight = (tensor.requires_grad_() for tensor in tensors(device, (3, 64), (3, 64), (64,)))
    torch.library.opcheck(torch.ops.{{crate}}.axpy.default, (x, y, 2.0))
    torch.library.opcheck(torch.ops.{{crate}}.rms_norm.default, (x, y, weight, 1e-6))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    arguments = tensors(device, (3, 64), (3, 64), (64,))
    gradients = []
    for function in ({{crate}}.torch.rms_norm, rms_norm):
        leaves = [argument.clone().requires_grad_() for argument in arguments]
        out, total = function(*leaves)
        (out.square().sum() + total.sin().sum()).backward()
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_without_graph_breaks(device):
    x, y, weight = tensors(device, (4, 128), (4, 128), (128,))

    def block(x, y):
        out, total = {{crate}}.torch.rms_norm(x.sin(), y, weight)
        return {{crate}}.torch.axpy(out, total, 0.5) + 1

    backend = "inductor" if device == "cuda" else "aot_eager"
    torch.testing.assert_close(torch.compile(block, fullgraph=True, backend=backend)(x, y), block(x, y))


def test_wrong_arguments():
    x = torch.zeros(3, 4)
    with pytest.raises(RuntimeError, match="same shape"):
        torch.ops.{{crate}}.axpy(x, x[:2], 1.0)
    with pytest.raises(RuntimeError, match="not contiguous"):
        torch.ops.{{crate}}.axpy(x.t(), x.t(), 1.0)
    with pytest.raises(RuntimeError, match="float64"):
        torch.ops.{{crate}}.axpy(x.double(), x.double(), 1.0)

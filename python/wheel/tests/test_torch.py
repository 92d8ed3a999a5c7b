"""Tests the PyTorch operators with CPU tensors, and with CUDA tensors if a GPU is available."""

import pytest

torch = pytest.importorskip("torch")

import warpsmith.torch  # noqa: E402
from warpsmith import ops  # noqa: E402

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
NO_FLOAT64 = {"matmul", "attention"}
operators = torch.ops.warpsmith


def arguments(name, device):
    generator = torch.Generator().manual_seed(3)

    def positive(*shape, dtype=torch.float32):
        return torch.randn(shape, generator=generator).abs().add(0.1).to(device, dtype)

    x = positive(4, 32)
    if name in "add sub mul div minimum maximum pow".split():
        return x, positive(4, 32)
    special = {
        "layer_norm": lambda: (x, positive(32), positive(32)),
        "rms_norm": lambda: (x, positive(32)),
        "cumsum": lambda: (x[0],),
        "argsort": lambda: (x[0],),
        "prod": lambda: (x[0, :4],),
        "top_k": lambda: (x, 3),
        "matmul": lambda: (x, positive(8, 32).t()),
        "attention": lambda: (*(positive(2, 2, 8, 64, dtype=torch.float16) for _ in range(3)), 0.2, True),
    }
    return special.get(name, lambda: (x,))()


def differentiable(values):
    return [
        value.clone().requires_grad_() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in values
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", warpsmith.ops.__all__)
def test_operator(name, device):
    values = arguments(name, device)
    operator = getattr(operators, name)
    result = operator(*values)
    torch.testing.assert_close(result, warpsmith.torch.EQUAL[name](*values), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(result, getattr(warpsmith.ops, name)(*values), rtol=0, atol=0)
    torch.library.opcheck(operator.default, differentiable(values), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(set(warpsmith.ops.__all__) - {"argmin", "argmax", "argsort"} - NO_FLOAT64))
def test_gradcheck(name, device):
    values = [value.double() if isinstance(value, torch.Tensor) else value for value in arguments(name, device)]
    assert torch.autograd.gradcheck(getattr(operators, name), differentiable(values))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    for name in ("softmax", "layer_norm", "matmul", "top_k", "attention"):
        gradients = []
        for function in (getattr(operators, name), warpsmith.torch.EQUAL[name]):
            leaves = differentiable(arguments(name, device))
            result = function(*leaves)
            (result[0] if isinstance(result, tuple) else result).square().sum().backward()
            gradients.append([leaf.grad for leaf in leaves if isinstance(leaf, torch.Tensor)])
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_without_graph_breaks(device):
    x, weight = (value.requires_grad_() for value in arguments("rms_norm", device))

    def block(x, weight):
        y = operators.rms_norm(x.sin(), weight, 1e-6)
        return operators.sum(operators.softmax(operators.matmul(y, x.t())) + 1, None)

    backend = "inductor" if device == "cuda" else "aot_eager"
    compiled = torch.compile(block, fullgraph=True, backend=backend)
    found, expected = compiled(x, weight), block(x, weight)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, (x, weight)), torch.autograd.grad(expected, (x, weight)))


def test_wrong_arguments():
    x = torch.zeros(3, 4)
    with pytest.raises(RuntimeError, match="contiguous"):
        operators.exp(x.t())
    with pytest.raises(RuntimeError, match="complex64"):
        operators.exp(x.to(torch.complex64))


def test_lazy_conjugates_are_rejected():
    z = torch.complex(torch.ones(4), torch.ones(4))
    with pytest.raises(ValueError, match="resolve_neg"):
        ops.exp(z.conj().imag)
    # PyTorch resolves the argument of an operator.
    torch.testing.assert_close(torch.ops.warpsmith.exp(z.conj().imag), torch.exp(-torch.ones(4)))

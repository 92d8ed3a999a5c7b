"""The operators of PyTorch, on the CPU and on a GPU if there is one."""

import inspect

import pytest

torch = pytest.importorskip("torch")

import warpsmith.torch  # noqa: E402

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
operators = torch.ops.warpsmith


def arguments(name, device):
    generator = torch.Generator().manual_seed(3)

    def normal(*shape, dtype=torch.float32):
        return torch.randn(shape, generator=generator).abs().add(0.1).to(device, dtype)

    x, y = normal(4, 32), normal(4, 32)
    special = {
        "layer_norm": (x, normal(32), normal(32)),
        "rms_norm": (x, normal(32)),
        "cumsum": (x[0],),
        "argsort": (x[0],),
        "top_k": (x, 3),
        "matmul": (x, normal(8, 32).t()),
        "attention": tuple(normal(2, 2, 8, 64, dtype=torch.float16) for _ in range(3)) + (0.2, True),
        "prod": (x[0, :4],),
    }
    return special.get(name, (x, y) if "y" in inspect.signature(getattr(warpsmith.ops, name)).parameters else (x,))


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
    results = []
    for function in (operator, warpsmith.torch.EQUAL[name], getattr(warpsmith.ops, name)):
        results.append(function(*values))
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(results[0], results[2], rtol=0, atol=0)
    torch.library.opcheck(operator.default, differentiable(values), rtol=1e-3, atol=1e-3)


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

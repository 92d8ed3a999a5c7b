"""The operators as functions of TVM FFI, on NumPy arrays, and on PyTorch's tensors if it is installed."""

import ctypes
import gc
import sys

import numpy as np
import pytest
import tvm_ffi

import warpsmith

try:
    import torch
except ImportError:
    torch = None

DEVICES = ["numpy"] + (["cpu"] + ["cuda"] * torch.cuda.is_available() if torch else [])
MODULE = tvm_ffi.load_module(warpsmith._native.__file__)
X = np.random.default_rng(5).standard_normal((4, 100), dtype=np.float32)


def given(device, array):
    return array if device == "numpy" else torch.from_numpy(array).to(device)


def check(device, result, expected):
    # NumPy has no exchange table: the result is TVM FFI's own tensor.
    assert isinstance(result, tvm_ffi.Tensor if device == "numpy" else torch.Tensor)
    result = np.from_dlpack(result.cpu() if device == "cuda" else result)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_results(device):
    x, weight = given(device, X), given(device, X[0])
    check(device, MODULE.add(x, x), X + X)
    values, indices = MODULE.top_k(x, 3)
    check(device, values, -np.sort(-X)[:, :3])
    check(device, indices, np.argsort(-X)[:, :3])
    # Optional tensors and numbers, numbers of other types, and arguments that are left out.
    squares = np.square(X).mean(1, keepdims=True)
    check(device, MODULE.rms_norm(x, weight, 0.5), X / np.sqrt(squares + 0.5) * X[0])
    check(device, MODULE.rms_norm(x, None, 1), X / np.sqrt(squares + 1))
    check(device, MODULE.rms_norm(x), X / np.sqrt(squares + 1e-6))
    check(device, MODULE.sum(x, None), X.sum())
    check(device, MODULE.sum(x, -1), X.sum(1))
    check(device, MODULE.sort(x), np.sort(X))
    check(device, MODULE.sort(x, True), -np.sort(-X))


def test_the_stream_is_that_of_the_caller():
    if "cuda" not in DEVICES:
        pytest.skip("needs a GPU and PyTorch")
    stream, x = torch.cuda.Stream(), torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1 << 28)
        x.fill_(1)
        y = MODULE.add(x, x)
        assert not stream.query(), "the call waited"
        assert (y == 2).all()


@pytest.mark.parametrize("device", DEVICES)
def test_errors(device):
    x = given(device, X)
    with pytest.raises(ValueError, match="shape"):
        MODULE.add(x, x[:, :7])
    with pytest.raises(TypeError, match="`y` must be a tensor, not None"):
        MODULE.add(x, None)
    with pytest.raises(TypeError, match="`k` must be of type int, not a float"):
        MODULE.top_k(x, 2.5)
    with pytest.raises(TypeError, match=r"1 arguments for \(x, k\)"):
        MODULE.top_k(x)
    with pytest.raises(TypeError, match=r"3 arguments for \(x, y\)"):
        MODULE.add(x, x, x)


def test_references():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def calls():
        for at in range(1000):
            MODULE.add(X, X)
            if at % 5 == 0:
                MODULE.top_k(X, 3)
            with pytest.raises(TypeError):
                MODULE.add(X, None)
        gc.collect()
        return sys.getrefcount(X), resident() if sys.platform == "linux" else 0

    calls()
    (references, before), (same, after) = calls(), calls()
    assert same == references
    # 1000 leaked tensors have 250 KiB, 200 leaked pairs have as many.
    assert after - before < 100 << 10


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Value(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("pointer", ctypes.c_void_p)]


def test_tensors_that_a_caller_in_c_lends():
    shape = (ctypes.c_int64 * 2)(*X.shape)
    tensor = DLTensor(X.ctypes.data, (1, 0), 2, (2, 32, 1, 0), shape, None, 0)
    arguments = (Value * 2)(*[Value(7, 0, ctypes.addressof(tensor))] * 2)
    result = Value()
    function = ctypes.CDLL(warpsmith._native.__file__)["__tvm_ffi_add"]
    assert function(None, arguments, 2, ctypes.byref(result)) == 0
    assert (result.type_index, result.padding) == (70, 0)
    # The tensor follows the object's header of 24 bytes.
    sums = DLTensor.from_address(result.pointer + 24)
    values = (ctypes.c_float * X.size).from_address(sums.data)
    np.testing.assert_array_equal(np.array(values).reshape(X.shape), X + X)
    release = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi()).TVMFFIObjectDecRef
    assert release(ctypes.c_void_p(result.pointer)) == 0

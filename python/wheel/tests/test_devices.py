"""Tests devices, memory statistics, traces and the type stubs."""

import ast
import inspect
import json
import pathlib

import numpy as np
import pytest

import warpsmith
from warpsmith import _native, ops

HAS_GPU = any(not device["is_emulated"] for device in warpsmith.devices())


def test_devices():
    emulated = warpsmith.devices()[-1]
    assert emulated["id"] == "cpu:0" and emulated["is_emulated"] and emulated["total_memory"] > 0
    warpsmith.synchronize("cpu")
    assert warpsmith.current_stream("cpu") == warpsmith.current_stream("cpu:0")
    with pytest.raises(RuntimeError, match="unknown device `gpu`"):
        warpsmith.synchronize("gpu")


@pytest.mark.skipif(HAS_GPU, reason="a driver is installed")
def test_without_a_driver():
    for device in (0, "cuda:0"):
        with pytest.raises(RuntimeError, match="install the NVIDIA driver"):
            warpsmith.synchronize(device)


def test_memory():
    kept = ops.neg(np.ones(1 << 20, dtype=np.float32))
    before = warpsmith.memory_stats("cpu")
    assert before["allocated_bytes.all.current"] >= kept.nbytes
    segments = warpsmith.memory_snapshot("cpu")["segments"]
    assert sum(segment["allocated_size"] for segment in segments) == before["allocated_bytes.all.current"]
    del kept
    after = warpsmith.memory_stats("cpu")
    assert after["allocated_bytes.all.current"] <= before["allocated_bytes.all.current"] - (4 << 20)
    assert warpsmith.empty_cache("cpu") >= 4 << 20
    assert warpsmith.memory_stats("cpu")["reserved_bytes.all.current"] < before["reserved_bytes.all.current"]


def test_trace(tmp_path):
    path = tmp_path / "trace.json"
    with warpsmith.profile(path):
        with warpsmith.range("step"):
            ops.exp(np.ones(100, dtype=np.float32))
        with pytest.raises(ValueError, match="already recording"):
            with warpsmith.profile(tmp_path / "second.json"):
                pass
    names = [event.get("name", "") for event in json.loads(path.read_text())["traceEvents"]]
    assert "step" in names and any("exp" in name for name in names)
    with pytest.raises(ValueError, match="no profiler"):
        _native.stop_profiler()


def test_stubs():
    """Checks that the stubs declare all functions of the module, with the same arguments and defaults."""
    tree = ast.parse(pathlib.Path(_native.__file__).with_name("_native.pyi").read_text())
    stubs = {}
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        names = [argument.arg for argument in function.args.args]
        defaults = [ast.literal_eval(default) for default in function.args.defaults]
        stubs[function.name] = (names, defaults)
        assert function.returns is not None
    found = {}
    for name, function in vars(_native).items():
        if callable(function) and not name.startswith("_"):
            parameters = inspect.signature(function).parameters.values()
            defaults = [parameter.default for parameter in parameters if parameter.default is not parameter.empty]
            found[name] = ([parameter.name for parameter in parameters], defaults)
            assert function.__doc__
    assert stubs == found
    others = {"register_torch", "start_profiler", "stop_profiler", "range_push", "range_pop", *warpsmith.__all__}
    assert set(found) - others == set(ops.__all__)

"""Compares the operators of a package that ``warpsmith new --python fused`` created with ``torch.compile`` and Triton.

Prints one JSON object. Kernel times are medians over launches of a CUDA graph, measured with CUDA events. Their data
exceeds the L2 cache. Host times are measured with kernels that are shorter than the launch overhead.
"""

import json
import statistics
import time

import torch
import torch._dynamo
import triton
import triton.language as tl

import fused
import fused.torch


@triton.jit
def triton_rms_norm(x, residual, weight, total, out, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row + at, mask=mask, other=0.0).to(tl.float32)
    values += tl.load(residual + row + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(total + row + at, values, mask=mask)
    scale = tl.rsqrt(tl.sum(values * values) / columns + epsilon)
    tl.store(out + row + at, values * scale * tl.load(weight + at, mask=mask, other=0.0).to(tl.float32), mask=mask)


def by_triton(x, residual, weight, epsilon=1e-6):
    total, out = torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[-1])
    warps = min(max(block // 256, 1), 8)
    grid = (x.numel() // x.shape[-1],)
    triton_rms_norm[grid](x, residual, weight, total, out, x.shape[-1], epsilon, BLOCK=block, num_warps=warps)
    return out, total


def by_torch(x, residual, weight, epsilon=1e-6):
    total = x + residual
    return torch.nn.functional.rms_norm(total, weight.shape, weight, epsilon), total


def kernel_us(*functions, calls=20, rounds=15):
    """Returns the median time per call for each function. The rounds of the functions are interleaved."""
    graphs = []
    for function in functions:
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                function()
        graphs.append(graph)
    times = [[] for _ in functions]
    for _ in range(rounds):
        for graph, samples in zip(graphs, times):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples.append(start.elapsed_time(end) / calls * 1e3)
    return [round(statistics.median(samples), 2) for samples in times]


def host_us(function, calls=2000, rounds=7):
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    return round(best, 2)


def main():
    result = {"torch": torch.__version__, "triton": triton.__version__, "gpu": torch.cuda.get_device_name()}

    small = torch.randn(1024, device="cuda")
    other = torch.randn(1024, device="cuda")
    operator = torch.ops.fused.axpy.default
    compiled = torch.compile(lambda x, y: 2.0 * x + y)
    result["host us"] = {
        "torch.ops": host_us(lambda: operator(small, other, 2.0)),
        "function by DLPack": host_us(lambda: fused.axpy(small, other, 2.0)),
        "torch.add": host_us(lambda: torch.add(other, small, alpha=2.0)),
        "torch.compile": host_us(lambda: compiled(small, other)),
        "torch.empty_like": host_us(lambda: torch.empty_like(small)),
    }

    for exponent in (24, 26):
        for dtype in (torch.float32, torch.bfloat16):
            x, y = (torch.randn(1 << exponent, device="cuda", dtype=dtype) for _ in range(2))
            ours, theirs = kernel_us(lambda: operator(x, y, 2.0), lambda: compiled(x, y))
            result[f"axpy 2^{exponent} {dtype} us"] = {"ours": ours, "torch.compile": theirs}

    compiled_norm = torch.compile(by_torch)
    for rows, columns in ((16384, 1024), (8192, 4096), (4096, 8192), (2048, 16384)):
        for dtype in (torch.float32, torch.bfloat16):
            x, residual = (torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(2))
            weight = torch.randn(columns, device="cuda", dtype=dtype)
            times = kernel_us(
                lambda: torch.ops.fused.rms_norm(x, residual, weight, 1e-6),
                lambda: compiled_norm(x, residual, weight),
                lambda: by_triton(x, residual, weight),
            )
            result[f"rms_norm {rows}x{columns} {dtype} us"] = dict(zip(("ours", "torch.compile", "triton"), times))

    def block(x, residual, weight):
        out, total = fused.torch.rms_norm(x * 2, residual, weight)
        return fused.torch.axpy(out, total, 0.5)

    x, residual, weight = (torch.randn(shape, device="cuda") for shape in ((64, 1024), (64, 1024), (1024,)))


    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    captured = torch.compile(block, fullgraph=True, mode="reduce-overhead")
    for scale in range(1, 6):
        torch.testing.assert_close(captured(x * scale, residual, weight).clone(), block(x * scale, residual, weight))
    counters = torch._dynamo.utils.counters
    result["reduce-overhead"] = {
        "graphs": counters["stats"].get("unique_graphs"),
        "graph breaks": sum(counters["graph_break"].values()),
        "cudagraph skips": counters["inductor"].get("cudagraph_skips", 0),
        "us": host_us(lambda: captured(x, residual, weight), calls=500),
        "eager us": host_us(lambda: block(x, residual, weight), calls=500),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

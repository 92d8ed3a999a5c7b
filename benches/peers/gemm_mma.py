"""Rate of a Triton GEMM with `mma.sync`, in bf16 with float32 sums: the peer of the `mma.sync` kernels on Hopper.

`DISABLE_MMA_V3` keeps Triton from `wgmma`; the script fails if the kernel has none of `mma.sync`. Layout: A row-major,
B column-major (`abt`). For each shape, Triton's autotuner selects the fastest of the configurations.

Usage: python3 gemm_mma.py 4096 8192 128x4096x4096 …
"""

import os
import sys

os.environ["DISABLE_MMA_V3"] = "1"

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_warps=warps, num_stages=stages)
    for bm, bn, warps in [(128, 256, 8), (256, 128, 8), (128, 128, 4), (128, 128, 8), (64, 128, 4), (64, 256, 4), (64, 64, 4)]
    for bk in (32, 64)
    for stages in (3, 4, 5)
    if (bm + bn) * bk * 2 * stages <= 227 * 1024
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = 8 * columns
    index = tl.program_id(0)
    first = index // group * 8
    height = min(rows - first, 8)
    row = first + index % group % height
    column = index % group // height
    m = (row * BM + tl.arange(0, BM)) % M
    n = (column * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a_at = a + m[:, None] * K + k[None, :]
    b_at = b + n[None, :] * K + k[:, None]
    sums = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        left = K - step * BK
        x = tl.load(a_at, mask=k[None, :] < left, other=0.0)
        y = tl.load(b_at, mask=k[:, None] < left, other=0.0)
        sums = tl.dot(x, y, sums)
        a_at += BK
        b_at += BK
    m = row * BM + tl.arange(0, BM)
    n = column * BN + tl.arange(0, BN)
    tl.store(c + m[:, None] * N + n[None, :], sums.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


for shape in sys.argv[1:]:
    sides = [int(side) for side in shape.split("x")]
    m, n, k = sides if len(sides) == 3 else 3 * sides
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)

    def run():
        return product[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](a, b, c, m, n, k)

    code = run().asm["ptx"]
    if "wgmma" in code or "mma.sync" not in code:
        sys.exit("Triton did not use mma.sync: this version has another switch")
    assert torch.allclose(c, a @ b.T, rtol=2e-2, atol=1.0)
    ms = triton.testing.do_bench_cudagraph(run, rep=200)
    of_torch = triton.testing.do_bench_cudagraph(lambda: torch.mm(a, b.T, out=c), rep=200)
    flops = 2e-9 * m * n * k
    best = product.best_config
    print(f"{m}x{n}x{k} triton {flops / ms:.1f} TFLOP/s, cuBLAS {flops / of_torch:.1f}, {best}", flush=True)

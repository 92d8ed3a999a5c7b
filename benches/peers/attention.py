"""How fast PyTorch and FlashAttention attend: the cases, the method and the lines of tensor/benches/attention.rs.

PyTorch's scaled_dot_product_attention by each of its backends, and FlashAttention-3 where `flash_attn_interface` is installed. Each
figure is the median of 15 rounds, timed by events, after the clock has settled.
"""

import os
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

try:
    from flash_attn_interface import flash_attn_func
except ImportError:
    flash_attn_func = None

ROUNDS = 15
TOKENS = 16384
WIDTH = 2048
SETTLE_US = 0.5e6 * float(os.environ.get("WARPSMITH_BENCH_SECONDS", "3"))


def time_us(call):
    def run(count):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1000.0 / count

    run(2)
    once = max(run(2), 1.0)
    count = min(max(int(SETTLE_US / ROUNDS / once), 1), 2000)
    settled = 0.0
    while settled < SETTLE_US:
        settled += run(count) * count
    times = [run(count) for _ in range(ROUNDS)]
    return statistics.median(times), min(times)


def backward(call, inputs):
    # The result of one forward pass, whose gradients are computed again and again.
    out = call()
    # FlashAttention-3 also returned the log-sum-exp.
    out = out[0] if isinstance(out, tuple) else out
    dout = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)


def callers(q, k, v, is_causal):
    # PyTorch has heads before tokens: these are views.
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        backend = getattr(SDPBackend, name, None)
        if backend is None:
            continue

        def call(backend=backend):
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(*heads, is_causal=is_causal)

        yield f"torch {name.lower()}", call
    if flash_attn_func is not None:
        yield "FlashAttention-3", lambda: flash_attn_func(q, k, v, causal=is_causal)


def main():
    torch.cuda.set_device(os.environ.get("WARPSMITH_BENCH_DEVICE", "cuda:0"))
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    torch.manual_seed(1)
    cases = sys.argv[1:] or [
        f"bf16:128:{length}:{mask}"
        for mask in ("full", "causal", "full:backward", "causal:backward")
        for length in (1024, 2048, 4096, 8192, 16384)
    ]
    for case in cases:
        is_backward = case.endswith(":backward")
        element, dim, length, mask = case.removesuffix(":backward").split(":")
        dim, length, is_causal = int(dim), int(length), mask == "causal"
        heads, sequences = max(WIDTH // dim, 1), max(TOKENS // length, 1)
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[element]
        q, k, v = (torch.randn(sequences, length, heads, dim, device="cuda", dtype=dtype) for _ in range(3))
        for x in (q, k, v):
            x.requires_grad_(is_backward)
        operations = (10 if is_backward else 4) * sequences * heads * dim * length**2 / (2 if is_causal else 1)
        for name, call in callers(q, k, v, is_causal):
            try:
                us, best = time_us(backward(call, (q, k, v)) if is_backward else call)
            except RuntimeError as error:
                print(f"{case} {name}: {error}", flush=True)
                continue
            print(
                f"{case} {heads} heads, {sequences} sequences: {us:9.1f} us {operations / us / 1e6:7.1f} TFLOP/s, "
                f"best {operations / best / 1e6:7.1f} ({name})",
                flush=True,
            )


if __name__ == "__main__":
    main()

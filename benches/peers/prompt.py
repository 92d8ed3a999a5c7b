"""How long cuBLAS and cuDNN take for the products and the attention of a prompt of Llama-3-8B's shapes, in bf16.

The prompt has 8192 tokens. Products have chunks of 2048 rows, as in examples/llm; attention is causal over all tokens at
once. Prints the sum over all layers. Compare it with `prefill_ms` of `llm bench --shape llama-3-8b --context 8192`.
"""

import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

LAYERS, TOKENS, CHUNK, HIDDEN, HEADS, KV_HEADS, DIM, WIDTH = 32, 8192, 2048, 4096, 32, 8, 128, 14336


def time_us(call, calls=20, rounds=9):
    times = []
    for _ in range(rounds + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000.0 / calls)
    return statistics.median(times[2:])


def main():
    torch.set_grad_enabled(False)
    print(torch.__version__, torch.cuda.get_device_name())
    random = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02
    shapes = [(HIDDEN, (HEADS + 2 * KV_HEADS) * DIM), (HEADS * DIM, HIDDEN), (HIDDEN, 2 * WIDTH), (WIDTH, HIDDEN)]
    products = 0.0
    for k, n in shapes:
        a, b = random(CHUNK, k), random(n, k)
        us = time_us(lambda: torch.nn.functional.linear(a, b))
        products += us * TOKENS / CHUNK
        print(f"{CHUNK} x {k} x {n}: {us:8.1f} us {2 * CHUNK * k * n / us / 1e6:6.1f} TFLOP/s", flush=True)
    q, k, v = random(1, HEADS, TOKENS, DIM), random(1, KV_HEADS, TOKENS, DIM), random(1, KV_HEADS, TOKENS, DIM)
    fastest = float("inf")
    for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            us = time_us(lambda: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
        fastest = min(fastest, us)
        print(f"{backend}: {us:8.1f} us", flush=True)
    print(f"sum: {LAYERS * (products + fastest) / 1e3:.1f} ms")


main()

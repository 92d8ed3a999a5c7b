"""Measures attention for decoding in PyTorch, with the cases and the method of tensor/benches/attention_decode.rs.

Prints the time per call for each backend of scaled_dot_product_attention, in a CUDA graph of several calls, whose caches
differ. Arguments are cases of the form SEQUENCES:KEYS.
"""

import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

HEADS, KV_HEADS, DIM = 32, 8, 128
# Bytes that the caches of a graph have together at least, so that no call finds its cache in the L2 cache.
CACHES = 512 << 20
ROUNDS = 15


def time_us(calls):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        calls[0]()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
        times = []
        for _ in range(ROUNDS + 3):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) * 1000.0 / len(calls))
    return statistics.median(times[3:])


def main():
    torch.set_grad_enabled(False)
    print(torch.__version__, torch.cuda.get_device_name())
    default = [f"{n}:{k}" for n in (1, 16, 64) for k in (1024, 8192, 65536)]
    for case in sys.argv[1:] or default:
        sequences, keys = (int(number) for number in case.split(":"))
        bytes_ = 4 * sequences * keys * KV_HEADS * DIM
        count = min(max(CACHES // bytes_, 2), 64)
        caches = [torch.randn(2, sequences, keys, KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
        q = torch.randn(sequences, HEADS, 1, DIM, device="cuda", dtype=torch.bfloat16)
        for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
            def attend(cache):
                k, v = (half.transpose(1, 2) for half in cache)
                with sdpa_kernel(getattr(SDPBackend, backend)):
                    return scaled_dot_product_attention(q, k, v, enable_gqa=True)

            try:
                us = time_us([lambda cache=cache: attend(cache) for cache in caches])
            except RuntimeError as error:
                print(f"{case} {backend}: {str(error).splitlines()[0]}")
                continue
            print(f"{case} {backend}: {us:9.2f} us {bytes_ / us / 1e3:7.1f} GB/s", flush=True)
        del caches


main()

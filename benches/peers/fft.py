#!/usr/bin/env python3
"""Transforms by PyTorch, and what a call of one costs the host.

Does and prints what `runtime/benches/fft.rs` does and prints: each row is the median of 20 samples of 10 calls between two
events; GB/s are those read and written once. An argument picks rows that contain it.
"""

import statistics
import sys
import time

import torch

ROWS = [(16384, 4096), (64, 1 << 20), (4, 1 << 24), (4096, 1000), (1024, 10007)]


def main():
    picked = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    host(picked)
    for batch, size in ROWS:
        x = torch.zeros(batch, size, dtype=torch.complex64, device="cuda")
        real = torch.zeros(batch, size, device="cuda")
        length, half = batch * size, batch * (size // 2 + 1)
        bench(f"forward c64 {batch} x {size}", 16 * length, lambda: torch.fft.fft(x), picked)
        bench(f"forward r32 {batch} x {size}", 4 * length + 8 * half, lambda: torch.fft.rfft(real), picked)
        bench(f"inverse c64, divided {batch} x {size}", 16 * length, lambda: torch.fft.ifft(x), picked)


def bench(row, bytes_moved, call, picked):
    if picked not in row:
        return
    call()
    torch.cuda.synchronize()
    samples = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            call()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end) * 100)
    micros = statistics.median(samples)
    print(f"{row:40} {micros:10.1f} us {bytes_moved / micros / 1e3:8.0f} GB/s")


def host(picked):
    for plans in [1, 100]:
        row = f"host, {plans} plans in the cache"
        if picked not in row:
            continue
        inputs = [torch.zeros(16 + at, dtype=torch.complex64, device="cuda") for at in range(plans)]
        for x in inputs:
            torch.fft.fft(x)
        torch.cuda.synchronize()
        calls = []
        for round in range(50):
            start = time.perf_counter()
            for at in range(400):
                torch.fft.fft(inputs[(round * 400 + at) % plans])
            calls.append((time.perf_counter() - start) * 1e9 / 400)
            torch.cuda.synchronize()
        print(f"{row:40} {statistics.median(calls):10.0f} ns per call")


if __name__ == "__main__":
    main()

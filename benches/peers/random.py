#!/usr/bin/env python3
"""Random numbers by PyTorch: what `warpsmith bench uniform normal fill` measures, 2^28 numbers of f32.

Each row is the median of 20 samples of 10 calls between two events, which write two arrays in turns; GB/s are those written.
"""

import statistics

import torch

NUMBERS = 1 << 28


def main():
    arrays = [torch.empty(NUMBERS, device="cuda") for _ in range(2)]
    bench("uniform", arrays, lambda x: x.uniform_())
    bench("normal", arrays, lambda x: x.normal_())
    bench("fill", arrays, lambda x: x.fill_(1.0))


def bench(row, arrays, call):
    call(arrays[0])
    torch.cuda.synchronize()
    samples = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for at in range(10):
            call(arrays[at % 2])
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end) * 100)
    micros = statistics.median(samples)
    print(f"{row:10} {micros:10.1f} us {4 * NUMBERS / micros / 1e3:8.0f} GB/s")


if __name__ == "__main__":
    main()

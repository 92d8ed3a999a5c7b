#!/usr/bin/env python3
"""Ten convolutions of ResNet-50 by PyTorch, forward and backward, and what a call costs the host.

Does and prints what `runtime/benches/dnn.rs` does and prints: each row is the median of 20 samples of 10 calls between two
events, with `torch.backends.cudnn.benchmark`, batch 32; `nhwc` is `channels_last`. An argument picks rows that contain it.
"""

import statistics
import sys
import time

import torch

# Extent, input channels, output channels, window, stride, padding.
ROWS = [
    (224, 3, 64, 7, 2, 3),
    (56, 64, 64, 1, 1, 0),
    (56, 64, 64, 3, 1, 1),
    (56, 64, 256, 1, 1, 0),
    (56, 128, 128, 3, 2, 1),
    (28, 128, 512, 1, 1, 0),
    (28, 128, 128, 3, 1, 1),
    (14, 256, 256, 3, 1, 1),
    (14, 1024, 256, 1, 1, 0),
    (7, 512, 512, 3, 1, 1),
]


def main():
    torch.backends.cudnn.benchmark = True
    picked = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    for row in ROWS:
        for layout in ["nchw", "nhwc"]:
            for name in ["f32", "tf32", "bf16"]:
                bench(row, layout, name, picked)
    host_cost(picked)


def bench(row, layout, type_name, picked):
    extent, inputs, outputs, window, stride, padding = row
    torch.backends.cudnn.allow_tf32 = type_name != "f32"
    kind = torch.bfloat16 if type_name == "bf16" else torch.float32
    order = torch.channels_last if layout == "nhwc" else torch.contiguous_format

    def zeros(*shape):
        return torch.zeros(shape, dtype=kind, device="cuda").to(memory_format=order)

    x, w = zeros(32, inputs, extent, extent), zeros(outputs, inputs, window, window)
    y = torch.nn.functional.conv2d(x, w, stride=stride, padding=padding)
    flops = 2.0 * y.numel() * inputs * window * window

    def backward(mask):
        torch.ops.aten.convolution_backward(
            y, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, mask
        )

    calls = {
        "forward": lambda: torch.nn.functional.conv2d(x, w, stride=stride, padding=padding),
        "backward_data": lambda: backward([True, False, False]),
        "backward_weights": lambda: backward([False, True, False]),
    }
    for operation, call in calls.items():
        name = f"{operation}/{type_name}/{layout}/{extent}x{extent}x{inputs}-{window}x{window}-{outputs}"
        if picked in name:
            us = timed(call)
            print(f"{name:<60} {us:>10.2f} us {flops / us / 1e6:>8.2f} TFLOP/s", flush=True)


def timed(call):
    """The median time of a call on the device, in microseconds."""
    for _ in range(10):
        call()
    times = []
    for _ in range(20):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        for _ in range(10):
            call()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) * 1e3 / 10)
    return statistics.median_high(times)


def host_cost(picked):
    """What a call costs the host."""
    name = "host/forward/f32/1x8x8x8-1x1-8"
    if picked not in name:
        return
    torch.backends.cudnn.allow_tf32 = True
    x, w = torch.zeros(1, 8, 8, 8, device="cuda"), torch.zeros(8, 8, 1, 1, device="cuda")
    torch.nn.functional.conv2d(x, w)
    torch.cuda.synchronize()
    times = []
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(100):
            torch.nn.functional.conv2d(x, w)
        times.append((time.perf_counter() - start) * 1e6 / 100)
        torch.cuda.synchronize()
    print(f"{name:<60} {statistics.median_high(times):>10.2f} us")


if __name__ == "__main__":
    with torch.no_grad():
        main()

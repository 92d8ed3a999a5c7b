"""How fast PyTorch multiplies matrices: the shapes, the method and the lines of runtime/benches/blas.rs.

Each figure is the median of 9 rounds, each of as many products as take some 20 ms, timed by events after a warm-up.
"""

import statistics

import torch

SHAPES = [
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16, 4096, 4096),
    (128, 4096, 4096),
    (512, 4096, 4096),
    (2048, 12288, 4096),
    (2048, 4096, 4096),
    (2048, 11008, 4096),
    (2048, 4096, 11008),
    (64, 32000, 4096),
    (8192, 1024, 1024),
    (32768, 128, 512),
    (65536, 256, 256),
    (256, 256, 65536),
    (4096, 4096, 64),
    (1000, 1000, 1000),
    (4095, 4097, 2049),
]
ROUNDS = 9
ROUND_US = 20_000.0


def time_us(a, b, c):
    def run(count):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            torch.mm(a, b, out=c)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1000.0 / count

    run(3)
    once = max(run(3), 1.0)
    count = min(max(int(ROUND_US / once), 1), 1000)
    run(count)
    return statistics.median(run(count) for _ in range(ROUNDS))


def main():
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    torch.manual_seed(1)
    for m, n, k in SHAPES:
        for name, dtype in [("f32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16)]:
            torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
            a = (torch.rand(m, k, device="cuda") * 2 - 1).to(dtype)
            b = (torch.rand(k, n, device="cuda") * 2 - 1).to(dtype)
            c = torch.zeros(m, n, device="cuda", dtype=dtype)
            us = time_us(a, b, c)
            print(f"{name:5} {m:6} {n:6} {k:6} {us:10.2f} us {2 * m * n * k / us / 1e6:8.2f} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()

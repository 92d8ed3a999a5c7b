"""PyTorch's times for the operations of `benches/kernels/`, by the same loop: `kernels.py FILE CASES`.

CASES is what `kernels --list` prints: operation, type, rows and columns. Each line of FILE is one of them and its median time
in microseconds, separated by tabs.
"""

import sys

import torch

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "u32": torch.int32}
# As in `benches/kernels/`.
COLD_BYTES = 256 << 20
BATCH_US = 2000.0
BATCHES = 15
# Operations that write a tensor of the shape which they are given.
WITH_OUT = ("copy", "copy_unaligned", "fill", "transpose", "relu", "exp", "add", "axpy", "scan")


def numbers(dtype, shape):
    """Random numbers in [-1, 1), or all integers."""
    if dtype.is_floating_point:
        return torch.rand(shape, device="cuda", dtype=dtype).mul_(2).sub_(1)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, shape, device="cuda", dtype=dtype)


def operation(name, dtype, rows, columns):
    """The function of set i, how many sets there are, or None where PyTorch has no such operation."""
    n = rows * columns
    sets = max(1, min(4096, COLD_BYTES // max(1, 2 * n * dtype.itemsize)))
    shape = (sets, rows, columns)
    x = numbers(dtype, shape)
    y = numbers(dtype, shape) if name == "add" else None
    out = torch.empty(shape, device="cuda", dtype=dtype) if name in WITH_OUT else None
    if name == "axpy":
        out.zero_()
    flat, flat_out = x.view(sets, n), out.view(sets, n) if out is not None else None
    functional = torch.nn.functional
    weight = torch.ones(columns, device="cuda", dtype=dtype) if name.endswith("_norm") else None
    table = {
        "copy": lambda i: out[i].copy_(x[i]),
        "copy_unaligned": lambda i: flat_out[i][:-1].copy_(flat[i][1:]),
        "fill": lambda i: out[i].fill_(1.5),
        "transpose": lambda i: out[i].view(columns, rows).copy_(x[i].t()),
        "relu": lambda i: torch.clamp(x[i], min=0, out=out[i]),
        "gelu": lambda i: functional.gelu(x[i]),
        "exp": lambda i: torch.exp(x[i], out=out[i]),
        "add": lambda i: torch.add(x[i], y[i], out=out[i]),
        "axpy": lambda i: out[i].add_(x[i], alpha=1.5),
        "sum": lambda i: torch.sum(flat[i]),
        "max": lambda i: torch.max(flat[i]),
        "argmax": lambda i: torch.argmax(flat[i]),
        "row_sum": lambda i: torch.sum(x[i], dim=1),
        "column_sum": lambda i: torch.sum(x[i], dim=0),
        "softmax": lambda i: torch.softmax(x[i], dim=1),
        "layer_norm": lambda i: functional.layer_norm(x[i], (columns,), weight, weight),
        "rms_norm": lambda i: functional.rms_norm(x[i], (columns,), weight),
        "scan": lambda i: torch.cumsum(flat[i], 0, out=flat_out[i]),
        "sort": lambda i: torch.sort(flat[i]),
        "select_if": lambda i: flat[i][flat[i] > 0],
        "histogram": lambda i: torch.histc(flat[i], 256, -1, 1),
    }
    return table.get(name), sets


def median_us(run, sets):
    """The median time of a launch, over batches of launches between two events."""

    def batch(launches):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for i in range(launches):
            run(i % sets)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / launches

    batch(3)
    launches = max(1, min(1000, int(BATCH_US / batch(3))))
    times = sorted(batch(launches) for _ in range(BATCHES))
    return times[len(times) // 2]


def main(path, cases):
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}", file=sys.stderr)
    with open(cases) as listed, open(path, "w") as file, torch.inference_mode():
        for line in listed:
            name, dtype, rows, columns = line.split()
            try:
                run, sets = operation(name, TYPES[dtype], int(rows), int(columns))
                if run is None:
                    continue
                us = median_us(run, sets)
            except Exception as error:  # One operation that fails leaves the others their times.
                print(f"{name} {dtype} {rows} x {columns}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            finally:
                run = None
                torch.cuda.empty_cache()
            file.write(f"{name}\t{dtype}\t{rows}\t{columns}\t{us:.3f}\n")
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

"""PyTorch's times for the operations of `benches/kernels.rs`, by the same loop: `kernels.py FILE CASES`.

CASES is what `kernels --list` prints: operation, type, rows and columns. Each line of FILE is one of them and its median time
in microseconds, separated by tabs.
"""

import sys

import torch

TYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i32": torch.int32,
    "u32": torch.int32,
    "u8": torch.uint8,
    "u64": torch.int64,
}
# As in `kernels.rs`.
COLD_BYTES = 256 << 20
BATCH_US = 2000.0
BATCHES = 15


def tensors(dtype, rows, columns, sets):
    """Random numbers in [0, 1), and empty tensors of the same shape."""
    shape = (sets, rows, columns)
    if dtype.is_floating_point:
        return torch.rand(shape, device="cuda", dtype=dtype), torch.empty(shape, device="cuda", dtype=dtype)
    info = torch.iinfo(dtype)
    numbers = torch.randint(info.min, info.max, shape, device="cuda", dtype=dtype)
    return numbers, torch.empty_like(numbers)


def operation(name, dtype, rows, columns):
    """The function of set i, how many sets there are, or None where PyTorch has no such operation."""
    n = rows * columns
    sets = max(1, min(4096, COLD_BYTES // max(1, 2 * n * dtype.itemsize)))
    x, out = tensors(dtype, rows, columns, sets)
    flat, flat_out = x.view(sets, n), out.view(sets, n)
    functional = torch.nn.functional
    weight = torch.ones(columns, device="cuda", dtype=dtype) if dtype.is_floating_point else None
    table = {
        "copy": lambda i: out[i].copy_(x[i]),
        "fill": lambda i: out[i].fill_(3),
        "transpose": lambda i: out[i].view(columns, rows).copy_(x[i].t()),
        "relu": lambda i: torch.clamp(x[i], min=0, out=out[i]),
        "gelu": lambda i: functional.gelu(x[i]),
        "exp": lambda i: torch.exp(x[i], out=out[i]),
        "add": lambda i: torch.add(x[i], x[(i + 1) % sets], out=out[i]),
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
        "select": lambda i: flat[i][flat[i] > 0.5],
        "histogram": lambda i: torch.histc(flat[i].float(), 256, 0, 1),
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
    with open(cases) as listed, open(path, "w") as file:
        for line in listed:
            name, dtype, rows, columns = line.split()
            try:
                run, sets = operation(name, TYPES[dtype], int(rows), int(columns))
                if run is None:
                    continue
                us = median_us(run, sets)
            except (RuntimeError, KeyError) as error:
                print(f"{name} {dtype} {rows} x {columns}: {error}", file=sys.stderr)
                continue
            file.write(f"{name}\t{dtype}\t{rows}\t{columns}\t{us:.3f}\n")
            file.flush()
            del run
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

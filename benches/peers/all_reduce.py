"""How fast PyTorch's symmetric memory and NCCL add up bf16, captured: the sizes, the method and the lines of the bench `peer`.

    torchrun --standalone --nproc-per-node 2 all_reduce.py

One shot and two shots read peer memory by PyTorch's own kernels. NCCL is called plainly, on ordinary memory. Multicast stays off.
Then all_reduce of large arrays by NCCL in plain calls, and copies from one GPU to another.
"""

import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

CALLS = 50
REPLAYS = 21
SIZES = [1 << 10, 8 << 10, 32 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 8 << 20]
LARGE = [64 << 20, 256 << 20, 1 << 30]


def captured_us(call):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(CALLS):
            call()
    times = []
    for _ in range(REPLAYS):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begun) * 1e6 / CALLS)
    return statistics.median(times)


def plain_us(call, calls):
    times = []
    for _ in range(7):
        call()
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begun) * 1e6 / calls)
    return statistics.median(times)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    group = dist.group.WORLD.group_name

    def say(text):
        if rank == 0:
            print(text, flush=True)

    def tried(measure, *arguments):
        try:
            return f"{measure(*arguments):13.2f}"
        except Exception as error:  # A backend that does not take the size has no figure.
            say(f"# {type(error).__name__}: {str(error).splitlines()[0]}")
            return f"{'-':>13}"

    say(f"{world} ranks, {torch.cuda.get_device_name()}, torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}")
    say(f"{'bytes':>10} {'one shot us':>13} {'two shots us':>13} {'NCCL us':>13}")
    for size in SIZES:
        symmetric = symmetric_memory.empty(size // 2, dtype=torch.bfloat16, device="cuda").zero_()
        symmetric_memory.rendezvous(symmetric, group)
        plain = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
        one = tried(captured_us, lambda: torch.ops.symm_mem.one_shot_all_reduce(symmetric, "sum", group))
        two = tried(captured_us, lambda: torch.ops.symm_mem.two_shot_all_reduce_(symmetric, "sum", group))
        nccl = tried(captured_us, lambda: dist.all_reduce(plain))
        say(f"{size:>10} {one} {two} {nccl}")
    say(f"{'bytes':>10} {'NCCL GB/s':>13}")
    for size in LARGE:
        plain = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
        us = plain_us(lambda: dist.all_reduce(plain), 10)
        say(f"{size:>10} {size / us / 1e3 * 2 * (world - 1) / world:13.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

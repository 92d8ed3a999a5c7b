"""Trains models with PyTorch's allocators and with Warpsmith's allocator.

``python allocator.py`` runs each configuration in a separate process. It prints one JSON object with the losses, the
milliseconds per step, and the peak reserved memory in MiB.
"""

import json
import os
import subprocess
import sys
import time

FORMS = ("native", "expandable", "warpsmith", "warpsmith expandable", "mem_pool")
STEPS = 40


def convolutional(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
                nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
            )

        def forward(self, x):
            return torch.relu(x + self.body(x))

    layers = [nn.Conv2d(3, 64, 3, padding=1)]
    for channels in (64, 128, 256):
        layers += [Block(channels), Block(channels), nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))

    def batch(step):
        size = (64, 96, 128)[step % 3]
        return torch.randn(size, 3, 64, 64, device="cuda"), torch.randint(10, (size,), device="cuda")

    return model, batch, torch.nn.functional.cross_entropy


def transformer(torch):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True, norm_first=True)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(8000, 512)
            self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
            self.head = nn.Linear(512, 8000)

        def forward(self, x):
            return self.head(self.layers(self.embedding(x)))

    def batch(step):
        length = (256, 384, 512, 320)[step % 4]
        tokens = torch.randint(8000, (16, length), device="cuda")
        return tokens, tokens.roll(-1, 1)

    return Model(), batch, lambda out, to: torch.nn.functional.cross_entropy(out.flatten(0, 1), to.flatten())


def train(torch, make):
    torch.manual_seed(1)
    model, batch, loss_of = make(torch)
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses, times = [], []
    for step in range(STEPS):
        start = time.perf_counter()
        x, y = batch(step)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
    return {"first loss": losses[0], "last loss": losses[-1], "ms a step": sorted(times[12:])[len(times[12:]) // 2] * 1e3}


def captured(torch):
    """Captures a graph whose intermediate tensors are freed during the capture. Returns true if replays are correct."""
    x = torch.ones(1 << 20, device="cuda")
    step = lambda: ((x * 2).sin() + x).sum()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = step()
    results = []
    for value in (1.0, 2.0):
        x.fill_(value)
        graph.replay()
        kept = torch.full((1 << 20,), 7.0, device="cuda")
        results.append(torch.allclose(total, ((x * 2).sin() + x).sum()) and bool((kept == 7).all()))
    return all(results)


def side_stream(torch):
    """Frees a tensor while another stream still uses it. Returns true if the result is correct."""
    side = torch.cuda.Stream()
    x = torch.full((1 << 22,), 3.0, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        total = x.sum()
    x.record_stream(side)
    del x
    torch.full((1 << 22,), 5.0, device="cuda")
    torch.cuda.synchronize()
    return total.item() == 3.0 * (1 << 22)


def run(form):
    if form == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    elif form == "warpsmith expandable":
        os.environ["WARPSMITH_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    torch.backends.cudnn.deterministic = True
    result = {"torch": torch.__version__}
    pool = None
    if form not in ("native", "expandable"):
        import warpsmith
        import warpsmith.allocator

        if form == "mem_pool":
            pool = warpsmith.allocator.mem_pool()
        else:
            warpsmith.allocator.enable()

    def all_work():
        result["side stream"] = side_stream(torch)
        result["graph"] = captured(torch) if form != "mem_pool" else None
        for make in (convolutional, transformer):
            result[make.__name__] = train(torch, make)

    if pool:
        with torch.cuda.use_mem_pool(pool):
            all_work()
    else:
        all_work()
    if form.startswith("warpsmith"):
        statistics = warpsmith.memory_stats()
        result["peak MiB"] = statistics["reserved_bytes.all.peak"] / 2**20
        result["retries"] = statistics["num_alloc_retries"]
        result["segments in the snapshot"] = len(warpsmith.memory_snapshot()["segments"])
        try:
            torch.cuda.memory_allocated()
        except Exception as error:
            result["torch.cuda.memory_allocated"] = type(error).__name__
        try:
            torch.empty(1 << 42, device="cuda")
        except Exception as error:
            result["too large"] = f"{type(error).__name__}: {str(error)[:300]}"
    else:
        result["peak MiB"] = torch.cuda.max_memory_reserved() / 2**20
        result["retries"] = torch.cuda.memory_stats()["num_alloc_retries"]
    print(json.dumps(result))


def main():
    if len(sys.argv) > 1:
        return run(sys.argv[1])
    results = {}
    for form in FORMS:
        done = subprocess.run([sys.executable, __file__, form], capture_output=True, text=True)
        results[form] = json.loads(done.stdout) if done.returncode == 0 else done.stderr[-1500:]
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

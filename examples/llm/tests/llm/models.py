"""Writes the models and the expected results of models.rs: small random Llama and Qwen3 models, their logits, and the
tokens that they generate greedily. Needs torch, transformers and tokenizers. The command is `python3 models.py`."""

import json
import pathlib
import shutil

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

FOLDER = pathlib.Path(__file__).parent / "models"
VOCABULARY = 288
PROMPT = "A warp has 32 lanes, and each lane runs the same code."
STEPS = 200
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=512,
    bos_token_id=None,
    eos_token_id=None,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(rope_parameters=LLAMA3, tie_word_embeddings=False, **SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(tie_word_embeddings=True, **SIZES)),
}


def tokenizer():
    result = Tokenizer(models.BPE())
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    result.train_from_iterator([PROMPT] * 3, trainer)
    return result


def randomize(model, seed):
    """Random weights with which layers, attention and positions all affect the logits."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.data = torch.rand(weight.shape, generator=generator) + 0.5
        else:
            weight.data = torch.randn(weight.shape, generator=generator) / weight.shape[1] ** 0.5
    return model


def train(model, tokens, steps):
    """Teaches the model a text, so that the rounding of bf16 does not change a greedy token."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    tokens = torch.tensor([tokens])
    for _ in range(steps):
        loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.to(torch.bfloat16)


@torch.no_grad()
def generate(model, tokens):
    """Returns the new tokens, and the smallest distance between the two largest logits of a step."""
    tokens, margin, cache = list(tokens), float("inf"), None
    start, new = len(tokens), tokens
    for _ in range(STEPS):
        out = model(torch.tensor([new]), cache=cache, use_cache=True)
        cache, logits = out.cache, out.logits[0, -1].float()
        best = logits.topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        new = [best.indices[0].item()]
        tokens += new
    return tokens[start:], margin


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    torch.manual_seed(0)
    text = tokenizer()
    tokens = text.encode(PROMPT).ids
    lesson = tokens + torch.randint(VOCABULARY, (STEPS,)).tolist()
    for name, create in MODELS.items():
        model = train(randomize(create(), 1), lesson, 300).eval()
        with torch.no_grad():
            rounded = model(torch.tensor([tokens])).logits[0].float()
            model = model.float()
            logits = model(torch.tensor([tokens])).logits[0]
        error = (rounded - logits).abs().max().item()
        greedy, margin = generate(model, tokens)
        print(f"{name}: margin {margin:.3f}, error {error:.3f}, largest logit {logits.abs().max():.1f}", flush=True)
        assert margin > 4 * error
        folder = FOLDER / name
        size = "200KB" if name == "llama" else "1GB"
        model.to(torch.bfloat16).save_pretrained(folder, max_shard_size=size)
        (folder / "generation_config.json").unlink(missing_ok=True)
        text.save(str(folder / "tokenizer.json"), pretty=False)
        rows = [[round(x, 3) for x in row] for row in logits.tolist()]
        expected = dict(prompt=PROMPT, tokens=tokens, logits=rows, bf16_error=error, greedy=greedy)
        (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


main()

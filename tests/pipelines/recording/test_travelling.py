"""Saved folders in a fresh process without this package: 1,000 sentences, three libraries."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.locations import MINILM
from pipelines.recording.registry import save_flavour
from pipelines.training.dev_sets import BUILT_IN_PAIRS

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
MANY = 1_000
# Of the one with real weights: 1,000 would cost 30 s more. They were tried by hand.
MINILM_MANY = int(os.environ.get("COTBERT_TRAVEL_TEXTS", "200"))
LONG = "The longest of all sentences goes on and on " * 34
TRICKY = [
    "",
    " \n\t ",
    "a [MASK] typed, and <mask> too",
    "[MASK]",
    "<mask><mask>",
    "[PAD] <pad> </s> <s> [SEP] [CLS] [UNK] <unk> [READOUT] [X]",
    'She said "no"',
    "the dogs'",
    "' A man ' and \"two\"",
    "“curly” ‘quotes’ and «others»",
    "😀 👩‍👩‍👧 🇫🇷",
    "naïve e\u0301 ß ﬁ İ 日本語 \u200b \ufeff",
    "no-break\u00a0and\u2003wide\x1cblanks\x85",
    "nul\x00 and \x7f",
    "word" * 200,
    LONG,
    LONG.strip() + "?",
    " ".join(str(n) for n in range(300)),
    "'",
    "...",
]
# How each model is made: what is saved, and the template. The tiny ones have random weights.
MODELS = {
    "minilm": (MINILM, "cot-bert/anchor"),
    "bert": ("bert", "promptbert/manual"),
    "bert-two": ("bert", "cot-bert/anchor"),
    "roberta": ("roberta", "promptroberta/anchor"),
    "roberta-two": ("roberta", "cot-roberta/anchor"),
}
# Run where the models lie. It takes each card's own lines, and must not find this package.
ELSEWHERE = '''
import importlib.util, json, os, re, sys
OURS = ("cotbert_core", "pipelines", "tune_spaces")
sys.meta_path = [f for f in sys.meta_path if "Editable" not in getattr(f, "__name__", "")]
assert not [name for name in OURS if importlib.util.find_spec(name)], sys.path
import numpy as np
import mlflow

every_text = json.load(open("texts.json", encoding="utf-8"))

def vectors_of(code, texts):
    names = {"texts": texts}
    exec(code, names)
    return np.asarray(names["vectors"])

def in_parts(code, texts):
    """The vectors of a card's block, for parts of texts of about one length."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    parts = np.array_split(order[:-10], 5) + [order[-10:]]
    found = np.concatenate([vectors_of(code, [texts[i] for i in part]) for part in parts])
    return found[np.argsort(order)]

home = os.getcwd()
for name, many in json.loads(sys.argv[1]).items():
    texts = every_text[:many]
    os.chdir(os.path.join(home, name))
    card = open("README.md", encoding="utf-8").read()
    blocks = re.findall(r"```python\\n(.*?)```", card, re.DOTALL)
    vectors = {}
    for kind, block in zip(("sentence_transformers", "transformers"), blocks):
        assert f"from {kind} import" in block and "trust_remote_code" not in block
        code = block.replace('["One sentence.", "Another one."]', "texts")
        vectors[kind] = (in_parts if kind == "transformers" else vectors_of)(code, texts)
    os.chdir(home)
    vectors["mlflow"] = mlflow.pyfunc.load_model(name + "-mlflow").predict(texts)
    np.savez(name + ".npz", **vectors)
assert not [m for m in sys.modules if m.split(".")[0] in OURS]
'''


@pytest.fixture(scope="module")
def texts():
    """This project's graded sentences, their recombinations, and whatever is likely to go wrong."""
    with BUILT_IN_PAIRS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    plain = [row[f"sentence{side}"] for row in rows for side in (1, 2)]
    bare = [text.rstrip(".") for text in plain]
    mixed = [*TRICKY, *dict.fromkeys([*plain, *bare])]
    assert len(mixed) >= MANY
    assert any(len(text.split()) >= 300 for text in mixed)
    return mixed[:MANY]


@pytest.fixture(scope="module")
def home(tmp_path_factory, texts, bert_folder, roberta_folder):
    """The saved folders, their MLflow models, and the vectors of a process without this package."""
    from sentence_transformers import SentenceTransformer

    home = tmp_path_factory.mktemp("elsewhere")
    folders = {"bert": bert_folder, "roberta": roberta_folder}
    for name, (source, template) in MODELS.items():
        encoder = SentenceEncoder.from_pretrained(folders.get(source, source), template)
        encoder.save_pretrained(home / name)
        theirs = SentenceTransformer(str(home / name), device="cpu", local_files_only=True)
        save_flavour(theirs, home / f"{name}-mlflow")
    (home / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "TMPDIR": str(home)}
    environment["MLFLOW_TRACKING_URI"] = "sqlite:///no.db"
    command = [sys.executable, "-c", ELSEWHERE, json.dumps({n: how_many(n) for n in MODELS})]
    done = subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return home


@pytest.mark.parametrize("name", MODELS)
def test_three_libraries_give_our_vectors_without_us(home, texts, name):
    texts = texts[: how_many(name)]
    expected = SentenceEncoder.from_pretrained(home / name).encode(texts, precision="fp32")
    assert cosines(expected, np.roll(expected, 1, axis=0)).mean() < 0.99, "premise: they differ"
    with np.load(home / f"{name}.npz") as found:
        assert sorted(found) == ["mlflow", "sentence_transformers", "transformers"]
        for library, vectors in found.items():
            assert vectors.shape == expected.shape, library
            near = cosines(vectors, expected)
            assert near.min() >= 1 - 1e-6, (library, repr(texts[int(near.argmin())][:60]))


def test_nothing_but_safetensors_and_json_is_in_them(home):
    for name in MODELS:
        files = [p for d in (name, f"{name}-mlflow") for p in (home / d).rglob("*") if p.is_file()]
        kinds = {path.suffix for path in files}
        assert {".safetensors"} < kinds <= {".safetensors", ".json", ".md", ".txt", ".yaml", ""}
        assert not [path for path in files if re.search(r"pickle|\.pkl|\.bin", path.name)]


def how_many(name):
    return MINILM_MANY if name == "minilm" else MANY


def cosines(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)

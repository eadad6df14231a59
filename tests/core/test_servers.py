"""Folders under the loading rules of inference servers: right or refused, never other vectors."""

from __future__ import annotations

import csv
import json
import shutil
from functools import cache
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from made_encoders import made_encoder, save_quietly
from tokenizers import Tokenizer

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import MINILM
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.exporting.onnx_graph import write_graph
from cotbert_core.saving.lineage import CARD_FILE
from cotbert_core.templates.template_texts import Template
from tests.core import server_rules as rules

DOCS = Path(__file__).resolve().parents[2] / "docs" / "models.md"
# The rows and columns of the table in docs/models.md, which must say what is found here.
MASK, POOLED = "read at a `[MASK]`, with or without a head", "`cls` or `mean`"
HEADED, OWN = "`cls` or `mean` behind a head", "`cotbert_core` alone"
GRAPH = "`export --format onnx`"
KINDS = {
    "one mask": (MASK, {"readout": "mask", "template": "{f}/only-prefix/anchor"}),
    "two masks": (MASK, {"readout": "mask", "template": "{f}/anchor"}),
    "unit length": (MASK, {"readout": "mask", "template": "{f}/anchor", "normalize": True}),
    "tanh": (MASK, {"readout": "mask", "template": "{f}/anchor", "head": "tanh"}),
    "mean": (POOLED, {"readout": "mean"}),
    "cls": (POOLED, {"readout": "cls"}),
    "blank": (POOLED, {"readout": "mean", "blank": True, "full_stop": True}),
    "mean, unit": (POOLED, {"readout": "mean", "normalize": True, "max_length": 70}),
    "cls of a template": (POOLED, {"readout": "cls", "template": "{f}/anchor", "max_length": 70}),
    "mean of a template": (POOLED, {"readout": "mean", "template": "{f}/anchor"}),
    "cls, tanh": (HEADED, {"readout": "cls", "head": "tanh"}),
    "mean, tanh": (HEADED, {"readout": "mean", "head": "tanh", "template": "{f}/anchor"}),
    "transform": (OWN, {"readout": "mask", "template": "{f}/anchor", "head": "transform"}),
    "denoised": (OWN, {"readout": "mask", "template": "{f}/anchor", "denoise": "position"}),
}
# Each column with the rules of its backends.
SERVERS = {
    "Infinity (torch)": [rules.infinity_torch],
    "TEI (candle, Python)": [rules.tei_candle, rules.tei_python],
    "TEI (ONNX Runtime)": [rules.tei_onnx],
    "vLLM": [rules.vllm],
    "Infinity (optimum)": [rules.infinity_optimum],
    "fastembed": [rules.fastembed],
    "txtai": [rules.txtai],
}
TYPED = [
    "a typed [MASK] and <mask> too",
    "[MASK]",
    "[CLS] [SEP] [PAD] [UNK] <s> </s> <pad> <unk>",
    "so it is [READOUT] , no",
]
TEXTS = [
    *("A man is playing the guitar.", "Two dogs run", "What do you want?", 'She said "no"'),
    *(" \n", " the\tdogs \n run ", "日本語 é ß 😀", "A MAN", *TYPED),
]
LONG = "the green field " * 60


def exported(encoder, path):
    path.mkdir()
    write_graph(encoder, path)
    return path


def outcome(rule, folder, texts, expected):
    """`right`, `refused`, or the least cosine of what is neither."""
    # vLLM refuses a text that is too long, each time it is sent.
    sent = [text for text in texts if text != LONG or rule not in SERVERS["vLLM"]]
    try:
        found = rule(folder, sent)
    except rules.RefusedError:
        return "refused"
    expected = expected[: len(sent)]
    assert found.shape == expected.shape
    least = cosines(found, expected).min()
    return "right" if least >= 0.99999 else float(least)


@cache
def documented():
    """Kind of folder -> server -> the word that docs/models.md has for it."""
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| folder | Infinity"))
    table = list(takewhile(lambda line: line.startswith("|"), lines[start:]))
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def assert_as_documented(row, folder, encoder, texts):
    """On every server, by each of its backends."""
    texts = [*texts, LONG] if encoder.dimension == 32 else texts  # real weights take seconds for it
    expected = encoder.encode(texts, precision="fp32")
    for server, backends in SERVERS.items():
        found = {outcome(rule, folder, texts, expected) for rule in backends}
        assert found == {documented()[row][server]}, (row, server, found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_right_or_refused_on_every_server_as_documented(
    encoder_folder, family, kind, tmp_path
):
    row, how = KINDS[kind]
    encoder = made_encoder(encoder_folder, family, **how)
    folder = save_quietly(encoder, tmp_path / "saved")
    assert encoder.encode(TEXTS, precision="fp32").std(axis=0).mean() > 1e-2, "premise: they differ"
    assert_as_documented(row, folder, encoder, TEXTS)
    card = (folder / CARD_FILE).read_text(encoding="utf-8")
    refused = "text-embeddings-inference and vLLM refuse this folder, since" in card
    assert refused == (row != POOLED)
    assert ("cotbert export . --format onnx" in card) == (refused and kind != "denoised")


@pytest.mark.parametrize("kind", ["two masks", "mean, unit", "cls, tanh", "transform"])
def test_an_exported_graph_is_right_or_refused_as_documented(
    encoder_folder, family, kind, tmp_path
):
    pytest.importorskip("onnxruntime")
    encoder = made_encoder(encoder_folder, family, **KINDS[kind][1])
    folder = exported(encoder, tmp_path / "onnx")
    assert_as_documented(GRAPH, folder, encoder, TEXTS)


@pytest.mark.parametrize("default", ["passage: [X]", None])
def test_a_prompt_of_texts_that_infinity_would_leave_out_is_refused(
    encoder_folder, tmp_path, default
):
    backbone = load_backbone(encoder_folder)
    template = default and Template(default)
    pooling = PoolingConfig("mean", template, normalize=True, query=Template("query: [X]"))
    encoder = SentenceEncoder(backbone, pooling)
    folder = save_quietly(encoder, tmp_path / "saved")
    texts = [text for text in TEXTS if text.strip()]
    expected = encoder.encode(texts, precision="fp32")
    found = {outcome(r, folder, texts, expected) for rs in SERVERS.values() for r in rs}
    assert found == {"refused"} if default else "right" in found


def as_before(folder):
    """The folder without what makes servers stop, as it was before they were thought of."""
    config = json.loads((folder / "config.json").read_text())
    name = {"bert": "BertModel", "roberta": "RobertaModel"}[config["model_type"]]
    (folder / "config.json").write_text(json.dumps(config | {"architectures": [name]}))
    modules = json.loads((folder / "modules.json").read_text())
    if "1_Pooling" not in [module["path"] for module in modules]:
        shutil.rmtree(folder / "1_Pooling")
    special = json.loads((folder / "tokenizer_config.json").read_text())
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens([v for k, v in special.items() if k.endswith("_token")])
    backend.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("kind", ["one mask", "two masks", "tanh", "cls, tanh", "mean, tanh"])
def test_without_the_refusals_the_rules_give_wrong_vectors(encoder_folder, family, kind, tmp_path):
    encoder = made_encoder(encoder_folder, family, **KINDS[kind][1])
    folder = as_before(save_quietly(encoder, tmp_path / "saved"))
    rules_that_pool = [rules.tei_python, rules.txtai]
    if KINDS[kind][0] == HEADED:
        shutil.copytree(folder / "2_Pooling", folder / "1_Pooling")
    else:
        rules_that_pool += [rules.tei_candle, rules.vllm]
    texts = [*TEXTS, "", LONG]
    expected = encoder.encode(texts, precision="fp32")
    for rule in rules_that_pool:
        assert outcome(rule, folder, TEXTS[:4], expected) < 0.9, rule
    # It still opens where it did.
    read = [*range(len(TEXTS)), -1]
    sent = [texts[place] for place in read]
    assert outcome(rules.infinity_torch, folder, sent, expected[read]) == "right"
    found = SentenceEncoder.from_pretrained(folder).encode(texts, precision="fp32")
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", [k for k in KINDS if KINDS[k][0] != OWN])
def test_typed_special_tokens_stay_text_in_the_library_tokenizers(
    encoder_folder, family, kind, tmp_path
):
    from transformers import AutoTokenizer

    encoder = made_encoder(encoder_folder, family, **KINDS[kind][1])
    folder = save_quietly(encoder, tmp_path / "saved")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = [backend.encode(text).ids for text in TYPED]
    front, back = len(encoder.bound.before), len(encoder.bound.after)
    inner = [ids[front : len(ids) - back] for ids in found]
    assert inner == [row.tolist() for row in encoder.tokenize(TYPED)]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert found == tokenizer(TYPED)["input_ids"]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    # transformers 4 has no class of the name that version 5 writes.
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["split_special_tokens"] is True
    assert tokenizer.mask_token_id == encoder.backbone.tokenizer.hf.mask_token_id
    before = Tokenizer.from_file(str(as_before(folder) / "tokenizer.json"))
    assert [before.encode(text).ids for text in TYPED] != found, "premise: they would be special"


def test_a_unigram_vocabulary_keeps_the_special_tokens_that_it_lacks():
    from cotbert_core.saving.server_files import without_special_tokens
    from cotbert_core.templates.tokenizing import NEVER

    tokens = [{"content": c, "id": i, "special": True} for i, c in enumerate(("<s>", "[READOUT]"))]
    plain = {"content": "word", "id": 7, "special": False}
    given = {"added_tokens": [*tokens, plain], "model": {"vocab": [["<s>", 0.0], ["a", -1.0]]}}
    found = without_special_tokens(given)
    assert found["added_tokens"] == [tokens[1], plain]
    assert found["model"] == {"vocab": [["<s>", NEVER], ["a", -1.0]]}


@pytest.mark.real
@pytest.mark.parametrize(("kind", "row"), [("cot-bert/anchor", MASK), ("mean", POOLED)])
def test_real_weights_under_every_rule(kind, row, tmp_path):
    from pipelines.training.dev_sets import BUILT_IN_PAIRS

    with BUILT_IN_PAIRS.open(encoding="utf-8") as file:
        pairs = list(csv.DictReader(file, delimiter="\t"))[:5]
    texts = [*TYPED, *(pair[f"sentence{side}"] for pair in pairs for side in (1, 2))]
    how = {"readout": kind} if row == POOLED else {"template": kind}
    encoder = SentenceEncoder.from_pretrained(MINILM, **how)
    folders = {
        row: save_quietly(encoder, tmp_path / "saved"),
        GRAPH: exported(encoder, tmp_path / "onnx"),
    }
    for name, folder in folders.items():
        assert_as_documented(name, folder, encoder, texts)
    if row == MASK:
        before, expected = as_before(folders[row]), encoder.encode(texts, precision="fp32")
        assert outcome(rules.tei_candle, before, texts, expected) < 0.6
        assert outcome(rules.vllm, before, texts, expected) < 0.8

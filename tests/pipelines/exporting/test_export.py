"""Exported graphs, run as a user without torch would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import util

import numpy as np
import pytest
import torch
from made_encoders import made_encoder, save_quietly, with_encoders
from safetensors.torch import load_file
from tokenizers import AddedToken
from transformers import AutoModel, AutoTokenizer

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.encoder.mlm import fresh_mlm_head, mlm_head, with_mlm_head
from cotbert_core.encoder.pooling_files import load_pooling_config
from cotbert_core.files import read_json, write_json
from cotbert_core.saving.keyword_weights import keyword_weight, save_keyword_weights
from cotbert_core.templates.template_texts import Template
from pipelines.cli import main
from pipelines.exporting import export as job
from pipelines.exporting.export import ExportError, export, run_onnx
from pipelines.options.jobs import ExportOptions

pytestmark = pytest.mark.usefixtures("unrecorded")

READINGS = {
    "two masks": {"readout": "mask", "template": "{f}/anchor", "normalize": True},
    "tanh head": {"readout": "mask", "template": "{f}/anchor", "head": "tanh"},
    "transform head": {"readout": "mask", "template": "{f}/anchor", "head": "transform"},
    "mean": {"readout": "mean"},
    "cls of a template": {"readout": "cls", "template": "{f}/anchor", "max_length": 5},
}
TEXTS = [
    *("A man is playing the guitar.", "Two dogs run", "", " \n ", 'She said "no"', "the dogs'"),
    *("[MASK]", "<mask> and [PAD] <pad> </s> [READOUT] typed", "😀 e\u0301 ß \u00a0 日本語"),
    *("the green field " * n for n in (1, 3, 9, 100)),
]
ALONE = """
import sys
names = {}
exec(sys.stdin.read(), names)
names["np"].save("vectors.npy", names["vectors"])
heavy = {"torch", "transformers", "cotbert_core", "pipelines"} & set(sys.modules)
assert not heavy, heavy
"""


@with_encoders(
    "how", *(("bert", how) for how in READINGS), ("roberta", "two masks"), ("roberta", "mean")
)
def test_a_graph_gives_the_encoder_s_vectors(encoder_folder, family, how, tmp_path, monkeypatch):
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "InferenceSession", cache(onnxruntime.InferenceSession))
    encoder = made_encoder(encoder_folder, family, **READINGS[how])
    model = str(save_quietly(encoder, tmp_path / "model"))
    result = export(ExportOptions(model, "onnx"), tmp_path / "onnx")
    assert result["largest_difference"] <= 1e-4
    assert encoder.encode(TEXTS, precision="fp32").std(axis=0).mean() > 1e-2, "premise"
    # All, alone, in fives, and longest last: neither the batch nor its padding may matter.
    for part in (TEXTS, TEXTS[:1], TEXTS[5:10], TEXTS[::-1]):
        want = encoder.encode(part, precision="fp32")
        np.testing.assert_allclose(run_onnx(tmp_path / "onnx", part), want, atol=1e-4, rtol=0)
    assert sorted(p.name for p in (tmp_path / "onnx").iterdir()) == [
        *("1_Pooling", "README.md", "config.json", "model.onnx", "sentence_bert_config.json"),
        *("special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"),
    ]


def test_a_tokenizer_without_special_tokens_is_exported(bert_folder, tmp_path):
    """Its empty text has no tokens, and a vector of zeros."""
    shutil.copytree(bert_folder, tmp_path / "encoder")
    file = tmp_path / "encoder" / "tokenizer.json"
    write_json(file, read_json(file) | {"post_processor": None})
    result = export(ExportOptions(str(tmp_path / "encoder"), "onnx"), tmp_path / "onnx")
    assert result["largest_difference"] <= 1e-4
    assert not run_onnx(tmp_path / "onnx", ["oil", ""])[1].any()


def test_the_card_s_lines_need_neither_torch_nor_this_package(bert_folder, tmp_path, capsys):
    encoder = made_encoder(bert_folder, "cot-bert", "mask", "{f}/anchor")
    model = str(save_quietly(encoder, tmp_path / "model"))
    assert main(["export", model, "--format", "onnx", "--output", str(tmp_path / "onnx")]) == 0
    assert "largest_difference" in capsys.readouterr().out
    card = (tmp_path / "onnx" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", ALONE]
    subprocess.run(
        command, input=code, text=True, check=True, cwd=tmp_path / "onnx", env=environment
    )
    expected = encoder.encode(["One sentence.", "Another one."], precision="fp32")
    found = np.load(tmp_path / "onnx" / "vectors.npy")
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"denoise": "position"}, "denoise is 'position'.*cannot do"),
        ({"empty_blank": True}, "replaces an empty text by a blank.*method.empty_sentence=bare"),
        ({"last": ((7, 9),)}, "trained tokens at the last .*method.replaced=template"),
    ],
)
def test_what_no_graph_or_tokenizer_file_can_do_is_refused(roberta_folder, tmp_path, more, message):
    encoder = made_encoder(roberta_folder, "cot-roberta", "mask", "{f}/anchor", **more)
    model = str(save_quietly(encoder, tmp_path / "model"))
    with pytest.raises(UserError, match=message):
        export(ExportOptions(model, "onnx"), tmp_path / "onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_word_that_is_found_before_texts_change_is_refused(bert_folder, tmp_path):
    """The text before it got a full stop of its own: vectors differed by up to 1.6."""
    tokenizer = AutoTokenizer.from_pretrained(bert_folder)
    tokenizer.add_tokens([AddedToken("New York", normalized=False)])
    model = AutoModel.from_pretrained(bert_folder)
    model.resize_token_embeddings(len(tokenizer))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "encoder")
    with pytest.raises(UserError, match="has 'New York' in its vocabulary as a word that is found"):
        export(ExportOptions(str(tmp_path / "encoder"), "onnx"), tmp_path / "onnx")


@pytest.mark.parametrize(
    ("texts", "how"), [("passage: [X]", "with the prompt 'passage: '"), (None, "without a prompt")]
)
def test_the_prompt_that_only_queries_have_is_exported_apart(
    encoder_folder, tmp_path, capsys, texts, how
):
    query = Template("query: [X]")
    encoder = made_encoder(encoder_folder, "bert", "mean", texts, query=query, full_stop=False)
    model = str(save_quietly(encoder, tmp_path / "model"))
    export(ExportOptions(model, "onnx"), tmp_path / "texts")
    note = f"every text {how}; for queries, which have the prompt 'query: ', export another folder"
    assert f"{note} with --template 'query: [X]'" in capsys.readouterr().err
    export(ExportOptions(model, "onnx", template="query: [X]"), tmp_path / "queries")
    assert "prompt" not in capsys.readouterr().err
    for folder, reader in (("texts", encoder), ("queries", encoder.for_queries)):
        some = [*TEXTS[:3], "query: oil", "passage: oil"]
        want = reader.encode(some, precision="fp32")
        np.testing.assert_allclose(run_onnx(tmp_path / folder, some), want, atol=1e-4, rtol=0)


def test_a_graph_that_differs_is_not_left_behind(bert_folder, tmp_path, monkeypatch):
    off = lambda folder, texts: run_onnx(folder, texts) + 2e-4  # noqa: E731
    monkeypatch.setattr(job, "run_onnx", off)
    with pytest.raises(ExportError, match=r"differs from the encoder by 0\.0002"):
        export(ExportOptions(bert_folder, "onnx"), tmp_path / "onnx")
    assert not list(tmp_path.iterdir())


def test_a_taken_output_and_a_missing_extra(bert_folder, tmp_path, monkeypatch):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("mine")
    with pytest.raises(UserError, match="already holds something"):
        export(ExportOptions(bert_folder, "onnx"), tmp_path / "taken")
    for present, missing in (("", "onnx and onnxruntime"), ("onnxruntime", "onnx")):
        monkeypatch.setattr(util, "find_spec", lambda name, there=present: name == there or None)
        with pytest.raises(UserError, match=f"needs {missing}: install with pip install 'onnx>"):
            export(ExportOptions(bert_folder, "onnx"), tmp_path / "onnx")


def pickle_weights(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def test_a_pickle_becomes_a_folder_of_safetensors(bert_folder, sentences, tmp_path, capsys):
    encoder = made_encoder(bert_folder, "cot-bert", "mean")
    old = tmp_path / "old"
    encoder.save_pretrained(old)
    pickle_weights(old)
    words = ["export", str(old), "--format", "folder", "--output", str(tmp_path / "new")]
    assert main(words) == 2
    assert "--allow-pickle" in capsys.readouterr().err
    assert main([*words, "--allow-pickle"]) == 0
    again = SentenceEncoder.from_pretrained(tmp_path / "new")
    found = again.encode(sentences, precision="fp32")
    assert np.array_equal(found, encoder.encode(sentences, precision="fp32"))


@pytest.mark.parametrize("language_model", [True, False])
def test_a_pickle_without_pooling_keeps_its_head_and_names_no_pooling(
    encoder_folder, language_model, tmp_path
):
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(encoder_folder, old)
    backbone = load_backbone(encoder_folder)
    if language_model:
        with_mlm_head(
            load_backbone(encoder_folder).model, fresh_mlm_head(backbone)
        ).save_pretrained(old)
    pickle_weights(old)
    weights = torch.load(old / "pytorch_model.bin")
    export(ExportOptions(str(old), "folder", allow_pickle=True), new)
    found = load_file(new / "model.safetensors")
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert mlm_head(load_backbone(str(new))).fresh is not language_model
    assert load_pooling_config(str(new)) == {}
    assert load_tokenizer(str(new)).json == backbone.tokenizer.json


def test_a_folder_keeps_its_card_and_its_weight_of_keywords(bert_folder, tmp_path):
    model = tmp_path / "model"
    save_quietly(made_encoder(bert_folder, "cot-bert", "mask", "{f}/anchor"), model)
    card = b"trained on a corpus of caf\xe9s\r\n"  # whatever the user made of it
    (model / "README.md").write_bytes(card)
    save_keyword_weights(model, 0.7)
    export(ExportOptions(str(model), "folder"), tmp_path / "same")
    assert (tmp_path / "same" / "README.md").read_bytes() == card
    assert keyword_weight(str(tmp_path / "same"), passages=False) == 0.7
    export(ExportOptions(str(model), "folder", readout="mean"), tmp_path / "other")
    assert "trained on a corpus" not in (tmp_path / "other" / "README.md").read_text()
    assert not (tmp_path / "other" / "search.json").exists()


def test_an_exported_graph_is_not_an_encoder(roberta_folder, tmp_path):
    export(ExportOptions(roberta_folder, "onnx"), tmp_path / "onnx")
    with pytest.raises(UserError, match=r"is an ONNX export, which .*: give the model that it was"):
        SentenceEncoder.from_pretrained(tmp_path / "onnx")


def test_a_folder_that_other_libraries_refuse_is_exported_with_a_warning(
    roberta_folder, tmp_path, capfd
):
    encoder = made_encoder(roberta_folder, "cot-roberta", "mask", "{f}/anchor", denoise="position")
    model = str(save_quietly(encoder, tmp_path / "model"))
    assert main(["export", model, "--format", "folder", "--output", str(tmp_path / "same")]) == 0
    shown = capfd.readouterr().err
    assert "warning: only cotbert_core.SentenceEncoder can open the saved folder, be" in shown
    assert "UserWarning" not in shown


def test_a_folder_with_an_int8_graph_is_exported_without_it(bert_folder, tmp_path, capsys):
    """Nor does the card of the new folder describe the graph."""
    model = save_quietly(made_encoder(bert_folder, "bert", "mean"), tmp_path / "model")
    with (model / "README.md").open("a") as card:
        card.write("\nMy own line.\n\n## int8\n\n`int8/` holds a graph.\n")
    (model / "int8").mkdir()
    note = f"note: the int8 graph of {model} is not exported"
    for kind in ("folder", "onnx"):
        export(ExportOptions(str(model), kind), tmp_path / kind)
        assert note in capsys.readouterr().err
        assert not (tmp_path / kind / "int8").exists()
    assert (tmp_path / "folder" / "README.md").read_text().endswith("\nMy own line.\n")
    export(ExportOptions(str(tmp_path / "folder"), "folder"), tmp_path / "again")
    assert "int8" not in capsys.readouterr().err

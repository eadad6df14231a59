"""cotbert merge: a model folder of two, which opens everywhere."""

from __future__ import annotations

import errno
import json
import os
import shutil
import warnings
from contextlib import nullcontext
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.heads import TanhHead
from cotbert_core.encoder.mlm import load_mlm_head
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.prompts import prompt_template
from cotbert_core.errors import UserError
from cotbert_core.saving.training_metadata import TrainingMetadata
from cotbert_core.templates.template_texts import resolve_template
from pipelines.adapting import merging
from pipelines.adapting.merging import merge
from pipelines.cli import main
from pipelines.recording import tracking


@pytest.fixture
def recorded(monkeypatch):
    """The settings of the MLflow runs, which are not sent."""
    runs, run = [], nullcontext(tracking.Run(None, None))
    monkeypatch.setattr(tracking, "tracked_run", lambda *given, **_: runs.append(given) or run)
    return runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory, bert_folder):
    """A model folder with two masks, and so a row [READOUT], and a head of its own."""
    torch.manual_seed(1)
    backbone = load_backbone(bert_folder)
    with torch.no_grad():
        for weight in backbone.model.parameters():
            weight += 0.05 * torch.randn(weight.shape)
    template = resolve_template("cot-bert/anchor")
    pooling = PoolingConfig("mask", template, full_stop=True, head="tanh", method="cot-bert")
    folder = tmp_path_factory.mktemp("runs") / "mine" / "model"
    head = TanhHead(backbone.model.config).eval()
    data = TrainingMetadata({"source": "`tickets.csv`", "sentences": "1,234"})
    SentenceEncoder(backbone, pooling, head).save_pretrained(folder, data)
    return str(folder)


def test_the_folder_is_the_second_s_with_averaged_weights(
    recorded, tmp_path, bert_folder, trained, sentences, capsys
):
    words = ["merge", bert_folder, trained, "--weight", "0.25", "--output", str(tmp_path / "m")]
    assert main(words) == 0
    merged, second = map(SentenceEncoder.from_pretrained, (tmp_path / "m", trained))
    assert merged.pooling == second.pooling
    first = load_backbone(bert_folder).model.state_dict()
    name = "encoder.layer.1.output.dense.weight"
    both = first[name], second.backbone.model.state_dict()[name]
    expected = 0.75 * both[0] + 0.25 * both[1]
    torch.testing.assert_close(merged.backbone.model.state_dict()[name], expected)
    ((kind, params),) = recorded
    assert (kind, params["weight"]) == ("merge", 0.25)
    result = json.loads((tmp_path / "m" / "result.json").read_text())
    assert (result["weight"], result["readout"]) == (0.25, "mask")
    card = (tmp_path / "m" / "README.md").read_text()
    assert "0.75 of " in card
    assert "0.25 of `mine`" in card
    assert "| source | `tickets.csv` |\n| sentences | 1,234 |" in card
    assert str(tmp_path) not in card
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(tmp_path / "m"), device="cpu").encode(sentences)
    np.testing.assert_allclose(theirs, merged.encode(sentences, precision="fp32"), atol=1e-5)


def test_a_merged_model_is_merged_and_read_again(tmp_path, bert_folder, trained, capsys):
    merge(bert_folder, trained, 0.5, tmp_path / "m")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = merge(tmp_path / "m", trained, np.float32(0.5), tmp_path / "again")
    assert (result["first"], result["weight"]) == (str(tmp_path / "m"), 0.5)
    assert "warning" not in capsys.readouterr().err


def test_an_average_with_an_int8_graph_is_noted_to_have_none(
    tmp_path, bert_folder, trained, capsys
):
    shutil.copytree(trained, tmp_path / "fast")
    (tmp_path / "fast" / "int8").mkdir()
    merge(bert_folder, str(tmp_path / "fast"), 0.5, tmp_path / "m")
    assert "note: the average has no int8 graph: `cotbert quantize` " in capsys.readouterr().err
    assert not (tmp_path / "m" / "int8").exists()


def test_a_disk_that_is_full_at_the_result_leaves_no_folder(
    tmp_path, bert_folder, trained, monkeypatch
):
    with monkeypatch.context() as patch:
        full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        patch.setattr(merging, "write_json", full)
        with pytest.raises(OSError, match="No space left"):
            merge(bert_folder, trained, 0.5, tmp_path / "m")
    assert not list(tmp_path.iterdir())
    assert merge(bert_folder, trained, 0.5, tmp_path / "m")["dimension"] == 32


def test_different_prompts_are_noted(tmp_path, bert_folder, trained, capsys):
    backbone = load_backbone(bert_folder)
    text, query, other = map(prompt_template, ("a: ", "q: ", "find: "))
    for name, prompts in {"e5": (text, query), "bge": (None, other)}.items():
        pooling = PoolingConfig("mean", prompts[0], query=prompts[1])
        SentenceEncoder(backbone, pooling).save_pretrained(tmp_path / name)
    e5, bge = str(tmp_path / "e5"), str(tmp_path / "bge")
    capsys.readouterr()
    merge(e5, bge, 0.5, tmp_path / "m")
    assert (
        f"note: {e5!r} expects 'a: ' before texts and 'q: ' before queries, {bge!r} expects '' and "
        "'find: ': the average has the prompts of the second\n"
    ) in capsys.readouterr().err
    merge(e5, str(shutil.copytree(e5, tmp_path / "copy")), 0.5, tmp_path / "same")
    merge(e5, trained, 0.5, tmp_path / "masked")  # which is read at a mask, without prompts
    assert "note" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("second", "weight", "message"),
    [
        ("roberta", "0.5", "model_type is 'bert' in the encoder"),
        ("bert", "1.5", "weight is 1.5: give B's share, a number from 0 to 1"),
        ("bert", "nan", "weight is nan: give B's share"),
        ("/no/such", "0.5", "encoder folder '/no/such' does not exist"),
    ],
)
def test_mistakes_end_with_status_2(
    recorded, tmp_path, capsys, bert_folder, roberta_folder, second, weight, message
):
    name = {"roberta": roberta_folder, "bert": bert_folder}.get(second, second)
    words = ["merge", bert_folder, name, "--weight", weight, "--output", str(tmp_path / "m")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_another_tokenizer_is_refused(tmp_path, bert_folder):
    """The same vocabulary size, but the case is kept: the rows mean other tokens."""
    other = shutil.copytree(bert_folder, tmp_path / "cased")
    text = (other / "tokenizer.json").read_text()
    assert '"lowercase": true' in text
    (other / "tokenizer.json").write_text(text.replace('"lowercase": true', '"lowercase": false'))
    with pytest.raises(UserError, match="have different tokenizers"):
        merge(bert_folder, str(other), 0.5, tmp_path / "m")


def test_a_masked_language_model_head_is_not_merged(tmp_path, bert_folder, with_mlm_head):
    folder = with_mlm_head(bert_folder, tmp_path / "pretrained")
    assert load_mlm_head(load_backbone(folder)), "premise"
    merge(folder, folder, 0.5, tmp_path / "merged")
    with pytest.raises(UserError, match="has no masked-language-model head"):
        load_mlm_head(load_backbone(str(tmp_path / "merged")))

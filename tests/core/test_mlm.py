"""The masked-language-model head against BertForMaskedLM and RobertaForMaskedLM themselves."""

from __future__ import annotations

import io
import logging
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

from cotbert_core import UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.mlm import fresh_mlm_head, load_mlm_head, mlm_head
from cotbert_core.encoder.pretrained import no_loading_report


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def tied(request):
    return request.param


@pytest.fixture
def head_folder(encoder_folder, tmp_path, tied, with_mlm_head):
    return with_mlm_head(encoder_folder, tmp_path, tied=tied, noise=0.1)


def words_of(backbone):
    return backbone.model.embeddings.word_embeddings.weight


@pytest.mark.parametrize("make", [load_mlm_head, mlm_head])
def test_logits_are_those_of_the_whole_model(head_folder, tied, make):
    backbone = load_backbone(head_folder)
    head = make(backbone)
    words = words_of(backbone)
    assert (head.fresh, head.weight is words) == (False, tied)
    assert tied or (head.weight - words).abs().max() > 0.1
    ids = torch.randint(5, 60, (3, 9))
    with torch.no_grad():
        hidden = backbone.model(input_ids=ids).last_hidden_state
        logits = head(hidden)
        whole = AutoModelForMaskedLM.from_pretrained(head_folder).eval()
        expected = whole(input_ids=ids).logits
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
        fresh = fresh_mlm_head(backbone)(hidden)
    assert logits.shape == (3, 9, len(words_of(backbone)))
    assert (fresh - expected).abs().max() > 0.5, "the checkpoint's weights matter"


@pytest.mark.parametrize("make", [load_mlm_head, fresh_mlm_head])
@pytest.mark.parametrize("tied", [True], indirect=True)
def test_tied_weights_stay_one_when_moved_and_get_both_gradients(head_folder, make):
    backbone = load_backbone(head_folder)
    head = make(backbone)
    backbone.model.double()
    head.double()
    words = words_of(backbone)
    assert head.weight is words
    assert head.weight.dtype is torch.float64
    both = torch.nn.ModuleList([backbone.model, head])
    assert sum(p is words for p in both.parameters()) == 1

    ids = torch.tensor([[7, 8, 9]])
    head(backbone.model(input_ids=ids).last_hidden_state).logsumexp(-1).sum().backward()
    used, unused = words.grad[[7, 8, 9]].abs().sum(), words.grad[20:].abs().sum()
    assert used > 0
    assert unused > 0, "a word that is not read has its gradient from the output layer"


def test_fresh_heads_begin_small_and_say_so(encoder_folder):
    backbone = load_backbone(encoder_folder)
    torch.manual_seed(2)
    head = fresh_mlm_head(backbone)
    assert head.fresh
    assert head.dense.weight.std().item() == pytest.approx(0.02, rel=0.1)
    for bias in (head.dense.bias, head.norm.bias, head.decoder.bias):
        assert not bias.any()
    assert head.norm.eps == backbone.model.config.layer_norm_eps
    assert {id(p) for p in head.parameters()} == {
        *map(id, head.dense.parameters()),
        *map(id, head.norm.parameters()),
        id(words_of(backbone)),
        id(head.decoder.bias),
    }


def test_a_checkpoint_without_a_head_is_refused(encoder_folder):
    backbone = load_backbone(encoder_folder)
    message = f"checkpoint of encoder '{encoder_folder}' has no masked-language-model head"
    with pytest.raises(UserError, match=message):
        load_mlm_head(backbone)
    assert mlm_head(backbone).fresh


def test_transformers_table_of_missing_weights_stays_hidden(encoder_folder, tmp_path):
    """A folder that no other test has opened, since a copy of an opened model is not reported."""
    folder = shutil.copytree(encoder_folder, tmp_path / "folder")
    weights = load_file(folder / "model.safetensors")
    kept = {name: w for name, w in weights.items() if not name.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    logger = logging.getLogger("transformers")
    handler = logging.StreamHandler(said := io.StringIO())
    logger.addHandler(handler)
    try:
        backbone = load_backbone(str(folder))
        with pytest.raises(UserError, match="no masked-language-model head"):
            load_mlm_head(backbone)
        assert said.getvalue() == ""
        AutoModel.from_pretrained(folder)
        assert "LOAD REPORT" in said.getvalue(), "it is hidden no longer than needed"
    finally:
        logger.removeHandler(handler)


def test_no_level_of_logging_changes_which_would_clear_the_caches_of_all_loggers():
    before = logging.getLogger("transformers").level
    with no_loading_report():
        assert logging.getLogger("transformers").level == before


def test_a_checkpoint_with_half_a_head_is_refused(encoder_folder, tmp_path):
    """Such as one whose transform was lost: random numbers must not stand in for it."""
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(encoder_folder))
    lost = ("transform.dense.bias", "lm_head.dense.bias")
    kept = {k: v for k, v in model.state_dict().items() if not k.endswith(lost)}
    model.save_pretrained(tmp_path, state_dict=kept)
    AutoTokenizer.from_pretrained(encoder_folder).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has no masked-language-model head"):
        load_mlm_head(load_backbone(str(tmp_path)))


@pytest.mark.parametrize("make", [load_mlm_head, fresh_mlm_head, mlm_head])
def test_other_families_are_refused(bert_folder, make):
    backbone = load_backbone(bert_folder)
    backbone.model.config.model_type = "mpnet"
    with pytest.raises(UserError, match=r"family 'mpnet', whose .* bert, roberta"):
        make(backbone)

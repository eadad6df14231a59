"""Rows around sentences: the template whole, one read position per row, masks counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.errors import UserError
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.template_texts import Template, resolve_template
from cotbert_core.templates.wrapping import BoundTemplate, concatenate_rows

# By number of masks, and with the mask before the slot; quotes as the backbone wants them.
TEMPLATES = {
    "k=1": "This sentence of {x} means [MASK] .",
    "k=2": "The sentence of {x} means [MASK] , so it can be summarized as [MASK] .",
    "k=3": "[MASK] : {x} means [MASK] , so it is [MASK] .",
    "before": "The word [MASK] means {x} .",
}
TYPED = "a [MASK] and <mask> [PAD] <pad> </s> [SEP] b"


@pytest.fixture
def tokenizer(encoder_folder):
    return load_tokenizer(encoder_folder)


@pytest.fixture(params=TEMPLATES)
def template(request, family):
    slot = "' [X] '" if family == "cot-roberta" else '"[X]"'
    return Template(TEMPLATES[request.param].format(x=slot))


@pytest.fixture
def bound(template, tokenizer):
    return BoundTemplate.bind(template, tokenizer.hf)


def test_mask_position_is_found_per_row(bound, tokenizer, sentences):
    sentences = [*sentences, TYPED, "", "a " * 40]
    rows = bound.wrap(tokenizer(sentences, 32))
    slow = []
    for row in rows.ids.tolist():
        places = [j for j, token in enumerate(row) if token == bound.mask_id]
        assert len(places) == bound.stages
        slow.append(places[-1])
    assert rows.readout.tolist() == slow
    if bound.mask_id in bound.after:
        assert len(set(slow)) > 1, "premise: rows of different lengths read at different places"


def test_the_sentence_is_cut_and_the_template_is_not(bound, tokenizer):
    long = "the man " * 50
    whole = tokenizer([long], 1000)
    assert whole.lengths[0] > 32, "premise"
    row, empty = bound.wrap(tokenizer([long, ""], 32)).ids.tolist()
    assert row == [*bound.before, *whole[0][:32].tolist(), *bound.after]
    assert empty[: bound.length] == [*bound.before, *bound.after]


def test_typed_special_tokens_stay_plain_text(bound, tokenizer):
    special = set(tokenizer.hf.all_special_ids) - {tokenizer.hf.unk_token_id}
    by_default = tokenizer.hf.encode(TYPED, add_special_tokens=False)
    assert special & set(by_default), "premise: the tokenizer alone would make special tokens"
    inside = tokenizer([TYPED], 1000)
    assert not special & set(inside.flat.tolist())
    assert (bound.wrap(inside).ids == bound.mask_id).sum() == bound.stages


def test_a_mask_id_in_the_sentence_raises_and_names_the_row(bound):
    ids = Ragged.from_lists([[7, 8], [9], [7, bound.mask_id, 8]])
    with pytest.raises(UserError, match=f"row 2 has {bound.stages + 1} mask tokens"):
        bound.wrap(ids)


def test_padding_holds_pads_alone_and_is_not_attended(bound):
    rows = bound.wrap(Ragged.from_lists([[7, 8, 9, 10], [7], []]))
    assert rows.lengths.tolist() == [bound.length + n for n in (4, 1, 0)]
    for row, length in zip(rows.ids.tolist(), rows.lengths.tolist(), strict=True):
        assert row[length:] == [bound.pad_id] * (len(row) - length)
        assert bound.pad_id not in row[:length]


def test_wrap_pads_puts_attended_pads_in_the_slot(bound):
    rows = bound.wrap_pads(np.array([3, 0]))
    assert rows.ids[0].tolist() == [*bound.before, *[bound.pad_id] * 3, *bound.after]
    assert rows.lengths.tolist() == [bound.length + 3, bound.length]
    assert (rows.ids[range(2), rows.readout] == bound.mask_id).all()


def test_a_template_needs_a_mask_token(tokenizer):
    tokenizer.hf.mask_token = None
    with pytest.raises(UserError, match="or read the mean, without a template"):
        BoundTemplate.bind(resolve_template("denosent"), tokenizer.hf)
    assert BoundTemplate.bind(None, tokenizer.hf).stages == 0


def test_concatenated_rows_keep_ids_positions_and_readouts(bound):
    short, long = bound.wrap_pads(np.array([0])), bound.wrap_pads(np.array([5, 2]))
    shifted = type(short)(short.ids, short.lengths, short.readout, torch.arange(bound.length)[None])
    both = concatenate_rows([shifted, long], bound.pad_id)
    assert both.positions is not None
    assert both.ids.shape == both.positions.shape == (3, bound.length + 5)
    assert both.ids[0, : bound.length].tolist() == short.ids[0].tolist()
    assert both.positions[1].tolist() == list(range(bound.length + 5))
    assert both.readout.tolist() == [*short.readout.tolist(), *long.readout.tolist()]
    assert concatenate_rows([short, long], bound.pad_id).positions is None

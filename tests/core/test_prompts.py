"""Prompts before sentences, against sentence-transformers' own encoding of the same folder."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer

from benchmarks.method_table import BARE
from cotbert_core import SentenceEncoder, Template, UserError
from cotbert_core.encoder import backbone, prompts
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import (
    own_prompt,
    query_template,
    resolve_pooling_config,
    unread_notes,
    unused_prompts,
)
from cotbert_core.encoder.pretrained import no_loading_report
from cotbert_core.files import read_json, write_json
from cotbert_core.methods import build_method
from cotbert_core.readouts import build_features
from cotbert_core.readouts.options import FeatureOptions
from cotbert_core.settings import TrainSettings, override
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch

PROMPTS = {"query": "query: ", "document": "it's a man: "}
# The last one is longer than the limit of the folder, which counts the prompt's tokens too.
TEXTS = ["A man is playing the guitar.", "oil", "Two dogs run", "the sentence " * 40]


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory):
    """Save an encoder with prompts as sentence-transformers does, once for the same arguments;
    return the folder, which tests leave as it is."""

    @cache
    def save(encoder_folder, default, prompts, limit, pooling):
        with no_loading_report():
            first = Transformer(encoder_folder, max_seq_length=limit)
            modules = [first, Pooling(32, pooling_mode="mean", **dict(pooling)), Normalize()]
            model = SentenceTransformer(modules=modules, prompts=dict(prompts), device="cpu")
        model.default_prompt_name = default
        folder = tmp_path_factory.mktemp("prompted")
        model.save(str(folder), create_model_card=False)
        return folder

    return save


@pytest.fixture
def prompted(encoder_folder, saved_once, tmp_path):
    """Make a folder of the test's own as sentence-transformers saves the encoder; return it."""

    def make(default="document", prompts=PROMPTS, limit=24, name="prompted", **pooling):
        given = (tuple(prompts.items()), limit, tuple(pooling.items()))
        saved = saved_once(encoder_folder, default, *given)
        return str(shutil.copytree(saved, tmp_path / name))

    return make


def theirs(folder, texts=TEXTS, **options):
    return SentenceTransformer(folder, device="cpu").encode(texts, **options)


def ours(folder, texts=TEXTS, **reading):
    encoder = SentenceEncoder.from_pretrained(folder, **reading)
    return encoder.encode(texts, precision="fp32")


def test_the_default_prompt_precedes_every_sentence(prompted):
    folder = prompted()
    np.testing.assert_allclose(ours(folder), theirs(folder), atol=1e-6)
    assert np.abs(ours(folder) - theirs(folder, prompt="")).max() > 0.01, "the prompt matters"
    for none in (ours(prompted(None, name="none")), ours(folder, TEXTS[:3], template="[X]")):
        alone = theirs(folder, TEXTS[: len(none)], prompt="")
        np.testing.assert_allclose(none, alone, atol=1e-6)


def test_a_folder_is_read_in_lower_case_or_refused(prompted):
    folder = prompted()
    file = Path(folder, "sentence_bert_config.json")
    write_json(file, {**read_json(file), "do_lower_case": True})
    if Tokenizer.from_file(f"{folder}/tokenizer.json").normalizer is None:  # RoBERTa's
        with pytest.raises(UserError, match=r"do_lower_case in .* keeps capital letters"):
            ours(folder)
    else:
        np.testing.assert_allclose(ours(folder), theirs(folder), atol=1e-6)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])
def test_a_limit_in_an_older_file_is_read(prompted, family):
    """sentence-transformers before 2.0 named the file after the family."""
    folder = prompted()
    before = ours(folder)
    Path(folder, "sentence_bert_config.json").write_text("{}")
    write_json(Path(folder, f"sentence_{family}_config.json"), {"max_seq_length": 12})
    np.testing.assert_allclose(ours(folder), theirs(folder), atol=1e-6)
    assert np.abs(ours(folder) - before).max() > 0.01, "the limit matters"


@pytest.mark.parametrize(
    "passed",
    [
        {"tokenizer_args": {"model_max_length": 12}},
        {"processing_kwargs": {"text": {"max_length": 12}}},
        {"config_kwargs": {"num_hidden_layers": 1}},
    ],
)
def test_what_a_folder_passes_on_to_transformers_is_refused(prompted, passed):
    folder = prompted()
    file = Path(folder, "sentence_bert_config.json")
    write_json(file, {**read_json(file), **passed})
    with pytest.raises(UserError, match=rf"sets {next(iter(passed))}, which is not supported"):
        ours(folder)


def test_the_tokenizer_is_loaded_once_for_the_encoder_and_its_prompt(prompted, monkeypatch):
    folder, loaded = prompted(), []
    real = backbone.load_tokenizer
    for module in (backbone, prompts):
        monkeypatch.setattr(module, "load_tokenizer", lambda n: loaded.append(n) or real(n))
    assert SentenceEncoder.from_pretrained(folder).pooling.template is not None
    assert loaded == [folder]


def test_a_prompt_that_is_given_replaces_the_default_one(prompted):
    """The folder's pooling and unit length stay; a limit without the prompt is the sentence's."""
    folder = prompted()
    given = ours(folder, TEXTS[:3], template="query: [X]")
    np.testing.assert_allclose(given, theirs(folder, TEXTS[:3], prompt_name="query"), atol=1e-6)
    pooling = resolve_pooling_config(folder, "query: [X]")
    assert (pooling.readout, pooling.normalize, pooling.full_stop) == ("mean", True, False)
    own, cls = resolve_pooling_config(folder), resolve_pooling_config(folder, readout="cls")
    assert cls == replace(own, readout="cls", normalize=False), "a readout leaves the prompts"
    cls = resolve_pooling_config(folder, "query: [X]", "cls")
    assert (cls.readout, cls.normalize, cls.template) == ("cls", False, Template("query: [X]"))
    masked = resolve_pooling_config(folder, "query: [X] [MASK]")
    assert (masked.readout, masked.full_stop) == ("mask", True)


def test_a_saved_folder_keeps_the_prompt_for_every_library(prompted, tmp_path):
    folder, saved = prompted(prompts={"document": PROMPTS["document"]}), str(tmp_path / "saved")
    SentenceEncoder.from_pretrained(folder).save_pretrained(saved)
    for vectors in (ours(saved), theirs(saved)):
        np.testing.assert_allclose(vectors, theirs(folder), atol=1e-6)
    assert "it's a man: [X]" in (tmp_path / "saved" / "README.md").read_text()


@pytest.mark.parametrize("default", [None, "document"])
def test_a_saved_folder_keeps_the_prompt_for_queries(prompted, tmp_path, default):
    """sentence-transformers puts both before the text, so the tokenizer adds neither."""
    folder, saved = prompted(default), tmp_path / "saved"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SentenceEncoder.from_pretrained(folder).save_pretrained(saved)
    again = SentenceEncoder.from_pretrained(saved)
    if own := again.pooling.template:
        assert resolve_pooling_config(str(saved), own) == again.pooling, "as before it was saved"
        assert resolve_pooling_config(folder, own).query == again.pooling.query
    np.testing.assert_allclose(again.encode(TEXTS, precision="fp32"), theirs(folder), atol=1e-6)
    queries = theirs(folder, TEXTS, prompt_name="query")
    found = again.for_queries.encode(TEXTS, precision="fp32")
    np.testing.assert_allclose(found, queries, atol=1e-6)
    assert np.abs(queries - theirs(folder)).max() > 0.01, "premise"
    card = (saved / "README.md").read_text()
    assert "| template of queries | `query: [X]` |" in card
    assert caught == []
    np.testing.assert_allclose(theirs(str(saved)), theirs(folder), atol=1e-6)
    by_them = theirs(str(saved), TEXTS, prompt_name="query")
    np.testing.assert_allclose(by_them, queries, atol=1e-6)
    assert "`model.encode_query`" in card
    assert ("With transformers:" in card) == (default is None)
    refused = "refuse this folder, since its texts have another prompt than its queries" in card
    assert refused == (default is not None)


def test_a_trained_folder_puts_a_blank_before_all_but_prompts(prompted, tmp_path):
    """For a byte-level tokenizer, whose training texts have one."""
    one = SentenceEncoder.from_pretrained(prompted(None))
    texts = [*TEXTS, "", "query", "querying: oil", "query  oil"]
    trained = SentenceEncoder(one.backbone, replace(one.pooling, blank=True))
    trained.save_pretrained(tmp_path / "trained")
    vectors = trained.encode(texts, precision="fp32")
    np.testing.assert_allclose(theirs(str(tmp_path / "trained"), texts), vectors, atol=1e-6)
    changed = np.abs(one.encode(texts, precision="fp32") - vectors).max(axis=1) > 1e-3
    byte_level = one.backbone.tokenizer.byte_level
    assert changed.tolist() == [byte_level and bool(text) for text in texts]
    by_them = theirs(str(tmp_path / "trained"), TEXTS, prompt_name="query")
    ours_now = trained.for_queries.encode(TEXTS, precision="fp32")
    np.testing.assert_allclose(by_them[:3], ours_now[:3], atol=1e-6)
    if byte_level:
        spaced = replace(one.pooling, query=Template("a  query: [X]"))
        refused = SentenceEncoder(one.backbone, spaced).saved().not_carried
        assert refused == "a prompt has white space that its tokenizer folds"


def test_an_empty_text_after_a_prompt_gets_no_full_stop(prompted, tmp_path):
    one = SentenceEncoder.from_pretrained(prompted())
    stopped = SentenceEncoder(one.backbone, replace(one.pooling, full_stop=True))
    stopped.save_pretrained(tmp_path / "saved")
    texts = ["", "oil", "oil?", "it's a man"]
    for encoder, name in ((stopped, "document"), (stopped.for_queries, "query")):
        found = theirs(str(tmp_path / "saved"), texts, prompt_name=name)
        np.testing.assert_allclose(found, encoder.encode(texts, precision="fp32"), atol=1e-6)


@pytest.mark.parametrize("name", ["simcse", "denosent", "tsdae"])
def test_methods_without_a_mask_train_and_read_with_the_encoders_prompt(prompted, tmp_path, name):
    own = {"method.name": name, "method.readout": "mean"}
    settings = override(TrainSettings(encoder=prompted()), {**BARE, **own})
    method = build_method(load_backbone(settings.encoder), settings)
    bound = method.anchor if name == "denosent" else method.bare
    tokens = method.backbone.tokenizer(["it's a man:"], None, in_template=False).flat.tolist()
    row = bound.wrap(Ragged.from_lists([[7, 8]])).ids[0].tolist()
    assert row[1:-1] == [*tokens, 7, 8]
    assert method.pooling.template == Template("it's a man: [X]")
    assert method.pooling.max_length == 22 - len(tokens)
    method.sentence_encoder.save_pretrained(tmp_path / "trained")
    assert own_prompt(str(tmp_path / "trained")) == method.pooling.template


@pytest.mark.parametrize("name", ["simcse", "denosent"])
def test_an_anchor_is_read_as_a_query_if_its_positive_is_another_text(prompted, name):
    reading = {"method.readout": "mean", "dropout": 0.0, "precision": "fp32"}
    reading |= {"method.projected": False} if name == "denosent" else {}
    settings = override(
        TrainSettings(encoder=prompted()),
        {**BARE, **reading, "method.name": name, "method.positive": "rest"},
    )
    method = build_method(load_backbone(settings.encoder), settings)
    assert method.pooling.query == Template("query: [X]")
    encoder, texts = method.sentence_encoder, TEXTS[:3]
    rows = [encoder.tokenize(some) for some in (texts, texts[::-1])]
    seen = []
    method.contrast = lambda vectors, documents: seen.extend(vectors) or vectors[0].sum()
    method.head = torch.nn.Identity()
    method.eval()(Batch(rows[0], augmented=rows[1]))
    queries, others = (
        torch.from_numpy(one.encode(some, normalize=False, precision="fp32"))
        for one, some in ((encoder.for_queries, texts), (encoder, texts[::-1]))
    )
    torch.testing.assert_close(seen[0].detach(), queries, atol=1e-5, rtol=0)
    torch.testing.assert_close(seen[1].detach(), others, atol=1e-5, rtol=0)
    assert (queries.flip(0) - others).abs().max() > 0.01, "premise"
    dropout = override(settings, {"method.positive": "dropout"})
    same = build_method(load_backbone(settings.encoder), dropout)
    assert same.queries == (same.anchor if name == "denosent" else same.bare)
    if name == "denosent":
        at_mask = {"method.readout": "mask", "templates.anchor": "denosent"}
        masked = build_method(load_backbone(settings.encoder), override(settings, at_mask))
        assert masked.queries == masked.anchor, "a prompt has no mask"


def test_denosent_reads_both_views_alike_if_each_sentence_is_its_own_positive(prompted):
    """A corpus without augmented texts."""
    own = {"method.readout": "mean", "method.objective": "contrastive", "method.projected": False}
    given = {**BARE, **own, "method.name": "denosent", "dropout": 0.0, "precision": "fp32"}
    settings = override(TrainSettings(encoder=prompted()), given)
    method = build_method(load_backbone(settings.encoder), settings).eval()
    seen = []
    method.contrast = lambda vectors, documents: seen.extend(vectors) or vectors[0].sum()
    method(Batch(method.sentence_encoder.tokenize(TEXTS[:3])))
    torch.testing.assert_close(*seen)
    assert not any("rebuilt" in note for note in method.notes(()))


def test_a_method_that_reads_a_mask_refuses_a_template_without_one(tiny_settings, bert_folder):
    with pytest.raises(UserError, match=r"cot-bert reads the sentence vector at the template's"):
        tiny_settings(bert_folder, {"templates.anchor": "query: [X]"})


def test_what_reads_a_mask_refuses_a_prompt(bert_folder, headed):
    expected = r"'query: \[X\]' has no \[MASK\]: the sentence vector is read at the last one"
    with pytest.raises(UserError, match=expected):
        resolve_pooling_config(bert_folder, "query: [X]", "mask")
    options = FeatureOptions(template="query: [X]", top_k=5)
    with pytest.raises(UserError, match=expected):
        build_features("top-tokens", load_backbone(headed), options)


def test_prompts_that_are_no_default_are_named_to_the_user(prompted):
    note = unused_prompts(prompted("query"))
    assert note is not None
    assert note.startswith("note: texts are read with its default prompt 'query: ', and")
    assert "others: document \"it's a man: \"; to read them with one, make it the folder's" in note
    assert note.endswith('or give --template "it\'s a man: [X]" to a command that has it')
    assert unused_prompts(prompted("query", {"query": "query: ", "document": ""}, name="b")) is None
    assert unused_prompts(prompted(None, {"query": "query: "}, name="d")) is None
    assert unused_prompts(prompted(None, {}, name="c")) is None


def test_dimensions_that_sentence_transformers_leaves_out_are_named(
    saved_once, bert_folder, tmp_path
):
    saved = saved_once(bert_folder, None, (("query", "query: "),), 20, ())
    shutil.copytree(saved, tmp_path / "short")
    file = tmp_path / "short" / "config_sentence_transformers.json"
    write_json(file, read_json(file) | {"truncate_dim": 8})
    assert unread_notes(str(saved)) == unread_notes(str(tmp_path / "short"), dimensions=False) == []
    (note,) = unread_notes(str(tmp_path / "short"))
    assert note.startswith("note: sentence-transformers keeps 8 dimensions of the vectors of ")


def test_the_prompt_for_queries(prompted):
    def query(folder, template=None):
        return resolve_pooling_config(folder, template).query

    folder = prompted(None)
    template = Template("query: [X]")
    assert query(folder) == query_template(folder) == template
    assert query(folder, "it's a man: [X]") == template
    assert query(folder, "oil is [X]") is None, "the caller's own"
    alone = prompted(None, {"query": "query: ", "document": ""}, name="alone")
    assert (query(alone), query(alone, "[X]")) == (template, None)
    assert query(folder, template) is None
    assert query(folder, "query: [X] [MASK]") is None
    expected = theirs(folder, TEXTS, prompt_name="query")
    found = SentenceEncoder.from_pretrained(folder).for_queries
    np.testing.assert_allclose(found.encode(TEXTS, precision="fp32"), expected, atol=1e-6)
    assert query(prompted("document", {"query": "it: ", "document": "it: "}, name="a")) is None
    none = SentenceEncoder.from_pretrained(prompted(None, {"query": " "}, name="b"))
    assert (none.pooling.query, none.for_queries) == (None, None)
    joined = SentenceEncoder.from_pretrained(prompted(None, {"query": "a man is pl"}, name="c"))
    with pytest.raises(UserError, match="has the prompt 'a man is pl', which its tokenizer joins"):
        joined.for_queries  # noqa: B018
    encode = joined.functions("fp32")
    np.testing.assert_allclose(encode.texts(TEXTS[:1]), ours(folder, TEXTS[:1]), atol=1e-6)
    with pytest.raises(UserError, match="which its tokenizer joins"):
        encode.queries(TEXTS[:1])
    with pytest.raises(UserError, match=r"of queries is 'query: \[X\]' and the readout mask"):
        PoolingConfig("mask", Template("[X] [MASK]"), query=template)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"default_prompt_name": "other"}, "the default prompt 'other' and no prompt of that name"),
        ({"prompts": ["a"]}, "prompts that are not texts"),
        ({"prompts": {"document": 3}}, "prompts that are not texts"),
        ({"prompts": {"document": "a man is pl"}}, "its tokenizer joins with the sentence"),
        ({"prompts": {"document": "of [X] "}}, "the slot [X] 2 times"),
        ({"prompts": {"document": "a " * 22}}, "takes 22 tokens and its default prompt has 22"),
    ],
)
def test_prompts_that_cannot_be_used(prompted, changes, message):
    folder = prompted()
    file = Path(folder, "config_sentence_transformers.json")
    write_json(file, {**read_json(file), **changes})
    with pytest.raises(UserError) as caught:
        resolve_pooling_config(folder)
    assert message in str(caught.value)
    given = resolve_pooling_config(folder, "query: [X]")
    assert (given.template, given.max_length) == (Template("query: [X]"), 22)


def test_a_prompt_left_out_of_the_mean_is_refused(prompted):
    """A prompt for all texts, and one for queries alone."""
    queries = {"query": "query: ", "document": ""}
    of_all = {"document": PROMPTS["document"]}
    for default, named in (("document", of_all), (None, queries)):
        folder = prompted(default, named, name=str(default), include_prompt=False)
        with pytest.raises(UserError, match="leaves its prompt out of the mean"):
            resolve_pooling_config(folder)
        plain = resolve_pooling_config(folder, "[X]")
        assert (plain.readout, plain.template, plain.query) == ("mean", Template("[X]"), None)
    passages = {"passage": "passage: "}
    without = resolve_pooling_config(prompted(None, passages, name="b", include_prompt=False))
    assert without.template is None

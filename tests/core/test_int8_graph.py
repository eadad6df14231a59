"""int8 graphs: close to the encoder for every reading, of int8 products, and never out of date."""

from __future__ import annotations

import json
import shutil
from importlib import util

import numpy as np
import pytest
import torch

from cotbert_core.encoder.locations import model_digest
from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.exporting.int8_graph import int8_graph, record_facts, save_int8
from cotbert_core.exporting.openvino_model import choose_backend, with_openvino
from cotbert_core.exporting.quantization import quantized
from cotbert_core.files import read_json
from cotbert_core.sentence_encoder import SentenceEncoder

pytestmark = pytest.mark.real  # OpenVINO and NNCF, each with seconds to start

WORDS = ("man", "dog", "guitar", "field", "green", "penguin", "plays", "runs", "sees", "walks")


@pytest.fixture(autouse=True)
def libraries():
    for name in ("openvino", "nncf"):
        pytest.importorskip(name, reason="needs the extra 'int8'")


def texts(count, seed):
    numbers = np.random.default_rng(seed)
    return [" ".join(numbers.choice(WORDS, numbers.integers(1, 20))) for _ in range(count)]


def made(folder, place, **reading):
    encoder = SentenceEncoder.from_pretrained(folder, **reading)
    encoder.save_pretrained(place)
    save_int8(quantized(SentenceEncoder.from_pretrained(place), texts(64, seed=0)), place)
    return place


@pytest.fixture(scope="module")
def model(tmp_path_factory, bert_folder):
    """A folder with an int8 graph, read by the mean."""
    return made(bert_folder, tmp_path_factory.mktemp("int8") / "model", readout="mean")


@pytest.fixture(scope="module")
def denoised(tmp_path_factory, roberta_folder):
    """A folder with an int8 graph, read at the mask of a template less its bias."""
    how = {"template": "cot-bert/anchor", "denoise": "pad"}
    return made(roberta_folder, tmp_path_factory.mktemp("int8") / "model", **how)


@pytest.mark.filterwarnings("ignore:only cotbert_core")
@pytest.mark.parametrize("name", ["model", "denoised"])
def test_vectors_are_close_and_of_int8(request, name):
    encoder = SentenceEncoder.from_pretrained(request.getfixturevalue(name))
    others = [*texts(40, seed=1), "", "dog " * 200]
    exact, fast = encoder.encode(others, precision="fp32"), with_openvino(encoder).encode(others)
    full = np.linalg.norm(exact, axis=1) > 0  # denoising leaves nothing of an empty text
    assert full.sum() >= len(others) - 1
    assert not np.abs(fast[~full]).max(initial=0) > 1e-6
    exact, fast = exact[full], fast[full]
    same = cosines(exact, fast)
    assert same.mean() > 0.99
    assert same.min() > 0.9
    assert np.abs(exact - fast).max() > 1e-4, "int8 rounds; these are the numbers of fp32"
    shuffled = cosines(exact, np.roll(fast, 1, axis=0))
    assert shuffled.mean() < same.mean() - 1e-3, "premise: texts differ"


def test_texts_far_longer_than_those_of_the_calibration_are_close(bert_folder, tmp_path):
    """Calibrated on words alone, the mean cosine would be 0.9988 and the lowest 0.994."""
    encoder = SentenceEncoder.from_pretrained(bert_folder, readout="mean")
    encoder.save_pretrained(tmp_path / "model")
    save_int8(quantized(encoder, WORDS * 7), tmp_path / "model")
    longest = [" ".join(text.split() * 9) for text in texts(20, seed=1)]
    fast = with_openvino(SentenceEncoder.from_pretrained(tmp_path / "model")).encode(longest)
    same = cosines(encoder.encode(longest, precision="fp32"), fast)
    assert same.mean() > 0.9995, same.mean()
    assert same.min() > 0.998, same.min()


def test_another_number_format_leaves_the_graph_aside(model):
    encoder, others = SentenceEncoder.from_pretrained(model), texts(10, seed=1)
    exact = encoder.encode(others, precision="fp32")
    np.testing.assert_allclose(with_openvino(encoder, "fp32").encode(others), exact, atol=2e-5)


def test_the_same_texts_give_the_same_graph(model, bert_folder, tmp_path):
    again = made(bert_folder, tmp_path / "again", readout="mean")
    assert (again / "int8/model.bin").read_bytes() == (model / "int8/model.bin").read_bytes()
    # The names in model.xml differ, and so its digest.
    made_from = [read_json(one / "int8/quantization.json")["made_from"] for one in (again, model)]
    assert made_from[0] == made_from[1]
    assert model_digest(str(again)) == model_digest(str(model))


def test_a_graph_counts_for_the_digest_and_its_facts_do_not(model, tmp_path):
    place = shutil.copytree(model, tmp_path / "model")
    before = model_digest(str(place))
    record_facts(place, {"speedup": 2.5})
    assert json.loads((place / "int8" / "quantization.json").read_text())["speedup"] == 2.5
    assert int8_graph(str(place)) == place / "int8" / "model.xml"
    assert model_digest(str(place)) == before
    other = SentenceEncoder.from_pretrained(place)
    shutil.rmtree(place / "int8")
    save_int8(quantized(other, texts(64, seed=9)), place)
    assert model_digest(str(place)) != before


def test_changed_weights_make_the_graph_stale(model, tmp_path):
    place = shutil.copytree(model, tmp_path / "model")
    encoder = SentenceEncoder.from_pretrained(place)
    with torch.no_grad():
        encoder.backbone.model.embeddings.word_embeddings.weight += 1
    encoder.save_pretrained(tmp_path / "other")
    assert int8_graph(str(tmp_path / "other")) is None
    weights = tmp_path / "other" / "model.safetensors"
    (place / weights.name).write_bytes(weights.read_bytes())
    for use in (with_openvino, lambda encoder: choose_backend("auto", encoder)):
        with pytest.raises(UserError, match=r"made from other weights.*`cotbert quantize`"):
            use(SentenceEncoder.from_pretrained(place))


@pytest.mark.parametrize("damage", ["model.bin", "model.xml", "quantization.json"])
def test_a_damaged_graph_is_refused(model, tmp_path, damage):
    place = shutil.copytree(model, tmp_path / "model")
    file = place / "int8" / damage
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"the int8 graph of .* is damaged: remove its folder int8"):
        with_openvino(SentenceEncoder.from_pretrained(place))
    file.write_text("[]")
    with pytest.raises(UserError, match="is damaged"):
        int8_graph(str(place))
    file.unlink()
    with pytest.raises(UserError, match="is damaged"):
        int8_graph(str(place))


def test_a_graph_of_an_earlier_version_has_no_digest(model, tmp_path):
    place = shutil.copytree(model, tmp_path / "model")
    record = place / "int8" / "quantization.json"
    known = json.loads(record.read_text())
    record.write_text(json.dumps({"made_from": known["made_from"]}))
    assert known["digest"]
    assert int8_graph(str(place)) is not None


def test_auto_takes_openvino_for_a_graph_alone(model, bert_folder, monkeypatch):
    encoder = SentenceEncoder.from_pretrained(model)
    plain = SentenceEncoder.from_pretrained(bert_folder)
    assert choose_backend("auto", encoder) == "openvino"
    assert choose_backend("auto", encoder, "fp32") == "torch"
    assert choose_backend("auto", plain) == "torch"
    assert choose_backend("torch", encoder) == "torch"
    assert choose_backend("openvino", plain) == "openvino"
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    assert choose_backend("auto", encoder) == "torch"
    with pytest.raises(UserError, match=r"needs openvino: install with pip install 'openvino>"):
        choose_backend("openvino", encoder)


def test_without_the_extra_nothing_is_quantized(bert_folder, monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "nncf" else True)
    with pytest.raises(UserError, match=r"needs nncf: install with pip install 'openvino>"):
        quantized(SentenceEncoder.from_pretrained(bert_folder), texts(64, seed=0))


def test_a_vector_does_not_depend_on_its_batch(model):
    """Ranges are those of the calibration, not of the batch as in dynamic quantization."""
    fast, others = with_openvino(SentenceEncoder.from_pretrained(model)), texts(30, seed=2)
    together = fast.encode(others, batch_tokens=4096)
    alone = np.concatenate([fast.encode([text]) for text in others])
    assert cosines(together, alone).min() > 1 - 1e-5


def test_the_first_batch_runs_before_any_thread(model):
    """OpenVINO's binding hangs if two threads run the first batch of a process together."""
    compiled = with_openvino(SentenceEncoder.from_pretrained(model)).backbone.model
    assert compiled._own.request.get_output_tensor(0).data.shape == (1, 1, 32)

"""Marian models by name or folder, their language tokens, and two engines that agree."""

from __future__ import annotations

import json
import shutil
from importlib import util
from pathlib import Path

import pytest
import tiny_marian
from safetensors.torch import load_file, save_file

from cotbert_core.errors import UserError
from pipelines.augmenting.back_translation import BackTranslator, plan_translation
from pipelines.augmenting.ledger import Rewrite
from pipelines.augmenting.marian import MarianTokens, choose_prefix, find_marian
from pipelines.augmenting.options import BackTranslation
from pipelines.augmenting.translation_engines import choose_engine, converted

pytestmark = pytest.mark.real

ENGINES = ("transformers", "ctranslate2")
TEXTS = dict(enumerate(tiny_marian.sentences(60, seed=7), start=100))


@pytest.fixture
def options(tiny_models, own_cache):
    def make(**changes):
        there, back = tiny_models
        given = {"engine": "transformers", "precision": "float32", "beam": 1, **changes}
        return BackTranslation(there, back, **given)

    return make


def rewritten(options, done=None, texts=TEXTS):
    """What a rewriter gives, batch by batch."""
    return list(BackTranslator(plan_translation(options, gpu=False), 1).rewrite(texts, done or {}))


def texts_of(batches):
    return {rewrite.id: rewrite.text for batch in batches for rewrite in batch}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("beam", [1, 3])
def test_there_and_back_is_each_words_synonym(options, engine, beam):
    found = texts_of(rewritten(options(engine=engine, beam=beam, batch_tokens=40)))
    expected = {number: tiny_marian.there_and_back(text) for number, text in TEXTS.items()}
    assert found.keys() == expected.keys()
    # Engines end a beam search by rules of their own.
    assert sum(found[n] != expected[n] for n in TEXTS) <= (0 if beam == 1 else 3)
    assert sum(found[n] != TEXTS[n] for n in TEXTS) > 40, "most sentences change"


def test_a_batch_is_the_same_wherever_an_earlier_run_stopped(options):
    """With sampling at a high temperature, so that any change of batch or seed shows."""
    drawn = options(temperature=3.0, seed=5, batch_tokens=30)
    batches = rewritten(drawn)
    whole = texts_of(batches)
    assert len(batches) > 5
    done = {r.id: Rewrite(r.id, r.text) for r in [*batches[0], *batches[1], batches[3][0]]}
    rest = rewritten(drawn, done)
    assert len(rest) == len(batches) - 2
    assert texts_of(rest) == {n: text for n, text in whole.items() if n not in done}
    turned = dict(reversed(TEXTS.items()))
    assert texts_of(rewritten(drawn, texts=turned)) == whole


@pytest.mark.parametrize("engine", ENGINES)
def test_sampling_follows_its_seed_and_the_best_of_one_is_greedy(options, engine):
    def found(**changes):
        return texts_of(rewritten(options(engine=engine, **changes)))

    first = found(temperature=3.0, seed=1)
    assert first == found(temperature=3.0, seed=1)
    assert first != found(temperature=3.0, seed=2)
    assert found(temperature=3.0, top_k=1) == found()


def test_long_sentences_are_cut_and_said(options):
    word = next(iter(tiny_marian.FORWARD))
    limit = tiny_marian.POSITIONS
    texts = {1: " ".join([word] * (limit - 1)), 2: " ".join([word] * limit)}
    for engine in ENGINES:
        ((long, short),) = rewritten(options(engine=engine), texts=texts)
        assert (long.id, long.cut, short.id, short.cut) == (1, False, 2, True)
        assert len(long.text.split()) <= limit


def test_signs_of_the_tokenizer_in_a_sentence_are_text(tiny_models):
    tokens = MarianTokens(find_marian(tiny_models[0], "forward"), "")
    end, unknown = tokens.hf.eos_token_id, tokens.hf.unk_token_id
    for text in ("</s>", ">>xx<< bado", "<pad>", "bado </s> cona"):
        (ids,), _ = tokens.encode([text])
        assert ids[-1] == end
        assert end not in ids[:-1]
        assert tokens.hf.pad_token_id not in ids
        assert unknown in ids
    assert tokens.encode([]) == ([], [])


@pytest.fixture
def with_codes(tiny_models, tmp_path):
    """A copy of the first model whose vocabulary names target languages."""

    def make(*codes):
        folder = tmp_path / f"model{len(codes)}"
        shutil.copytree(tiny_models[0], folder)
        vocabulary = json.loads((folder / "vocab.json").read_text())
        for code in codes:
            vocabulary[code] = len(vocabulary)
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        return find_marian(str(folder), "forward")

    return make


def test_the_language_token_of_the_vocabulary_goes_before_each_sentence(with_codes):
    plain = with_codes()
    assert choose_prefix(plain, None, "forward") == ""
    french = with_codes(">>fra<<")
    assert choose_prefix(french, None, "forward") == ">>fra<<"
    (known,), _ = MarianTokens(plain, "").encode(["bado cona"])
    (ids,), _ = MarianTokens(french, ">>fra<<").encode(["bado cona"])
    assert ids == [len(json.loads(Path(plain.folder, "vocab.json").read_text())), *known]
    several = with_codes(">>yue<<", ">>cmn_Hans<<", ">>>>", ">>a b<<")
    assert choose_prefix(several, None, "forward") == ">>cmn_Hans<<"
    assert choose_prefix(several, ">>yue<<", "forward") == ">>yue<<"
    assert choose_prefix(several, "", "forward") == ""
    with pytest.raises(UserError, match=r"forward_prefix '>>no<<' is unknown .* give one of >>yue"):
        choose_prefix(several, ">>no<<", "forward")
    with pytest.raises(UserError, match="it has none: give --backward-prefix ''"):
        choose_prefix(plain, ">>x<<", "backward")
    with pytest.raises(UserError, match=r"writes several languages \(>>aa<<, >>bb<<, >>cc<<\): ch"):
        choose_prefix(with_codes(">>aa<<", ">>bb<<", ">>cc<<"), None, "forward")


def test_a_model_is_converted_once(tiny_models, own_cache, monkeypatch):
    model = find_marian(tiny_models[0], "forward")
    made = converted(model, "float32")
    assert made.is_relative_to(own_cache)
    assert [p.name for p in made.parent.iterdir()] == [made.name]
    stamp = (made / "model.bin").stat().st_mtime_ns
    assert converted(model, "float32") == made
    assert (made / "model.bin").stat().st_mtime_ns == stamp
    assert converted(model, "int8") != made


def test_models_that_cannot_work_are_refused(tiny_models, tmp_path, monkeypatch):
    for module in ("pipelines.augmenting.marian", "cotbert_core.encoder.locations"):
        monkeypatch.setattr(f"{module}.hub_answers", lambda: False)
    mistakes = {
        "./none": "forward './none' is not a folder: give an existing folder or a hub name",
        "nobody/nothing": r"forward 'nobody/nothing' cannot be downloaded \(",
        str(tmp_path): r"has no config\.json, vocab\.json, source\.spm, target\.spm: give a Marian",
    }
    for name, message in mistakes.items():
        with pytest.raises(UserError, match=message):
            find_marian(name, "forward")
    folder = tmp_path / "copy"
    shutil.copytree(tiny_models[0], folder)
    (folder / "model.safetensors").rename(folder / "away")
    with pytest.raises(UserError, match=r"has no model\.safetensors or pytorch_model\.bin"):
        find_marian(str(folder), "backward")
    (folder / "away").rename(folder / "model.safetensors")
    assert find_marian(str(folder), "f").digest == find_marian(tiny_models[0], "f").digest
    (folder / "generation_config.json").write_text('{"bad_words_ids": [[1]]}')
    assert find_marian(str(folder), "f").digest != find_marian(tiny_models[0], "f").digest
    (folder / "source.spm").write_bytes(b"junk")
    model = find_marian(str(folder), "f")
    assert model.digest != find_marian(tiny_models[0], "f").digest
    with pytest.raises(UserError, match=r"the tokenizer of .* cannot be read"):
        choose_prefix(model, None, "forward")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match="is a model of type 'bert': give a Marian model"):
        find_marian(str(folder), "f")


@pytest.mark.parametrize("engine", ENGINES)
def test_incomplete_weights_are_refused(tiny_models, own_cache, tmp_path, engine):
    """transformers gives random values to missing weights, which would translate to nonsense."""
    folder = shutil.copytree(tiny_models[0], tmp_path / "m")
    file = folder / "model.safetensors"
    kept = {key: value for key, value in load_file(file).items() if ".decoder." not in key}
    save_file(kept, file, metadata={"format": "pt"})
    options = BackTranslation(str(folder), tiny_models[1], engine=engine, precision="float32")
    lack = r"'.*/m' lacks \d+ of its weights, such as 'model\.decoder\.layers\.0\.\S+': copy the"
    with pytest.raises(UserError, match=lack):
        rewritten(options)
    with file.open("r+b") as opened:
        opened.truncate(500)
    with pytest.raises(UserError, match=r"the weights of '.*/m' cannot be read \(.+\): copy the"):
        rewritten(options)
    assert not list(own_cache.rglob("model.bin"))


def test_engines_that_cannot_work_are_refused(monkeypatch):
    chosen = {
        ("auto", "auto", False): ("ctranslate2", "int8"),
        ("auto", "float32", False): ("ctranslate2", "float32"),
        ("transformers", "auto", False): ("transformers", "float32"),
        ("auto", "auto", True): ("transformers", "float16"),
    }
    assert {asked: choose_engine(*asked) for asked in chosen} == chosen
    with pytest.raises(UserError, match="'int8': with transformers on a CPU give float32"):
        choose_engine("transformers", "int8", gpu=False)
    with pytest.raises(UserError, match="'float16': with ctranslate2 on a CPU give int8 or fl"):
        choose_engine("auto", "float16", gpu=False)
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    assert choose_engine("auto", "auto", gpu=False) == ("transformers", "float32")
    assert choose_engine("auto", "auto", gpu=True) == ("transformers", "float16")
    with pytest.raises(UserError, match=r"install with pip install 'ctranslate2>="):
        choose_engine("ctranslate2", "auto", gpu=False)
    with pytest.raises(UserError, match=r"needs sentencepiece and sacremoses: install w"):
        find_marian("x", "forward")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam": 0}, "beam is 0: give at least 1"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
        ({"top_k": -1}, "top_k is -1: give at least 0"),
        ({"top_k": 5}, "top_k is 5 and has no effect without --temperature"),
        ({"temperature": 0.0}, "temperature is 0.0: give a number above 0"),
        ({"max_length_factor": float("nan")}, "max_length_factor is nan"),
    ],
)
def test_options_out_of_range_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        BackTranslation(**changes)

"""cotbert generate-templates: definitions, the file it writes, and its way to search-template."""

from __future__ import annotations

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file
from tiny_t5 import PIECES, tiny_t5
from transformers import AutoTokenizer

from cotbert_core.errors import UserError
from cotbert_core.template_search.generation import Definition
from cotbert_core.template_search.joint_beam import Output
from cotbert_core.templates.template_texts import Template
from pipelines.cli import main
from pipelines.templates import template_generation as job
from pipelines.templates.options import GenerateOptions
from pipelines.templates.template_generation import (
    generate_templates,
    read_definitions,
)


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    return tiny_t5(tmp_path_factory.mktemp("t5"))


@pytest.fixture
def definitions(tmp_path):
    path = tmp_path / "definitions"
    path.write_text("it: called means it\ncalled\tmeans: it\nmeans: it\n")
    return path


def test_lines_are_read_and_bad_ones_said(tmp_path, capsys):
    path = tmp_path / "definitions"
    lines = ["orange:  a large: round fruit", "", "a b\tc: d", "orange: a large: round fruit"]
    lines += ["nothing", ": no word", "no text:", "x: an <extra_id_0> in it", "\tno word"]
    path.write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    read, bad = read_definitions(path)
    assert read == [Definition("orange", "a large: round fruit"), Definition("a b", "c: d")]
    assert bad == 5
    assert "5 lines without a definition and 1 repeated line are" in capsys.readouterr().err


def test_the_command_writes_templates_that_can_be_scored(
    own_store, tmp_path, t5, definitions, bert_folder, capsys
):
    words = ["generate-templates", t5, "--definitions", str(definitions), "--output", "found.txt"]
    assert main([*words, "--count", "6", "--beam", "8", "--max-tokens", "3"]) == 0
    printed = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    texts = (tmp_path / "found.txt").read_text().splitlines()
    assert 1 <= len(texts) == len(set(texts)) <= 6
    assert all(Template(text).stages == 1 for text in texts)
    assert (printed["templates"], printed["best_template"]) == (str(len(texts)), texts[0])

    (run,) = own_store.search_runs(["1"])
    assert (run.info.run_name, run.info.status) == ("generate-templates / found.txt", "FINISHED")
    assert run.data.params["beam"] == "8"
    assert run.data.metrics["definitions"] == 3
    assert [a.path for a in own_store.list_artifacts(run.info.run_id)] == ["found.txt"]

    search = ["search-template", bert_folder, "--templates", "found.txt", "--output", "out"]
    assert main(search) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["best_template"] in texts
    assert result["templates"] == len(texts)
    rows = [json.loads(line) for line in (tmp_path / "out/templates.jsonl").open()]
    assert [(row["template"], row["stage"]) for row in rows] == [(t, "given") for t in texts]
    assert result["dev_spearman"] == max(row["spearman"] for row in rows)


def outputs(monkeypatch, *texts):
    """The outputs that both forms give; and their definitions."""
    asked = []

    def fill(generator, definitions, form, **settings):
        asked.append((form, definitions))
        return [Output(tuple(PIECES.index(p) for p in text.split()), -1.0) for text in texts]

    monkeypatch.setattr(job, "fill_blanks", fill)
    return asked


def test_examples_are_drawn_by_seed(unrecorded, tmp_path, t5, definitions, monkeypatch):
    asked = outputs(monkeypatch, "<extra_id_0> ▁means <extra_id_1> . <extra_id_2>")

    def drawn(seed):
        options = GenerateOptions(t5, definitions, examples=2, seed=seed)
        result = generate_templates(options, tmp_path / f"{len(asked)}.txt")
        assert result["definitions"] == 2
        (_, first), (_, second) = asked[-2:]
        assert first == second
        return first

    every = read_definitions(definitions)[0]
    draws = [drawn(seed) for seed in (0, 0, 1, 2, 3, 4, 5)]
    assert draws[0] == draws[1]
    assert any(draw != draws[0] for draw in draws)
    assert all(len({*draw} & {*every}) == 2 for draw in draws)


def test_what_is_no_template_is_counted(unrecorded, tmp_path, t5, definitions, monkeypatch):
    good = "<extra_id_0> ▁means <extra_id_1> . <extra_id_2>"
    outputs(monkeypatch, good, "<extra_id_0> [X] <extra_id_1> . <extra_id_2>", good)
    result = generate_templates(GenerateOptions(t5, definitions), tmp_path / "found.txt")
    counts = [result[name] for name in ("templates", "malformed", "repeated", "bad_lines")]
    assert counts == [2, 2, 2, 0]
    assert (tmp_path / "found.txt").read_text() == "[X] means [MASK].\nmeans [MASK]. [X]\n"


def test_the_time_left_leaves_out_the_first_step(
    unrecorded, tmp_path, t5, definitions, monkeypatch
):
    """It reads a single row, each of the others as many as the beam has."""
    shown = []

    class Recorded(job.Progress):
        def start_at(self, done):
            shown.append(("from", done))

        def show(self, done, *_):
            shown.append(("done", done))

    monkeypatch.setattr(job, "Progress", Recorded)
    generate_templates(GenerateOptions(t5, definitions, beam=8, max_tokens=3), tmp_path / "f.txt")
    assert shown[:3] == [("from", 1), ("done", 1), ("done", 2)]
    assert shown.count(("from", 1)) == 1


def test_no_template_at_all_fails_the_job(own_store, tmp_path, t5, definitions, monkeypatch):
    outputs(monkeypatch, "<extra_id_0> [X] <extra_id_1> . <extra_id_2>")
    with pytest.raises(RuntimeError, match="no output has"):
        generate_templates(GenerateOptions(t5, definitions), tmp_path / "found.txt")
    assert not (tmp_path / "found.txt").exists()
    (run,) = own_store.search_runs(["1"])
    assert run.info.status == "FAILED"


def test_a_damaged_model_is_refused(tmp_path, t5, definitions):
    def refused(message):
        with pytest.raises(UserError, match=message):
            generate_templates(GenerateOptions(str(folder), definitions), tmp_path / "found.txt")

    folder = shutil.copytree(t5, tmp_path / "t5")
    weights = folder / "model.safetensors"
    partial = load_file(weights)
    partial.pop("decoder.final_layer_norm.weight")
    save_file(partial, weights, {"format": "pt"})
    refused("lacks 1 of its weights, such as 'decoder.final_layer_norm.weight': copy the whole")
    weights.write_bytes(weights.read_bytes()[:100])
    refused("cannot be loaded .*: give a folder or hub name of the T5 family")
    folder = shutil.copytree(t5, tmp_path / "words")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["one", "two", "three", "four"])
    tokenizer.save_pretrained(folder)
    refused("has 16 token embeddings and a tokenizer of 17 tokens: give it the tokenizer")


def test_mistakes_are_found_before_anything_is_written(tmp_path, t5, definitions):
    (tmp_path / "nothing").write_text("no definition\n\n")
    (tmp_path / "folder").mkdir()
    mistakes = [
        ("count is 0: give at least 1", {"count": 0}),
        ("beam is -1", {"beam": -1}),
        ("max_tokens is 0", {"max_tokens": 0}),
        ("examples is 0", {"examples": 0}),
        ("examples is 4 and .* has 3 definitions: give a smaller number", {"examples": 4}),
        ("none' cannot be read", {"definitions": tmp_path / "none"}),
        ("nothing' has no line like `orange: ", {"definitions": tmp_path / "nothing"}),
        ("model folder './none' does not exist", {"model": "./none"}),
        ("already exists: give a new file", {"output": definitions}),
        ("is a folder: give a file", {"output": tmp_path / "folder"}),
    ]
    for message, changes in mistakes:
        given = {"model": t5, "definitions": definitions} | changes
        output = given.pop("output", tmp_path / "found.txt")
        with pytest.raises(UserError, match=message):
            generate_templates(GenerateOptions(**given), output)
    assert not (tmp_path / "found.txt").exists()

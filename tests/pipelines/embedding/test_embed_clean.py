"""Texts that `cotbert embed --clean` cleans, and the search in them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from pipelines.cli import main
from pipelines.embedding.embed import read_embeddings

MARKED = (
    "<p>Two <b>dogs</b> run</p>",
    "<br/>",
    "A man &amp;lt; oil",
    "<i>penguin</i> on the ice<br>while a  woman is\nsinging a # song",
)
CLEAN = ("Two dogs run", "A man &lt; oil", "penguin on the ice while a woman is singing a # song")


def write(path, texts):
    rows = (json.dumps({"id": number, "text": text}) for number, text in enumerate(texts))
    path.write_text("\n".join(rows))


def search(capsys, *words):
    capsys.readouterr()
    assert main(["search", *map(str, words), "--json", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return [json.loads(line)["matches"] for line in printed.out.splitlines()]


def test_cleaned_texts_have_the_vectors_of_clean_ones(tmp_path, job, encoded):
    write(tmp_path / "marked.jsonl", MARKED)
    write(tmp_path / "clean.jsonl", CLEAN)
    job("cleaned", "marked.jsonl", clean=("unicode", "markup"))
    assert tuple(encoded) == CLEAN
    job("out", "clean.jsonl")
    _, vectors = read_embeddings(tmp_path / "cleaned")
    np.testing.assert_array_equal(vectors, read_embeddings(tmp_path / "out")[1])
    manifest = read_json(tmp_path / "cleaned" / "manifest.json")
    assert manifest["clean"] == ["markup", "unicode"]
    assert manifest["skipped"] == {"emptied_by_cleaning": 1}
    assert "warnings" not in manifest
    (skipped,) = (tmp_path / "cleaned" / "skipped.jsonl").read_text().splitlines()
    assert (json.loads(skipped)["row"], json.loads(skipped)["text"]) == (1, "<br/>")


@pytest.mark.parametrize("kept", [True, False])
def test_a_search_shows_and_compares_the_cleaned_texts(tmp_path, job, bert_folder, capsys, kept):
    """Those of the input or of a kept column: keywords and passages are theirs."""
    write(tmp_path / "a.jsonl", MARKED)
    job("out", "a.jsonl", clean=("markup",), passages=4, keep=("text",) if kept else ())
    found_in = [] if kept else ["--text", tmp_path / "a.jsonl"]
    command = [tmp_path / "out", "i b br lt", "ice", "--top", 3, "--keywords", *found_in]
    tags, ice = search(capsys, *command)
    assert {match["text"] for match in tags} == {*CLEAN}
    assert tags[0]["text"] == CLEAN[1]  # &lt; is a text, the tags are not
    assert ice[0]["text"] == CLEAN[2]
    assert ice[0]["passage"] in CLEAN[2]
    assert len(ice[0]["passage"].split()) == 4


def test_an_update_cleans_as_before(tmp_path, job, encoded):
    write(tmp_path / "a.jsonl", MARKED[:3])
    job("old", "a.jsonl", clean=("markup",))
    write(tmp_path / "a.jsonl", [*MARKED, "oil"])
    with pytest.raises(UserError, match=r"made otherwise: clean \['markup'\] there and None here"):
        job("new", "a.jsonl", update=tmp_path / "old")
    encoded.clear()
    job("new", "a.jsonl", clean=("markup",), update=tmp_path / "old")
    assert encoded == [CLEAN[2], "oil"]

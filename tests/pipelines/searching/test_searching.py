"""cotbert search as a user gives it: a sentence finds itself; another model is refused."""

from __future__ import annotations

import json
import re
import shutil
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from embeddings_folders import change_manifest, write_folder
from made_encoders import made_encoder, save_quietly, with_encoders

from cotbert_core.encoder.locations import PROMPTS_FILE, model_digest
from cotbert_core.errors import UserError
from cotbert_core.evaluation.geometry import unit_rows
from cotbert_core.evaluation.keyword_search import keyword_scores
from cotbert_core.evaluation.passages import cut_passages
from cotbert_core.files import read_json, write_json
from cotbert_core.saving.keyword_weights import save_keyword_weights
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.embedding.embeddings import Embeddings
from pipelines.reading.data_folder import part_files
from pipelines.searching.options import SearchOptions
from pipelines.searching.queries import query_encoder, query_vectors
from pipelines.searching.search import search

TEXTS = [
    "A man is playing the guitar.",
    "Two dogs run",
    "What do you want?",
    "The children watch the penguin on the ice while a woman is singing a song",
    "oil",
    "Two dogs run",
    "It's what he didn't say that they'll remember",
]
IDS = [30, 21, 12, 3, 44, 15, 6]
TEMPLATE = 'The sentence of "[X]" means [MASK] .'


def facts_of(model, encoder):
    """What `embed` records of a model."""
    template = encoder.pooling.template
    return {
        "model": str(model),
        "model_digest": model_digest(str(model)),
        "readout": encoder.pooling.readout,
        "template": template.text if template else None,
    }


def embedded(folder, model, dtype="float32", kept=None, ids=IDS, **reading):
    """TEXTS embedded by hand, in two parts."""
    encoder = SentenceEncoder.from_pretrained(model, **reading)
    vectors = encoder.encode(TEXTS, precision="fp32")
    facts = facts_of(model, encoder)
    if dtype == "int8":
        scale = np.abs(vectors).max(axis=0) / 127
        vectors, facts["scale"] = np.rint(vectors / scale), scale.tolist()
    return write_folder(folder, ids, vectors.astype(dtype), kept, parts=2, **facts)


def with_text_ids(folder):
    """Give the rows of a folder text for ids."""
    for part in part_files(folder):
        table = pq.read_table(part)
        ids = pa.array([f"id {number}" for number in table["id"].to_pylist()])
        pq.write_table(table.set_column(0, "id", ids), part)


def failed(capsys, *words):
    """The last line of the errors of a search that ends with status 2 and prints nothing."""
    assert main(["search", *map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[-1]


def printed(capsys, *words):
    """The lines of a search that ended well, each cut into its columns."""
    assert main(["search", *map(str, words), "--precision", "fp32"]) == 0
    return [re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()]


@with_encoders(
    "dtype template",
    ("bert", "float32", None),
    ("bert", "float16", TEMPLATE),
    ("roberta", "int8", TEMPLATE),
)
def test_a_sentence_finds_itself_first(tmp_path, encoder_folder, capsys, dtype, template):
    kept = {"text": TEXTS, "length": [len(t) for t in TEXTS]}
    folder = embedded(tmp_path / "e", encoder_folder, dtype, kept, template=template)
    header, first, *others = printed(capsys, folder, " What  do you want? ")
    assert header == ["rank", "score", "id", "text"]
    assert first == ["1", "1.0000", "12", "What do you want?"]
    assert [row[0] for row in others] == [str(n) for n in range(2, 8)]
    assert {row[3] for row in others} == set(TEXTS) - {first[3]}
    scores = [float(row[1]) for row in others]
    assert scores == sorted(scores, reverse=True)
    assert max(scores) < 0.9999


def test_several_queries_go_by_at_once_and_equal_texts_by_id(tmp_path, bert_folder, capsys):
    folder = embedded(tmp_path / "e", bert_folder, kept={"text": TEXTS})
    words = ["Two dogs run", "oil", "--top", "2", "--json", "--precision", "fp32"]
    assert main(["search", str(folder), *words]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [a["query"] for a in answers] == ["Two dogs run", "oil"]
    dogs, oil = (a["matches"] for a in answers)
    found = [(m["rank"], m["id"], m["text"]) for m in dogs]
    assert found == [(1, 15, "Two dogs run"), (2, 21, "Two dogs run")]
    assert dogs[0]["score"] == dogs[1]["score"] == pytest.approx(1, abs=1e-6)
    assert (oil[0]["id"], oil[0]["text"]) == (44, "oil")
    first_columns = [row[0] for row in printed(capsys, folder, "Two dogs run", "oil", "--top", "1")]
    assert first_columns == ["query: Two dogs run", "rank", "1", "query: oil", "rank", "1"]


def test_texts_come_from_the_input_when_the_parts_hold_none(tmp_path, bert_folder, capsys):
    """By row numbers: those are the ids of a text file's lines."""
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    folder = embedded(tmp_path / "e", bert_folder, ids=range(7))
    assert main(["search", str(folder), "oil", "--top", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0].split() == ["rank", "score", "id"]
    assert "no text column 'text' was kept: name the input of `cotbert embed` with" in captured.err
    rows = printed(capsys, folder, "oil", "--top", "2", "--text", tmp_path / "a.txt")
    assert rows[1] == ["1", "1.0000", "4", "oil"]
    assert rows[2][3] == TEXTS[int(rows[2][2])]
    (tmp_path / "short.txt").write_text("\n".join(TEXTS[:4]))
    assert main(["search", str(folder), "oil", "--text", str(tmp_path / "short.txt")]) == 0
    assert "3 of the ids found are not in the input" in capsys.readouterr().err


def test_a_long_text_is_printed_in_part_and_is_whole_in_json(tmp_path, bert_folder, capsys):
    long = "a man " * 100
    folder = embedded(tmp_path / "e", bert_folder, kept={"text": [long, *TEXTS[1:]]})
    assert f"{long[:297]}..." in [row[3] for row in printed(capsys, folder, "oil")]
    assert main(["search", str(folder), "oil", "--json"]) == 0
    matches = json.loads(capsys.readouterr().out)["matches"]
    assert long in [match["text"] for match in matches]


def test_row_numbers_of_several_files_are_shown_as_places(
    tmp_path, bert_folder, capsys, monkeypatch
):
    """FILE:ROW in place of f * 2^40 + r, from the working directory where the file is below it."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("\n".join(TEXTS[:4]))
    (tmp_path / "notes" / "b.csv").write_text("text\n" + "\n".join(TEXTS[4:]))
    ids = [*range(4), *((1 << 40) + n for n in range(3))]
    folder = embedded(tmp_path / "e", bert_folder, ids=ids)
    change_manifest(folder, files=2)
    words = [folder, "oil", "--text", tmp_path / "notes"]
    found = {row[3]: row[2] for row in printed(capsys, *words)}
    assert (found["text"], found[TEXTS[0]]) == ("place", f"{tmp_path}/notes/a.txt:1")
    monkeypatch.chdir(tmp_path)
    found = {row[3]: row[2] for row in printed(capsys, *words)}
    assert (found[TEXTS[3]], found[TEXTS[4]]) == ("notes/a.txt:4", "notes/b.csv:1")
    assert main(["search", *map(str, words), "--top", "1", "--json"]) == 0
    match = json.loads(capsys.readouterr().out)["matches"][0]
    assert (match["place"], match["id"]) == (found[match["text"]], ids[TEXTS.index(match["text"])])


@pytest.mark.parametrize("text_ids", [False, True])
def test_keywords_are_added_to_cosines_wherever_the_texts_are(
    tmp_path, bert_folder, capsys, text_ids
):
    """In a kept column, or in an input whose rows are in another order and lack one."""
    query, missing = "a song that dogs want", IDS[0]
    folder = embedded(tmp_path / "e", bert_folder, kept={"text": TEXTS})
    bare = embedded(tmp_path / "bare", bert_folder)
    change_manifest(bare, id_column="id", id_type="string" if text_ids else "int64")
    rows = [{"text": t, "id": i} for t, i in zip(TEXTS, IDS, strict=True)]
    if text_ids:
        with_text_ids(folder)
        with_text_ids(bare)
        rows = [{**row, "id": f"id {row['id']}"} for row in rows]
        missing = f"id {missing}"
    alone = searched(capsys, folder, query)

    def check_scores(found, rows, weight=0.3):
        (bm25,) = keyword_scores([query], [row["text"] for row in rows]).block()
        shares = {row["id"]: share for row, share in zip(rows, bm25, strict=True)}
        expected = {one: score + weight * shares.get(one, 0.0) for one, score in alone.items()}
        assert found == pytest.approx(expected, abs=1e-6)

    by_column = searched(capsys, folder, query, "--keywords")
    check_scores(by_column, rows)
    heavier = searched(capsys, folder, query, "--keywords", "--keyword-weight", "1.5")
    check_scores(heavier, rows, 1.5)
    assert list(by_column.values()) == sorted(by_column.values(), reverse=True)
    assert list(by_column) != list(alone), "premise: words change the order"
    file, kept = tmp_path / "texts.jsonl", [row for row in rows[::-1] if row["id"] != missing]
    file.write_text("\n".join(map(json.dumps, kept)))
    check_scores(searched(capsys, bare, query, "--keywords", "--text", str(file)), kept)
    # Rows that were not embedded make no word commoner.
    ids = [f"new {n}" if text_ids else 10_000 + n for n in range(9)]
    more = [{"text": "dogs want a song", "id": one} for one in ids]
    file.write_text("\n".join(map(json.dumps, [*kept, *more])))
    check_scores(searched(capsys, bare, query, "--keywords", "--text", str(file)), kept)


def test_keywords_get_the_weight_that_the_model_has(tmp_path, bert_folder, capsys):
    model, query = tmp_path / "model", "a song that dogs want"
    shutil.copytree(bert_folder, model)
    folder = embedded(tmp_path / "e", str(model), kept={"text": TEXTS})

    def found(*words):
        return searched(capsys, folder, query, "--keywords", *words)

    alone = searched(capsys, folder, query)
    save_keyword_weights(model, 0.05, 2.0)
    assert found() == found("--keyword-weight", "0.05") != found("--keyword-weight", "0.3")
    (model / "search.json").write_text("[]")
    assert searched(capsys, folder, query) == alone, "without keywords the file is not read"


def test_a_search_of_passages_counts_the_best_one(tmp_path, bert_folder, capsys):
    """Stored in int8; a passage of zeros is not compared."""
    encoder, query = SentenceEncoder.from_pretrained(bert_folder), "a woman wants oil"
    cut = [cut_passages(text, 3) for text in TEXTS]
    ask, *vectors = encoder.encode([query, *TEXTS, *chain(*cut)], precision="fp32")
    scale = np.abs(vectors).max(axis=0) / 127
    stored = np.rint(vectors / scale).astype(np.int8)
    cosines = stored * scale @ ask
    cosines /= np.linalg.norm(stored * scale, axis=1) * np.linalg.norm(ask)
    places = np.cumsum([7, *map(len, cut)])
    expected = {
        one: (alone + max(cosines[first:stop], default=alone)) / 2
        for one, alone, (first, stop) in zip(IDS, cosines, pairwise(places), strict=False)
    }
    lists = [[*stored[first:stop]] for first, stop in pairwise(places)]
    lists[3].append(np.zeros(32, np.int8))
    kept = {"text": TEXTS, "passages": pa.array(lists, pa.list_(pa.list_(pa.int8(), 32)))}
    facts = facts_of(bert_folder, encoder) | {"scale": scale.tolist()}
    folder = write_folder(tmp_path / "e", IDS, stored[:7], kept, 2, **facts, passage_words=3)
    assert searched(capsys, folder, query) == pytest.approx(expected, abs=1e-5)
    assert expected != pytest.approx(dict(zip(IDS, cosines, strict=False)), abs=0.01)
    (bm25,) = keyword_scores([query], TEXTS).block()
    together = {one: expected[one] + 0.3 * share for one, share in zip(IDS, bm25, strict=True)}
    assert searched(capsys, folder, query, "--keywords") == pytest.approx(together, abs=1e-5)
    (matches,) = search(SearchOptions(str(folder), (query,), precision="fp32"))
    for one in matches:
        row = IDS.index(one.id)
        own = cosines[places[row] : places[row + 1]]
        known = len(own) and one.id != 3  # of which a vector more is stored than it has passages
        assert one.passage == (cut[row][own.argmax()] if known else None)
    shown = {row[2]: row[3] for row in printed(capsys, folder, query)[1:]}
    assert shown["30"] in cut[0]
    assert shown["44"] == "oil"


def searched(capsys, folder, *words):
    """The scores of a search by id, from the best."""
    assert main(["search", str(folder), *words, "--json", "--precision", "fp32"]) == 0
    captured = capsys.readouterr()
    assert ("1 of 7 ids are not in the input" in captured.err) == ("--text" in words)
    return {match["id"]: match["score"] for match in json.loads(captured.out)["matches"]}


def test_keywords_without_texts_and_a_damaged_index_are_refused(tmp_path, bert_folder, capsys):
    folder, made = embedded(tmp_path / "e", bert_folder), tmp_path / "index"
    message = (
        "no text column 'text' was kept: name the input of `cotbert embed` with --text, or leave"
    )
    assert message in failed(capsys, folder, "oil", "--keywords")
    kept = {"title": TEXTS, "body": TEXTS}
    two = embedded(tmp_path / "two", bert_folder, kept=kept)
    for named in ("title,body", "id"):
        message = (
            f"no text column '{named}' was kept: name the input of `cotbert embed` with --text, "
        )
        message += "or one of title, body with --text-column, or leave --keywords out"
        assert message in failed(capsys, two, "oil", "--keywords", "--text-column", named)
    assert main(["index", str(folder), "--output", str(made)]) == 0
    capsys.readouterr()
    message = f"is an index, which has none: search the embeddings {str(folder)!r}"
    assert message in failed(capsys, made, "oil", "--keywords")
    rows = read_json(made / "manifest.json")["rows"]
    change_manifest(made, rows="7")
    assert "is not the manifest of an index: rows is '7' (" in failed(capsys, made, "oil")
    change_manifest(made, rows=rows)
    (made / "index.faiss").write_bytes((made / "index.faiss").read_bytes()[:40])
    assert "cannot be read by FAISS: copy it again" in failed(capsys, made, "oil")


def test_the_only_text_column_is_shown_and_named(tmp_path, bert_folder, capsys):
    kept = {"title": TEXTS, "year": range(7)}
    folder = embedded(tmp_path / "one", bert_folder, kept=kept)
    assert printed(capsys, folder, "oil")[1] == ["1", "1.0000", "44", "oil"]
    assert main(["search", str(folder), "oil"]) == 0
    assert "texts are of the column 'title', the only one kept" in capsys.readouterr().err
    two = embedded(tmp_path / "two", bert_folder, kept={**kept, "body": TEXTS[::-1]})
    assert main(["search", str(two), "oil"]) == 0
    captured = capsys.readouterr()
    assert "no text column 'text' was kept: " in captured.err
    assert "or one of title, body with --text-column, to see the texts" in captured.err
    assert "text" not in captured.out
    assert printed(capsys, two, "oil", "--text-column", "body")[1][-1] == TEXTS[2]


def test_another_column_is_not_taken_for_the_embedded_texts(
    tmp_path, unrecorded, bert_folder, capsys
):
    """Of rows with a category, or with notes that begin later, which alone is kept."""
    table = {"body": TEXTS, "kind": list("0101010"), "note": pa.nulls(7, pa.string())}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    words = ["embed", bert_folder, "--input", str(tmp_path / "a.parquet"), "--text-column", "body"]
    for keep in ("kind", "note", "body"):
        assert main([*words, "--keep", keep, "--output", str(tmp_path / keep)]) == 0
    for other in ("kind", "note"):
        capsys.readouterr()
        assert main(["search", str(tmp_path / other), "oil"]) == 0
        captured = capsys.readouterr()
        assert "no text column 'text' was kept: name the input of" in captured.err
        assert "text" not in captured.out
        assert "keywords are searched in texts, and" in failed(
            capsys, tmp_path / other, "oil", "--keywords"
        )
    assert printed(capsys, tmp_path / "body", "oil", "--keywords")[1][-1] == "oil"


@pytest.mark.parametrize("text_ids", [False, True])
def test_an_index_is_searched_as_its_embeddings(tmp_path, bert_folder, capsys, text_ids):
    folder = embedded(tmp_path / "e", bert_folder, kept={"text": TEXTS})
    if text_ids:
        with_text_ids(folder)
    assert main(["index", str(folder), "--output", str(tmp_path / "index")]) == 0
    if text_ids:
        assert read_json(tmp_path / "index" / "manifest.json")["ids"] == "ids.parquet"
        table = pq.read_table(tmp_path / "index" / "ids.parquet")
        assert table["id"].to_pylist() == [f"id {number}" for number in IDS]
    capsys.readouterr()
    by_index = printed(capsys, tmp_path / "index", "penguin songs", "--top", "4")
    assert by_index == printed(capsys, folder, "penguin songs", "--top", "4")
    assert {len(row) for row in by_index} == {4}
    shutil.rmtree(folder)
    rows = printed(capsys, tmp_path / "index", "oil", "--top", "2")
    assert rows[0] == ["rank", "score", "id"]
    assert rows[1] == ["1", "1.0000", "id 44" if text_ids else "44"]


def test_an_index_shows_no_text_for_an_id_of_several_rows(tmp_path, bert_folder, capsys):
    folder = embedded(tmp_path / "e", bert_folder, kept={"text": TEXTS}, ids=[44, *IDS[1:]])
    assert main(["index", str(folder), "--output", str(tmp_path / "index")]) == 0
    capsys.readouterr()
    words = [TEXTS[0], "--top", "7", "--precision", "fp32"]
    assert main(["search", str(tmp_path / "index"), *words]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("1 of the ids found belong to several rows") == 1
    _, first, *others = captured.out.splitlines()
    assert first.split() == ["1", "1.0000", "44"]
    assert len(others) == 5
    assert "What do you want?" in captured.out


def test_an_index_of_embeddings_made_again_shows_no_wrong_text(tmp_path, bert_folder, capsys):
    folder = embedded(tmp_path / "e", bert_folder, kept={"text": TEXTS})
    assert main(["index", str(folder), "--output", str(tmp_path / "index")]) == 0
    shutil.rmtree(folder)
    embedded(folder, bert_folder, kept={"text": TEXTS[::-1]}, template=TEMPLATE)
    assert main(["search", str(tmp_path / "index"), "oil", "--precision", "fp32"]) == 0
    captured = capsys.readouterr()
    assert "were made again after the index: its texts are not shown" in captured.err
    assert "oil" not in captured.out


def test_another_model_of_the_name_is_refused(tmp_path, bert_folder, roberta_folder, capsys):
    """The weights under the manifest's path have changed, the folder has moved, or they are not
    recorded."""
    model = tmp_path / "model"
    shutil.copytree(bert_folder, model)
    folder = embedded(tmp_path / "e", model, kept={"text": TEXTS})
    model.rename(tmp_path / "moved")
    gone = "does not exist any more: give its new place with --model"
    assert gone in failed(capsys, folder, "oil")
    change_manifest(folder, model_source="model")  # as it was given, from another current folder
    assert gone in failed(capsys, folder, "oil")
    shutil.copytree(roberta_folder, model)
    other = "is not the one that made the embeddings"
    assert f"/model' {other} (it has digest" in failed(capsys, folder, "oil")
    assert other in failed(capsys, folder, "oil", "--model", roberta_folder)
    (model / "model.safetensors").unlink()
    assert other in failed(capsys, folder, "oil")
    rows = printed(capsys, folder, "oil", "--top", 1, "--model", tmp_path / "moved")
    assert rows[1] == ["1", "1.0000", "44", "oil"]
    change_manifest(folder, model="somebody/bert", model_digest=None)
    assert main(["search", str(folder), "oil", "--model", bert_folder]) == 0
    assert "do not record the weights of 'somebody/bert'" in capsys.readouterr().err


def test_a_model_of_another_size_is_refused_unless_vectors_were_cut(tmp_path, bert_folder):
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    vectors = encoder.encode(TEXTS, precision="fp32")[:, :20]
    facts = facts_of(bert_folder, encoder)
    refused = Embeddings.open(write_folder(tmp_path / "a", IDS, vectors, **facts))
    with pytest.raises(UserError, match="of 32 dimensions and the embeddings have 20"):
        query_encoder(refused)
    cut = Embeddings.open(write_folder(tmp_path / "b", IDS, vectors, truncated_from=32, **facts))
    found = query_vectors(cut, query_encoder(cut), TEXTS[4:5], "fp32")
    np.testing.assert_allclose(found, vectors[4:5], atol=1e-5)


def test_a_model_is_read_as_it_was_when_it_embedded(tmp_path, bert_folder):
    """Its own way, with all that its folder remembers, unless another is given."""
    own = SentenceEncoder.from_pretrained(bert_folder, TEMPLATE, max_length=9, denoise="position")
    model = tmp_path / "model"
    with pytest.warns(UserWarning, match="a template's bias is subtracted from its vectors"):
        own.save_pretrained(model)

    def opened(name, **reading):
        encoder = SentenceEncoder.from_pretrained(model, **reading)
        facts = facts_of(model, encoder)
        folder = write_folder(tmp_path / name, [1], encoder.encode(["oil"]), parts=1, **facts)
        return encoder.pooling, query_encoder(Embeddings.open(folder)).pooling

    made_by, asked = opened("own")
    assert asked == made_by == own.pooling
    assert (asked.denoise, asked.max_length) == ("position", 9)
    template = "[X] is [MASK] ."
    for n, reading in enumerate(
        ({"readout": "mean"}, {"template": template}, {"template": TEMPLATE, "readout": "cls"})
    ):
        made_by, asked = opened(str(n), **reading)
        assert asked == made_by != own.pooling


@pytest.mark.parametrize("words", [(), ("--template", TEMPLATE)])
def test_a_query_ends_as_the_texts_did(tmp_path, unrecorded, bert_folder, capsys, words):
    """With a full stop if the template was given, though the model's own reading has none."""
    encoder = made_encoder(bert_folder, "cot-bert", "mask", TEMPLATE, full_stop=False)
    model = save_quietly(encoder, tmp_path / "model")
    (tmp_path / "a.txt").write_text("two dogs run\noil\n")
    out, given = tmp_path / "out", ("--input", str(tmp_path / "a.txt"), "--precision", "fp32")
    assert main(["embed", str(model), *given, *words, "--output", str(out)]) == 0
    assert read_json(out / "manifest.json")["full_stop"] == bool(words)
    capsys.readouterr()
    assert printed(capsys, out, "two dogs run")[1] == ["1", "1.0000", "0"]


def test_older_embeddings_without_the_models_prompt_are_searched_without_it(tmp_path, bert_folder):
    """With another readout than the model's own, `embed` left its prompt out."""
    model = shutil.copytree(bert_folder, tmp_path / "model")
    write_json(model / "modules.json", [{"type": "x.Transformer", "path": ""}])
    named = {"prompts": {"document": "oil is "}, "default_prompt_name": "document"}
    write_json(model / PROMPTS_FILE, named)
    without = SentenceEncoder.from_pretrained(model, "[X]", "cls")
    facts = facts_of(model, without) | {"template": None}
    folder = write_folder(tmp_path / "older", [1], without.encode(["oil"]), parts=1, **facts)
    assert query_encoder(Embeddings.open(folder)).pooling == without.pooling


def test_queries_get_their_own_prompt(tmp_path, encoder_folder, capsys):
    """The model's prompt named query, unless the texts were read in another way than its own or a
    template is given."""
    model = shutil.copytree(encoder_folder, tmp_path / "model")
    write_json(model / "modules.json", [{"type": "x.Transformer", "path": ""}])
    write_json(model / PROMPTS_FILE, {"prompts": {"query": "a man saw "}})

    def scores(name, *words, **reading):
        folder = embedded(tmp_path / name, model, **reading)
        rows = printed(capsys, folder, TEXTS[2], *words)[1:]
        return {int(row[2]): float(row[1]) for row in rows}

    def cosines(query, texts):
        encoder = SentenceEncoder.from_pretrained(model, **query)
        asked = unit_rows(encoder.encode(TEXTS[2:3], precision="fp32"))
        others = SentenceEncoder.from_pretrained(model, **texts).encode(TEXTS, precision="fp32")
        return dict(zip(IDS, (unit_rows(others) @ asked[0]).tolist(), strict=True))

    other, prompt = {"template": "oil is [X]"}, {"template": "a man saw [X]"}
    assert scores("own") == pytest.approx(cosines(prompt, {}), abs=1e-4)
    assert scores("other", **other) == pytest.approx(cosines(other, other), abs=1e-4)
    given = scores("given", "--query-template", other["template"])
    assert given == pytest.approx(cosines(other, {}), abs=1e-4)
    assert max(abs(given[key] - cosines(prompt, {})[key]) for key in given) > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": ("oil", " \n")}, r"query 2 is ' \\n', an empty text"),
        ({"queries": ("caf\udce9",)}, r"query 1 is 'caf\\udce9', which is not UTF-8: give valid"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        SearchOptions(**({"embeddings": "e", "queries": ("oil",)} | options))

"""Which encoder an adaptation hands back, and what it says of it."""

from __future__ import annotations

import math
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from cotbert_core.saving.keyword_weights import keyword_weight
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.adapting.choosing import UNTOUCHED, Contender, choose, confirm, plain_readout
from pipelines.adapting.final_model import complete_model, save_model
from pipelines.adapting.options import AdaptOptions
from pipelines.adapting.outcome import (
    keyword_weights,
    outcome,
    table_rows,
    trial_rows,
    trials_header,
)
from pipelines.adapting.quickstart_page import QuickstartOutcome, write_report
from pipelines.adapting.report import next_commands, summary
from pipelines.adapting.sentences import sentences
from pipelines.cleaning.options import CleanOptions
from pipelines.training.baseline import Baseline

BEFORE = Contender(UNTOUCHED, "base", 51.0)


def test_the_best_dev_score_wins_and_of_equal_ones_the_lesser_change():
    merged, trained = Contender("merged", "m", 57.0), Contender("denosent-rest", "t", 57.0)
    assert choose([BEFORE, merged, trained]) is merged
    assert choose([BEFORE, merged, Contender("denosent-rest", "t", 57.1)]).name == "denosent-rest"
    assert choose([BEFORE, Contender("merged", "m", 51.0)]) is BEFORE
    assert choose([Contender(UNTOUCHED, "base", math.nan), trained]) is trained


def scores(found, mrr, weight=0.3):
    both = {"found_first": 60.2, "keyword_weight": weight}
    return {
        "held-out": {"found_first": found, "low": found - 9.0, "queries": 10, "documents": 10},
        "held-out-mrr10": {"mrr10": mrr},
        "held-out-with-keywords": both,
        "held-out-passages-with-keywords": {**both, "keyword_weight": 0.7},
    }


@pytest.mark.parametrize(
    ("found", "mrr", "is_confirmed"),
    [(52.0, 40.0, True), (51.0, 61.0, True), (51.0, 60.0, False), (50.0, 70.0, False)],
)
def test_a_winner_that_the_test_queries_do_not_confirm_is_not_handed_back(found, mrr, is_confirmed):
    trained = Contender("denosent-rest", "t", 57.0)
    tested = {UNTOUCHED: scores(51.0, 60.0), "denosent-rest": scores(found, mrr)}
    gaps = {"denosent-rest": {}}
    assert confirm(trained, BEFORE, tested, gaps) is (trained if is_confirmed else BEFORE)
    assert confirm(BEFORE, BEFORE, tested, gaps) is BEFORE


def test_methods_without_template_train_the_best_readout():
    mean = [("its own mean pooling", None), ("first-last average", "first-last")]
    cls = [("its own [CLS] pooling", None), ("[CLS] vector", "cls")]
    assert {plain_readout(Baseline(*reading, {})) for reading in mean} == {"mean"}
    assert {plain_readout(Baseline(*reading, {})) for reading in cls} == {"cls"}


def test_model_is_a_copy_of_the_chosen_folder(tmp_path, bert_folder):
    SentenceEncoder.from_pretrained(bert_folder, readout="cls").save_pretrained(tmp_path / "best")
    (tmp_path / "best" / "result.json").write_text("{}")
    save_model(Contender("merged", str(tmp_path / "best"), 1.0), tmp_path / "model")
    names = {path.name for path in (tmp_path / "best").iterdir()} - {"result.json"}
    assert {path.name for path in (tmp_path / "model").iterdir()} == names
    assert SentenceEncoder.from_pretrained(tmp_path / "model").pooling.readout == "cls"
    # The untouched encoder is read in the way in which it scored best.
    save_model(Contender(UNTOUCHED, bert_folder, 1.0, "cls"), tmp_path / "model")
    assert SentenceEncoder.from_pretrained(tmp_path / "model").pooling.readout == "cls"


def compared(before, after, difference, low, high):
    """A row of the table of scores."""
    row = {"before": before, "after": after, "difference": difference}
    return {**row, "low": low, "high": high, "p": 0.1}


def result(chosen="denosent-rest", low=4.0, gap=6.5, winner=None):
    own = compared(51.0, 51.0 + gap, gap, low, 9.0)
    both = compared(56.0, 60.2, 4.2, -0.5, 9.0)
    pairs = compared(73.8, 73.5, -0.3, -1.0, 0.4)
    trial = {"dev_found_first": 57.2, "best_step": 60, "steps": 90, "status": "finished"}
    trial["error"] = None
    failed = {"dev_found_first": None, "status": "failed", "error": "the loss is nan"}
    return {
        "encoder": "all-MiniLM-L6-v2",
        "chosen": chosen,
        "winner": winner or chosen,
        "models": {UNTOUCHED: scores(51.0, 60.0), "denosent-rest": scores(51.0 + gap, 60.0)},
        "differences": {"denosent-rest": {"held-out": own}},
        "baseline": "its own mean pooling",
        "documents": {"by": "row", "documents": 200, "held_out": 20},
        "rows": {"read": 16_341, "kept": 14_778, "duplicate": 1_563},
        "table": {"held-out": own, "held-out-with-keywords": both, "pairs-test": pairs},
        "keyword_search": 45.3,
        "dev": {UNTOUCHED: 51.0, "merged": 55.0, "denosent-rest": 57.2},
        "trials": [
            {**trial, "name": "simcse", "dev_found_first": 52.0, "status": "stopped"},
            {**trial, "name": "denosent-rest"},
            {**trial, "name": "cot-bert-rest", **failed},
        ],
    }


def test_a_gain_is_said_with_its_interval_and_what_general_text_lost():
    own, words, general = sentences(result())
    assert own.startswith("57.5 % of held-out sentences find their document first, 51.0 % by the")
    assert "+6.5 (95 % interval +4.0 to +9.0)." in own
    assert words == (
        "Keyword search (BM25) finds 45.3 % without an encoder. Added to the encoder's cosines, as "
        "cotbert search --keywords does, it finds 60.2 %, to the untouched one's 56.0 %: +4.2 (95 "
        "% interval -0.5 to +9.0): this may be chance."
    )
    assert general == (
        "General text (pairs-test): Spearman 73.80 before, 73.50 after: -0.30 "
        "(95 % interval -1.00 to +0.40): this may be chance."
    )


@pytest.mark.parametrize(
    ("high", "chosen"), [(-0.1, "denosent-rest"), (0.1, "denosent-rest"), (-0.1, "merged")]
)
def test_what_the_average_keeps_of_general_text_is_said_if_the_chosen_encoder_lost_some(
    high, chosen
):
    made = result(chosen)
    made["table"]["pairs-test"] = compared(73.8, 71.9, -1.9, -3.7, high)
    made["models"]["merged"] = {**scores(55.0, 60.0), "pairs-test": {"spearman": 73.0}}
    said = (
        "The average of its weights and the untouched ones, merged/, has 73.00 on pairs-test, and "
        "finds 55.0 % first."
    )
    assert (said == sentences(made)[-1]) == (high < 0 and chosen != "merged")


def test_sentences_without_documents_are_said_to_be_searched_by_their_halves():
    table = {k: row for k, row in result()["table"].items() if k != "held-out-with-keywords"}
    made = result() | {"documents": {"by": "none", "held_out": 20}, "table": table}
    start = "57.5 % of halves of held-out sentences find their other half first, 51.0 % by the"
    assert sentences(made)[0].startswith(start)
    assert table_rows(made)[0][0] == "own sentences, found first in %"
    assert not any("eyword" in sentence for sentence in sentences(made))


@pytest.mark.parametrize(
    ("winner", "words"),
    [(UNTOUCHED, "finds your sentences better"), ("denosent-rest", "which can only confirm it")],
)
def test_candidates_that_halves_reject_may_be_better_by_labels(winner, words):
    made = result(UNTOUCHED, winner=winner) | {"documents": {"by": "none", "held_out": 20}}
    rejected, *_, last = sentences(made)
    assert words in rejected
    assert "Try more sentences" in rejected
    assert "give the command again with --labelled FILE" in last
    assert not any("--labelled" in sentence for sentence in sentences(by_labels(made)))


def by_labels(made):
    """The result, with labels that found 56.2 and 62.4 % of 500 texts nearest to one of theirs."""
    row = compared(56.2, 62.4, 6.2, 3.2, 9.3)
    for name, score in ((UNTOUCHED, 56.2), ("denosent-rest", 62.4)):
        made["models"][name]["same-label"] = {"accuracy": score, "texts": 500}
    made["differences"]["denosent-rest"]["same-label"] = row
    return made | {"table": {"same-label": row, **made["table"]}}


def test_a_gain_by_labels_is_said_before_that_on_documents():
    labelled, own, *_ = sentences(by_labels(result()))
    assert labelled == (
        "62.4 % of labelled texts are nearest to one of the same label, 56.2 % by the untouched "
        "encoder (its own mean pooling): +6.2 (95 % interval +3.2 to +9.3)."
    )
    assert own == sentences(result())[0]


@pytest.mark.parametrize(
    ("winner", "words"),
    [
        (UNTOUCHED, "No candidate is better by your labels than the untouched all-MiniLM-L6-v2 "
         "(56.2 % of 500 labelled texts are nearest to one of the same label), so model/"),
        ("denosent-rest", "by the dev texts (57.2 % nearest to one of their label, 51.0 by the "
         "untouched encoder), but the 500 test texts, which can only confirm it, do not: 62.4 %, "
         "56.2 by the untouched all-MiniLM-L6-v2: +6.2 (95 % interval +3.2 to +9.3). So model/ is "
         "the untouched encoder. Try more labelled texts"),
    ],
)  # fmt: skip
def test_an_encoder_that_labels_reject_is_not_handed_back(winner, words):
    assert words in sentences(by_labels(result(UNTOUCHED, winner=winner)))[0]


@pytest.mark.parametrize(
    ("found", "low", "is_confirmed"),
    [(51.0, 0.1, True), (58.0, 0.0, False), (58.0, -0.1, False), (58.0, None, False)],
)
def test_labels_alone_confirm_the_encoder_that_they_chose_and_not_by_chance(
    found, low, is_confirmed
):
    trained = Contender("denosent-rest", "t", 57.0)
    tested = {UNTOUCHED: scores(52.0, 60.0), "denosent-rest": scores(found, 60.0)}
    gaps = {"denosent-rest": {"same-label": {"difference": 2.9, "low": low}}}
    assert confirm(trained, BEFORE, tested, gaps) is (trained if is_confirmed else BEFORE)
    assert confirm(BEFORE, BEFORE, tested, gaps) is BEFORE


def test_the_tables_of_an_adaptation_by_labels_name_them():
    made = by_labels(result())
    made["trials"] = [{**row, "dev_same_label": 60.0} for row in made["trials"]]
    for row in made["trials"]:
        del row["dev_found_first"]
    assert table_rows(made)[0][0] == "labelled texts nearest to one of the same label, in %"
    assert trials_header(made)[1] == "dev texts by labels, %"
    assert trials_header(result())[1] == "dev queries found first, %"
    assert trial_rows(made)[1][1] == "60.00"


def test_a_gain_that_may_be_chance_is_said_to_be_so():
    assert "this may be chance" in sentences(result(low=-0.5))[0]
    assert "this may be chance" not in sentences(result(low=0.5))[0]
    (few,) = sentences(result(low=None))[:1]
    assert few.endswith(
        ": +6.5 (of fewer than 6 documents, texts or pairs without a common sentence, too few for "
        "an interval): this may be chance."
    )


def test_pairs_that_keep_their_order_have_no_interval():
    made = result()
    same = {**compared(73.85, 73.85, 0.0, None, None), "p": 1.0}
    made["table"] = {**made["table"], "pairs-dev": same}
    assert "Spearman 73.85 before, 73.85 after: no difference." in " ".join(sentences(made))


def test_an_encoder_that_nothing_beats_is_handed_back_in_words():
    only, words = sentences(result(UNTOUCHED))
    assert words.endswith("it finds 60.2 %.")
    assert "No candidate finds your documents better than the untouched" in only
    assert "On the dev queries it reached 51.0, the best other one 57.2." in only


def test_scores_of_very_few_documents_are_said_to_tell_nothing():
    made = result(UNTOUCHED)
    made["models"][UNTOUCHED]["held-out"] |= {"low": None, "queries": 6, "documents": 3}
    assert "(51.0 % of 6 held-out sentences find their document first)" in sentences(made)[0]
    assert sentences(made)[1:-1] == sentences(result(UNTOUCHED))[1:]
    assert sentences(made)[-1] == (
        "The scores of your documents are of only 6 test queries, from 3 held-out documents: too "
        "few to tell one encoder from another, or from keyword search."
    )
    del made["table"]["held-out-with-keywords"]
    assert sentences(made)[-1].endswith("too few to tell one encoder from another.")


def test_a_winner_that_is_not_confirmed_is_named_with_both_scores():
    only, _ = sentences(result(UNTOUCHED, gap=-10.0, low=-30.0, winner="denosent-rest"))
    assert only.startswith(
        "denosent-rest was the best by the dev queries (57.2 % found first, 51.0"
    )
    assert "the 10 test queries, which can only confirm it, do not: 41.0 %, 51.0 by" in only
    few = result(UNTOUCHED, gap=-10.0, low=-30.0, winner="denosent-rest")
    few["models"]["denosent-rest"]["held-out"]["documents"] = 7
    assert "the 10 test queries of 7 documents, which can only confirm it" in sentences(few)[0]
    gap = "-10.0 (95 % interval -30.0 to +9.0): this may be chance. So model/ is the untouched"
    assert gap in only
    made = result(UNTOUCHED, winner="merged")
    made["models"]["merged"] = made["models"][UNTOUCHED]
    made["differences"]["merged"] = {"held-out": compared(51.0, 51.0, 0.0, -0.7, 0.7)}
    equal = sentences(made)[0]
    assert equal.startswith(
        "The average of the best candidate's weights and the untouched ones was"
    )
    assert ": no difference (95 % interval -0.7 to +0.7). So model/ is the untouched" in equal


def test_the_weights_of_keywords_are_those_of_the_encoder_which_is_handed_back():
    made = result()
    made["models"]["denosent-rest"] = scores(57.5, 60.0, weight=0.15)
    assert keyword_weights(made) == [0.15, 0.7]
    del made["models"]["denosent-rest"]["held-out-passages-with-keywords"]
    assert keyword_weights(made) == [0.15]
    made["chosen"] = UNTOUCHED
    assert keyword_weights(made) == [0.3, 0.7]
    del made["table"]["held-out-with-keywords"]
    assert keyword_weights(made) == []


def test_the_model_that_is_handed_back_has_its_scores_and_weights(tmp_path, bert_folder):
    model = tmp_path / "model"
    save_model(Contender(UNTOUCHED, bert_folder, 1.0, "cls"), model)
    complete_model(model, result())
    card = (model / "README.md").read_text()
    assert "| own documents, found first in % | 51.00 | 57.50 |" in card
    assert [keyword_weight(str(model), passages=p) for p in (False, True)] == [0.3, 0.7]


def test_keyword_search_that_finds_more_than_the_encoder_is_said_to():
    _, words, _ = sentences({**result(), "keyword_search": 58.0})
    assert "58.0 % without an encoder, more than the encoder does. Added" in words


def test_what_passages_of_long_documents_find_is_said():
    row = compared(22.6, 25.4, 2.8, 0.4, 5.0)
    passages = {"held-out-passages": row, "held-out-passages-with-keywords": {**row, "after": 61.3}}
    made = result() | {"table": result()["table"] | passages}
    _, _, said, general = sentences(made)
    assert said == (
        "Your documents are long. With a vector for each passage too (cotbert embed --passages "
        "60), the encoder finds 25.4 %, the untouched one 22.6 %: +2.8 (95 % interval +0.4 to "
        "+5.0). With keyword search added, it finds 61.3 %."
    )
    assert general.startswith("General text")
    embed, search = next_commands(made, AdaptOptions(("texts.jsonl",)), Path("out"))
    assert embed[-4:] == ("--passages", "60", "--output", "runs/vectors")
    assert search[3:5] == ("--keywords", "--text")
    made["table"] |= {name: {**row, "after": 60.2} for name in passages}
    embed, search = next_commands(made, AdaptOptions(("texts.jsonl",)), Path("out"))
    assert "--passages" not in embed, "keyword search alone finds as much"
    assert search[3:5] == ("--keywords", "--text")


@pytest.mark.parametrize(("documents", "shown"), [("row", True), ("none", False)])
def test_halves_of_sentences_are_compared_by_one_vector_alone(documents, shown):
    """The pretend text has passages, as sentences of more than 120 words have."""
    found = {"found_first": 9.0, "queries": 10}
    names = ("held-out-with-keywords", "held-out-passages", "held-out-passages-with-keywords")
    models = {UNTOUCHED: dict.fromkeys(("held-out", *names, "held-out-keywords"), found)}
    corpus = MagicMock(manifest={"held_out": 20, "documents": {"by": documents}})
    given = AdaptOptions(("texts.txt",), documents=documents), corpus, MagicMock(reading="mean")
    made = outcome(*given, [], [BEFORE], BEFORE, models, {}, {})
    assert set(made["table"]) == {"held-out", *(names if shown else ())}


NEXT = [
    (("a.csv", "b.csv"), {"text_column": "body", "encoding": "latin-1", "documents": "row"},
     "a.csv b.csv --text-column body --encoding latin-1", "a.csv b.csv --text-column body"),
    (("manual",), {"documents": "paragraph"}, "manual --wrapped", "manual"),
    (("manual",), {"documents": "file", "wrapped": True}, "manual --documents file --wrapped",
     "manual"),
    (("a.csv",), {"clean": CleanOptions(steps=("urls", "markup"))},
     "a.csv --clean markup,urls", "a.csv"),
    (("docstrings:torch",), {}, "YOUR.txt", "YOUR.txt"),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "given", "embedded", "searched"), NEXT)
def test_the_next_commands_read_what_was_adapted_to_and_search_as_was_best(
    inputs, given, embedded, searched
):
    options = AdaptOptions(inputs, **given)
    embed, search = next_commands(result(), options, Path("out"))
    assert " ".join(map(str, embed)) == f"embed out/model --input {embedded} --output runs/vectors"
    words = f"search runs/vectors YOUR QUERY --keywords --text {searched}"
    assert " ".join(search) == words
    worse = result()
    worse["table"] |= {"held-out-with-keywords": compared(50.0, 50.0, 0.0, 0.0, 0.0)}
    _, search = next_commands(worse, options, Path("out"))
    assert " ".join(search) == words.replace(" --keywords", "")


@pytest.mark.parametrize(
    ("documents", "noted"),
    [("column:ticket", True), ("row", False), ("file", False), ("none", False)],
)
def test_a_note_says_that_rows_are_embedded_where_documents_have_several(documents, noted):
    said = summary(result(), AdaptOptions(("a.csv",), documents=documents), Path("out"))
    assert ("embed and search rows; for one vector for each 'ticket'" in said) is noted


def test_the_summary_says_what_became_of_the_rows_and_why_a_candidate_failed():
    said = summary(result(), AdaptOptions(("a.csv",)), Path("out"))
    assert "\ncot-bert-rest failed: the loss is nan\n" in said
    assert "\nrows: 16,341 read, 14,778 kept, 1,563 duplicate (out/corpus/report.html)\n" in said


def test_the_tables_hold_every_score_and_the_candidates_from_the_best():
    assert table_rows(result())[0][1:] == ("51.00", "57.50", "+6.50", "+4.00 to +9.00")
    names, *_ = zip(*(rows := trial_rows(result())), strict=True)
    assert names == (UNTOUCHED, "denosent-rest", "simcse", "cot-bert-rest", "merged")
    assert rows[3][1:] == ("", "60", "90", "failed")


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("chosen", "what"), [(UNTOUCHED, "tried on"), ("denosent-rest", "adapted to")]
)
def test_the_quickstart_s_page_says_whether_the_encoder_was_adapted(tmp_path, chosen, what):
    made = result(chosen) | {"changed_queries": None}
    made["table"] = {"held-out": made["table"]["held-out"]}
    write_report(tmp_path, QuickstartOutcome(made, []), 60.0)
    page = (tmp_path / "report.html").read_text()
    assert f"all-MiniLM-L6-v2, {what} 200 docstrings of installed packages in 1:00." in page

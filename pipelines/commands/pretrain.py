"""cotbert pretrain: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cotbert_core.errors import UserError
from pipelines.commands.prepare import batch_words, prepare_again
from pipelines.commands.printing import print_facts
from pipelines.commands.train import PROFILE
from pipelines.commands.training import CorpusOptions
from pipelines.options import shared
from pipelines.options.declare import MODEL, Option
from pipelines.runtime.ending import free_folder, print_ending, reading_words, rows_again
from pipelines.runtime.progress import print_output

if TYPE_CHECKING:  # torch would slow --help
    from pipelines.pretraining.new_encoder import NewEncoder
    from pipelines.storage.corpus import Corpus

# The recipes that make a new encoder unless --encoder is given, with the size of that encoder.
NEW_ENCODERS = {"mlm-small": "4x256"}
VOCABULARY = 16_000


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    recipe: Annotated[
        str,
        Option(
            "pretrain by this recipe, mlm-base or mlm-small: `cotbert recipes RECIPE` prints its "
            "values",
            "RECIPE",
            positional=True,
        ),
    ]
    training: CorpusOptions
    new: str | None = Option(
        "train a new BERT of this size, with a WordPiece vocabulary made from the corpus",
        "LAYERSxHIDDEN",
        group=MODEL,
        default="4x256 with mlm-small, else none",
    ).field(None)
    vocabulary: int | None = Option(
        "limit the vocabulary of a new encoder to this many tokens",
        "N",
        group=MODEL,
        unit="tokens",
        default=f"{VOCABULARY} tokens",
    ).field(None)
    cased: bool = Option("keep upper case in the vocabulary of a new encoder", group=MODEL).field(
        False
    )
    profile: bool = PROFILE.field(False)
    kept: shared.KeptFiles
    output: shared.JobFolder
    resume: bool = shared.RESUME.field(False)

    def run(self) -> None:
        settings = self.training.settings(self.recipe)
        from cotbert_core.settings import override
        from pipelines.pretraining.pretrain import (
            ENCODER,
            PACKED,
            pretrain,
            require_mlm,
            row_capacity,
        )
        from pipelines.training.baseline_sentence import baseline_sentence
        from pipelines.training.inputs import check_warmup
        from pipelines.training.profiling import read_sections
        from pipelines.training.training_run import RunOptions

        require_mlm(settings)
        check_warmup(settings, settings.max_steps)  # before raw text is prepared
        new = _new_encoder(self)
        if new is None:  # raw text is truncated at the length of a row
            settings = override(settings, {"max_length": row_capacity(settings)})
        corpus = self.training.open_corpus(settings, self.output, inside=(PACKED, ENCODER))
        options = RunOptions(recipe=self.recipe, profile=self.profile, kept=self.kept)
        result = pretrain(settings, corpus, self.output, options, new=new)
        print_facts(result)
        if self.profile:
            print_output("\n" + read_sections(self.output), end="")
        print_ending(baseline_sentence(result), self.output, _next(self, corpus, new is not None))


def _next(given: Pretrain, corpus: Corpus, is_new: bool) -> list[str | Path]:
    """Return the command that uses the encoder: training, which prepares raw text by itself, or
    preparing again if the corpus has the tokens of another tokenizer."""
    model, training = given.output / "model", given.training
    if is_new and corpus.path == Path(training.corpus).expanduser().absolute():
        return prepare_again(corpus, model, free_folder("corpus"))
    recipe, rows = "simcse-base", rows_again((training.corpus,), training.text_column)
    words = ["train", recipe, "--corpus", *rows, *reading_words(training.reading)]
    batch = batch_words(recipe, len(corpus))
    return [*words, "--encoder", model, *batch, "--output", free_folder("runs/mine")]


def _new_encoder(given: Pretrain) -> NewEncoder | None:
    """Return the new encoder that the options describe, or None if they describe none."""
    from pipelines.pretraining.new_encoder import NewEncoder, parse_size

    size = given.new
    if given.training.encoder is None:
        size = size or NEW_ENCODERS.get(given.recipe)
    elif size is not None:
        raise UserError("--new and --encoder are both given: leave one of them out")
    if size is None:
        if given.vocabulary is not None or given.cased:
            raise UserError("--vocabulary and --cased need a new encoder: give --new too")
        return None
    vocabulary = VOCABULARY if given.vocabulary is None else given.vocabulary
    return NewEncoder(*parse_size(size), vocabulary, given.cased)

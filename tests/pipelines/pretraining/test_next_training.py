"""The command that cotbert pretrain prints for the training after it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.commands.pretrain import _next


@pytest.mark.parametrize(("rows", "batch"), [(64, []), (63, ["--batch-size", "31"])])
def test_the_training_after_it_has_batches_no_larger_than_the_corpus(rows, batch):
    class Sentences:
        path = Path("/cache/text")

        def __len__(self):
            return rows

    reading = {"encoding": "latin-1", "delimiter": None}
    training = SimpleNamespace(corpus="text.csv", text_column="body", reading=reading)
    given = SimpleNamespace(output=Path("mlm"), training=training)
    assert _next(given, Sentences(), is_new=False) == [
        *("train", "simcse-base", "--corpus", "text.csv", "--text-column", "body"),
        *("--encoding", "latin-1", "--encoder", Path("mlm/model"), *batch),
        *("--output", "runs/mine"),
    ]

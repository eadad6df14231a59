"""Triples from SICK for the supervised recipes: sentence, entailment, contradiction.

SICK (Marelli et al., LREC 2014) labels pairs of sentences A and B ENTAILMENT, CONTRADICTION or
NEUTRAL. Entailment is directed from A to B, contradiction is symmetric. A sentence with E
entailments and at least one contradiction gives E triples, one for each entailment, which take the
contradictions in turn, cyclically; other sentences give none.

Only SICK_train.txt is read: SICK_trial.txt and SICK_test_annotated.txt are evaluation data.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from cotbert_core.files import write_text
from pipelines.reading.columns import TRIPLES

SICK_FILE = "SICK/SICK_train.txt"
ENTAILMENT, CONTRADICTION = "ENTAILMENT", "CONTRADICTION"


def write_triples(senteval: Path, path: Path) -> None:
    """Write the triples of a SentEval folder as a csv file for `cotbert prepare --triples`."""
    rows = io.StringIO()
    csv.writer(rows, lineterminator="\n").writerows([TRIPLES, *triples(senteval / SICK_FILE)])
    write_text(path, rows.getvalue())


def triples(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the triples in the order in which their sentences occur first."""
    sentences: dict[str, None] = {}  # dictionaries as ordered sets
    entailments: defaultdict[str, dict[str, None]] = defaultdict(dict)
    contradictions: defaultdict[str, dict[str, None]] = defaultdict(dict)
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            first, second = (" ".join(row[f"sentence_{side}"].split()) for side in "AB")
            sentences |= dict.fromkeys((first, second))
            if row["entailment_judgment"].strip() == ENTAILMENT:
                entailments[first][second] = None
            elif row["entailment_judgment"].strip() == CONTRADICTION:
                contradictions[first][second] = contradictions[second][first] = None
    for sentence in sentences:
        if sentence in entailments and sentence in contradictions:
            # Not strict, since the cycle is infinite.
            turn = zip(entailments[sentence], cycle(contradictions[sentence]), strict=False)
            yield from ((sentence, entailment, other) for entailment, other in turn)

"""Compare every fast path with its peer, in one table of ratios: `python -m benchmarks.run`.

A benchmark is a file with `run(texts, rounds) -> list[Row]` and an entry in BENCHMARKS.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    adapting,
    back_translation,
    cleaning,
    denosent,
    embedding,
    encoding,
    keywords,
    onnx_runtime,
    openvino_backend,
    preparing,
    pretraining,
    searching,
    serving,
    sweeping,
    training,
    training_base,
    updating,
)
from benchmarks.harness import (
    DisagreementError,
    Row,
    machine,
    machine_line,
    read_texts,
    table,
    text_parser,
)
from cotbert_core.errors import UserError

BENCHMARKS: dict[str, Callable[[Sequence[str], int], list[Row]]] = {
    "training": training.run,
    "training-base": training_base.run,
    "adapting": adapting.run,
    "denosent": denosent.run,
    "pretraining": pretraining.run,
    "encoding": encoding.run,
    "embedding": embedding.run,
    "updating": updating.run,
    "searching": searching.run,
    "keywords": keywords.run,
    "serving": serving.run,
    "onnx": onnx_runtime.run,
    "openvino": openvino_backend.run,
    "preparing": preparing.run,
    "cleaning": cleaning.run,
    "back-translation": back_translation.run,
    "sweeping": sweeping.run,
}
# These only run by name, since they take minutes.
LONG = ("training-base", "updating")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, 1 if a fast path and its peer disagreed, or 2 for a mistake of the user."""
    parser = text_parser("run")
    parser.add_argument(
        "--only", action="append", choices=BENCHMARKS, help="run this benchmark; repeatable"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="number of runs of each side (default 3)"
    )
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    failed = 0
    try:
        if options.rounds < 1:
            raise UserError(f"--rounds is {options.rounds}: give at least 1")
        texts = read_texts(options.text)
        for name in options.only or (name for name in BENCHMARKS if name not in LONG):
            print(f"{name} ...", file=sys.stderr)
            try:
                rows += BENCHMARKS[name](texts, options.rounds)
            except DisagreementError as error:  # the other rows are kept
                failed = 1
                print(f"error: {name}: {error}", file=sys.stderr)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    facts = machine()
    print(f"{machine_line(facts)}\n\n{table(rows)}")
    if options.json is not None:
        record = {"machine": facts, "rows": [row.record() for row in rows]}
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main())

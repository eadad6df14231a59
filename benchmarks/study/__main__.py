"""`python -m benchmarks.study run | record | page`: the study, its record, and docs/papers.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.study.entries import GROUPS
from benchmarks.study.page import page
from benchmarks.study.picture import picture
from benchmarks.study.record import collect
from benchmarks.study.runs import Study, run
from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json, write_text

PAGE, PICTURE = Path("docs/papers.md"), Path("docs/methods.svg")


def main(arguments: list[str] | None = None) -> int:
    """Return 0, 1 if a command failed (the same call continues), or 2 for a user's mistake."""
    given = _parser().parse_args(arguments)
    try:
        given.act(given)
    except (UserError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    return 0


def _run(given: argparse.Namespace) -> None:
    study = _study(given)
    run(study)
    _write_record(given, study)


def _study(given: argparse.Namespace) -> Study:
    for path in (given.senteval, given.sentences, *given.documents):
        if not path.exists():
            raise UserError(f"{str(path)!r} does not exist: give a file or folder of text")
    return Study(
        output=given.output.absolute(),
        encoder=given.encoder,
        senteval=given.senteval.absolute(),
        sentences=given.sentences.absolute(),
        documents=tuple(path.absolute() for path in given.documents),
        seeds=given.seeds or (10 if given.published else 5),
        steps=None if given.published else given.steps,
        checks=given.checks,
        groups=tuple(given.groups),
        recipes=tuple(given.recipes),
    )


def _write_record(given: argparse.Namespace, study: Study) -> None:
    record = collect(study)
    record["about"]["note"] = given.note
    write_json(given.output / "record.json", record)
    print(f"{len(record['trained'])} trained rows in {given.output / 'record.json'}")


def _page(given: argparse.Namespace) -> None:
    records = [read_json(path) for path in given.records]
    write_text(given.to, page(records))
    write_text(given.picture, picture(records[-1]))
    print(f"wrote {given.to} and {given.picture}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study", description=__doc__)
    acts = parser.add_subparsers(required=True)
    for name, act in (("run", _run), ("record", lambda g: _write_record(g, _study(g)))):
        one = acts.add_parser(name)
        one.set_defaults(act=act)
        one.add_argument("--output", type=Path, required=True, help="the runs' folder")
        one.add_argument("--encoder", required=True, help="a masked language model")
        one.add_argument("--senteval", type=Path, required=True, help="SentEval's data folder")
        one.add_argument(
            "--sentences", type=Path, required=True, help="text file with a sentence per line"
        )
        one.add_argument(
            "--documents", type=Path, nargs="+", required=True, help="files with a document per row"
        )
        one.add_argument(
            "--published", action="store_true", help="train as published, without a small budget"
        )
        one.add_argument("--steps", type=int, default=50, help="steps of each run (default 50)")
        one.add_argument("--checks", type=int, default=5, help="dev checks of each run (default 5)")
        one.add_argument("--seeds", type=int, help="seeds of each entry (default 5; published: 10)")
        names = [group.name for group in GROUPS]
        one.add_argument("--groups", nargs="+", choices=names, default=names)
        recipes = list(dict.fromkeys(e.recipe for group in GROUPS for e in group.entries))
        one.add_argument("--recipes", nargs="+", choices=recipes, default=[], metavar="RECIPE")
        one.add_argument("--note", default="", help="sentence about the encoder on the page")
    made = acts.add_parser("page")
    made.set_defaults(act=_page)
    made.add_argument(
        "records", type=Path, nargs="+", help="records of studies; the plot is of the last"
    )
    made.add_argument("--to", type=Path, default=PAGE)
    made.add_argument("--picture", type=Path, default=PICTURE)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Each command's options and the call they become; the job's module is imported when it runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Arguments = argparse.Namespace


def _job_options(command: argparse.ArgumentParser, output: str) -> None:
    command.add_argument("--output", required=True, type=Path, metavar="DIR", help=output)
    command.add_argument("--verbose", action="store_true", help="show Ray's own output too")


def _reading_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--template", help="read at this template's last mask (a name or a text)")
    command.add_argument("--readout", choices=("mask", "cls", "mean"), help="how a vector is read")
    command.add_argument(
        "--precision", default="auto", choices=("auto", "bf16", "fp32"), help="of the encoder"
    )


def _prepare_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="PATH",
        help="files (txt csv tsv jsonl parquet), folders, globs, docstrings:PACKAGE,...",
    )
    command.add_argument("--encoder", required=True, metavar="NAME", help="whose tokenizer to use")
    command.add_argument("--max-length", type=int, default=32, help="tokens kept of a sentence")
    command.add_argument("--text-column", default="text", help="of csv, tsv, jsonl, parquet")
    command.add_argument("--sample", type=int, metavar="N", help="keep N sentences, same every run")
    command.add_argument(
        "--on-invalid",
        default="drop",
        choices=("drop", "fail"),
        help="rows that are no UTF-8, no JSON or no text: count and drop them, or stop",
    )
    _job_options(command, "new folder for the corpus")


def _prepare(arguments: Arguments) -> None:
    from pipelines.prepare import PrepareOptions, prepare

    options = PrepareOptions(
        tuple(arguments.input),
        arguments.encoder,
        arguments.max_length,
        arguments.text_column,
        arguments.sample,
        arguments.on_invalid,
    )
    _print_result(prepare(options, arguments.output, arguments.verbose))


def _train_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipe", metavar="RECIPE", help="see `cotbert recipes`")
    command.add_argument(
        "--corpus",
        required=True,
        metavar="DIR",
        help="a prepared corpus, or raw text (a file, folder or glob), prepared into a cache",
    )
    command.add_argument("--text-column", default="text", help="of a raw corpus with columns")
    command.add_argument("--encoder", metavar="NAME", help="instead of the recipe's")
    command.add_argument("--workers", type=int, metavar="N", help="instead of the recipe's")
    dev = command.add_mutually_exclusive_group()
    dev.add_argument("--senteval", type=Path, metavar="DIR", help="choose the best by STS-B dev")
    dev.add_argument(
        "--dev-pairs",
        type=Path,
        metavar="FILE",
        help="choose the best by these pairs (tab-separated: score, sentence1, sentence2); "
        "without either, by the pairs in this package",
    )
    command.add_argument("--config", type=Path, metavar="FILE", help="settings in YAML")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=VALUE",
        help="one setting, e.g. optimizer.learning_rate=3e-5; may be repeated",
    )
    command.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    _job_options(command, "new folder for the model, its checkpoints and report")


def _train(arguments: Arguments) -> None:
    from pipelines.recipes import settings_for

    flags = {"encoder": arguments.encoder, "workers": arguments.workers}
    settings = settings_for(arguments.recipe, arguments.config, arguments.set, flags)
    from pipelines.cache import open_or_prepare
    from pipelines.outputs import check_free
    from pipelines.train import dev_pairs, train

    if not arguments.resume:
        check_free(arguments.output)  # before a raw corpus is prepared, which takes long
    dev = dev_pairs(arguments.senteval, arguments.dev_pairs)
    corpus = open_or_prepare(
        arguments.corpus,
        settings.encoder,
        settings.max_length,
        arguments.text_column,
        arguments.verbose,
    )
    result = train(
        settings,
        corpus,
        dev,
        arguments.output,
        resume=arguments.resume,
        verbose=arguments.verbose,
    )
    _print_result(result)


def _evaluate_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="a trained folder or an encoder NAME")
    command.add_argument("--senteval", type=Path, metavar="DIR", help="a SentEval folder")
    command.add_argument(
        "--tasks", help="sts (the default), or some of STS12..STS16,STS-B,SICK-R with commas"
    )
    command.add_argument("--allow-missing", action="store_true", help="skip tasks not there")
    command.add_argument(
        "--dev-pairs", type=Path, metavar="FILE", help="graded pairs; default: this package's"
    )
    _reading_options(command)
    command.add_argument("--output", type=Path, metavar="FILE", help="JSON file to write")
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def _evaluate(arguments: Arguments) -> None:
    from pipelines.evaluate import EvaluateOptions, evaluate

    options = EvaluateOptions(
        arguments.model,
        arguments.senteval,
        arguments.dev_pairs,
        arguments.tasks,
        arguments.allow_missing,
        arguments.template,
        arguments.readout,
        arguments.precision,
    )
    _print_scores(evaluate(options, arguments.output))


def _embed_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="a trained folder or an encoder NAME")
    command.add_argument(
        "--input", nargs="+", required=True, metavar="PATH", help="as for prepare, or a corpus"
    )
    command.add_argument("--text-column", default="text", help="of csv, tsv, jsonl, parquet")
    command.add_argument(
        "--id-column", help="whole numbers; default: `id` of Parquet files, else row numbers"
    )
    command.add_argument(
        "--dtype", default="float32", choices=("float32", "float16"), help="of the vectors"
    )
    command.add_argument("--normalize", action="store_true", help="unit length")
    command.add_argument("--workers", type=int, help="default: one a GPU, or one a machine")
    _reading_options(command)
    _job_options(command, "new folder for the vectors")


def _embed(arguments: Arguments) -> None:
    from pipelines.embed import EmbedOptions, embed

    options = EmbedOptions(
        arguments.model,
        tuple(arguments.input),
        arguments.text_column,
        arguments.id_column,
        arguments.dtype,
        arguments.normalize,
        arguments.workers,
        arguments.template,
        arguments.readout,
        arguments.precision,
    )
    _print_result(embed(options, arguments.output, arguments.verbose))


def _quickstart_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", type=Path, metavar="DIR", help="default: runs/quickstart-TIME")
    command.add_argument("--packages", metavar="NAME,...", help="whose docstrings to learn from")
    command.add_argument("--sentences", type=int, metavar="N", help="most sentences of the corpus")
    command.add_argument("--steps", type=int, metavar="N", help="training steps")
    command.add_argument("--verbose", action="store_true", help="show Ray's own output too")


def _quickstart(arguments: Arguments) -> None:
    from datetime import datetime

    from pipelines.quickstart import quickstart

    name = f"quickstart-{datetime.now():%Y%m%d-%H%M%S}"
    given = {name: getattr(arguments, name) for name in ("packages", "sentences", "steps")}
    changes = {name: value for name, value in given.items() if value is not None}
    quickstart(arguments.output or Path("runs") / name, arguments.verbose, **changes)


def _recipes_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", metavar="RECIPE", help="print this one's settings")


def _recipes(arguments: Arguments) -> None:
    from cotbert_core.errors import unknown
    from cotbert_core.settings import flatten
    from pipelines.recipes import RECIPES

    if arguments.name is None:
        rows = [(name, (recipe.__doc__ or "").strip()) for name, recipe in RECIPES.items()]
        _print_texts(rows)
    elif arguments.name in RECIPES:
        _print_texts([(k, json.dumps(v)) for k, v in flatten(RECIPES[arguments.name]()).items()])
    else:
        raise unknown("recipe", arguments.name, RECIPES)


def _templates(arguments: Arguments) -> None:
    from cotbert_core.templates import TEMPLATES

    _print_texts([(name, template.text) for name, template in TEMPLATES.items()])


def _print_texts(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name.ljust(width)}  {text}")


def _print_result(result: dict[str, Any]) -> None:
    _print_texts(
        [(key, f"{v:,.4g}" if isinstance(v, float) else str(v)) for key, v in result.items()]
    )


def _print_scores(result: dict[str, Any]) -> None:
    from pipelines.progress import table

    columns = ("spearman", "mean", "wmean", "alignment", "uniformity", "pairs")
    tasks = {name: value for name, value in result.items() if isinstance(value, dict)}
    used = [c for c in columns if any(c in scores for scores in tasks.values())]
    rows = [(name, *(_cell(scores.get(c)) for c in used)) for name, scores in tasks.items()]
    if "average" in result:
        rows.append(("average", _cell(result["average"]), *[""] * (len(used) - 1)))
    print(table(rows, ("task", *used)))


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def _no_options(command: argparse.ArgumentParser) -> None:
    pass


Command = tuple[Callable[[argparse.ArgumentParser], None], Callable[[Arguments], None], str]
COMMANDS: dict[str, Command] = {
    "quickstart": (_quickstart_options, _quickstart, "the whole main job on this machine"),
    "prepare": (_prepare_options, _prepare, "make a corpus: distinct, tokenized sentences"),
    "train": (_train_options, _train, "train an encoder by a recipe on a corpus"),
    "evaluate": (_evaluate_options, _evaluate, "score an encoder on STS tasks or graded pairs"),
    "embed": (_embed_options, _embed, "turn text into vectors in Parquet"),
    "recipes": (_recipes_options, _recipes, "list the training recipes, or print one"),
    "templates": (_no_options, _templates, "list the templates"),
}

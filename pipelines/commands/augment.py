"""cotbert augment: its options, and the call they become."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from pipelines.augmenting.options import (
    ENGINES,
    ON_FAILURE,
    PRECISIONS,
    AugmentOptions,
    BackTranslation,
    Limits,
    LlmRewriting,
    Method,
)
from pipelines.commands.options import Arguments, job_options
from pipelines.commands.printing import print_result

METHODS: dict[str, type[BackTranslation] | type[LlmRewriting]] = {
    BackTranslation.name: BackTranslation,
    LlmRewriting.name: LlmRewriting,
}
# For each field of a method's options, what argparse is told; the default is the field's own.
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    BackTranslation.name: {
        "forward": {"metavar": "MODEL", "help": "Marian model into the pivot: hub name or folder"},
        "backward": {"metavar": "MODEL", "help": "Marian model back"},
        "forward_prefix": {
            "metavar": "TOKEN",
            "help": "language token of a model that writes several languages, such as >>cmn_Hans<<;"
            " '' for none (default: what the vocabulary suggests)",
        },
        "backward_prefix": {"metavar": "TOKEN", "help": "the same for the model back"},
        "engine": {
            "choices": ENGINES,
            "help": "auto: ctranslate2 where it is installed and there is no GPU",
        },
        "precision": {
            "choices": PRECISIONS,
            "help": "auto: int8 with ctranslate2, float16 on a GPU, else float32",
        },
        "beam": {"type": int, "metavar": "N", "help": "outputs followed at a time; 1: greedy"},
        "top_k": {"type": int, "metavar": "N", "help": "sample from the N likeliest; 0: from all"},
        "seed": {"type": int, "metavar": "N", "help": "of sampling"},
        "max_length_factor": {
            "type": float,
            "metavar": "X",
            "help": "tokens written at most for each token read",
        },
        "batch_tokens": {
            "type": int,
            "metavar": "N",
            "help": "source tokens translated at a time (default: 4096, on a GPU 32768)",
        },
    },
    LlmRewriting.name: {
        "base_url": {"metavar": "URL", "help": "of an endpoint that speaks chat completions"},
        "model": {"metavar": "NAME", "help": "the endpoint's name for it (required)"},
        "key_variable": {
            "metavar": "NAME",
            "help": "environment variable that holds the key (default: OPENAI_API_KEY, where set)",
        },
        "prompt": {
            "type": Path,
            "metavar": "FILE",
            "help": "what is asked, with {sentence} in it (default: for a paraphrase)",
        },
        "max_answer_tokens": {
            "type": int,
            "metavar": "N",
            "help": "of one answer (default: the endpoint's)",
        },
        "concurrency": {"type": int, "metavar": "N", "help": "requests under way at most"},
        "requests_per_minute": {"type": float, "metavar": "N", "help": "(default: no limit)"},
        "retries": {
            "type": int,
            "metavar": "N",
            "help": "after a timeout, status 429 or 5xx, or no usable answer",
        },
        "timeout": {"type": float, "metavar": "SECONDS", "help": "of one request"},
        "budget_tokens": {
            "type": int,
            "metavar": "N",
            "help": "stop before more are spent, earlier runs counted (default: no limit)",
        },
        "price_in": {"type": float, "metavar": "X", "help": "of a million tokens read"},
        "price_out": {"type": float, "metavar": "X", "help": "of a million tokens written"},
        "on_failure": {
            "choices": ON_FAILURE,
            "help": "a sentence without a usable answer: keep its source, or stop the job",
        },
    },
}
SHARED = {
    "temperature": {
        "type": float,
        "metavar": "X",
        "help": "sample (default: back-translation by beam, llm as the endpoint does)",
    },
}


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--corpus", required=True, metavar="DIR", help="a prepared corpus")
    command.add_argument("--method", required=True, choices=tuple(METHODS), help="of rewriting")
    limits = Limits()
    command.add_argument(
        "--min-ratio",
        type=float,
        default=limits.min_ratio,
        metavar="X",
        help="a rewrite with fewer words for each of its source's is dropped",
    )
    command.add_argument(
        "--max-ratio", type=float, default=limits.max_ratio, metavar="X", help="or with more"
    )
    command.add_argument(
        "--encoder", metavar="NAME", help="whose tokenizer the corpus has, if it was moved"
    )
    command.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="of back-translation (default: one a GPU, or one a machine)",
    )
    _add(command, SHARED, {})
    for name, options in OPTIONS.items():
        own = {f.name: f.default for f in fields(METHODS[name]) if f.default is not MISSING}
        _add(command.add_argument_group(f"--method {name}"), options, own)
    job_options(command, "new folder for the corpus")


def _add(group: Any, options: dict[str, dict[str, Any]], defaults: dict[str, Any]) -> None:
    """Options without a default here, so that one which was given is known to have been."""
    for name, told in options.items():
        default = defaults.get(name)
        shown = "" if default is None else f" (default: {default})"
        group.add_argument(_flag(name), **{**told, "help": told["help"] + shown})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def run(arguments: Arguments) -> None:
    from pipelines.augment import augment

    options = AugmentOptions(
        arguments.corpus,
        _method(arguments),
        Limits(arguments.min_ratio, arguments.max_ratio),
        arguments.encoder,
        arguments.workers,
    )
    print_result(augment(options, arguments.output, arguments.verbose))


def _method(arguments: Arguments) -> Method:
    """The chosen method with the options that were given."""
    names = (*OPTIONS[arguments.method], *SHARED)
    given = {n: v for n in names if (v := getattr(arguments, n)) is not None}
    for other, options in OPTIONS.items():
        wrong = [n for n in options if n not in names and getattr(arguments, n) is not None]
        if wrong:
            raise UserError(
                f"{_flag(wrong[0])} belongs to --method {other} and the method is "
                f"{arguments.method}: leave it out"
            )
    if arguments.method == BackTranslation.name:
        return BackTranslation(**given)
    from pipelines.augmenting.llm_rewriting import read_prompt

    if "model" not in given:
        raise UserError("--method llm has no --model: name the endpoint's model")
    return LlmRewriting(**{**given, "prompt": read_prompt(given.get("prompt"))})

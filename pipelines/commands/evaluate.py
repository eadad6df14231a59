"""cotbert evaluate: its options, and the call they become."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.commands.options import Arguments, encoding_option, names_of
from pipelines.commands.printing import print_differences, print_scores

READOUTS = ("mask", "cls", "mean", "last", "first-last", "static", "top-tokens")


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a trained folder or an encoder NAME; or NAME,template=TEMPLATE, or NAME,readout=WAY; "
        "several are compared with the first",
    )
    command.add_argument("--senteval", type=Path, metavar="DIR", help="a SentEval folder")
    command.add_argument(
        "--tasks",
        help="with commas: sts (the default), transfer, or some of STS12..STS16 STS-B SICK-R and "
        "of MR CR SUBJ MPQA SST2 TREC MRPC; last mteb (DenoSent's fifteen) or mteb:NAME,... with "
        "names of MTEB or classification, reranking, retrieval (the extra mteb, and the hub)",
    )
    command.add_argument("--allow-missing", action="store_true", help="skip tasks not there")
    command.add_argument(
        "--dev-pairs", type=Path, metavar="FILE", help="graded pairs; default: this package's"
    )
    _readout_options(command)
    command.add_argument(
        "--resamples",
        type=int,
        metavar="N",
        help="of the bootstrap behind the 95 %% intervals; 0: no intervals (default: 1000)",
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="JSON file to write")
    command.add_argument(
        "--report",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="page (.html) or Markdown table (.md) to write, beside published scores; may be "
        "repeated",
    )
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def _readout_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--template", help="read at this template's last mask (a name or a text)")
    command.add_argument(
        "--readout",
        choices=READOUTS,
        help="how a vector is read: at the mask, first token, mean of the last layer (mean as the "
        "folder normalises it, last as it is) or of the first and last, of the static token "
        "embeddings, of the mask's likeliest tokens; default: as it was trained",
    )
    command.add_argument(
        "--remove",
        metavar="BIAS,...",
        help="static: leave out frequent, subwords, case, punctuation (PromptBERT Table 3)",
    )
    command.add_argument(
        "--frequent-count", type=int, metavar="N", help="tokens that are frequent (default: 36)"
    )
    command.add_argument(
        "--top-k", type=int, metavar="K", help="top-tokens: how many tokens (default: 200)"
    )
    command.add_argument(
        "--denoise",
        choices=("none", "position", "pad"),
        help="mask, top-tokens: subtract the empty template's vector; default: as it was trained",
    )
    command.add_argument(
        "--whiten",
        metavar="FILE",
        help="whiten vectors by those of this text (as for prepare, or a corpus), or by those of "
        "the scored sentences: tasks",
    )
    encoding_option(command, "--whiten")
    command.add_argument(
        "--whiten-dimensions", type=int, metavar="K", help="keep so many (default: all)"
    )
    command.add_argument(
        "--precision", default="auto", choices=("auto", "bf16", "fp32"), help="of the encoder"
    )


def run(arguments: Arguments) -> None:
    from pipelines.evaluate import evaluate, evaluate_several

    options = _options(arguments)
    several = [options.of_model(model) for model in arguments.models]
    if len(several) == 1:
        print_scores(evaluate(several[0], arguments.output, reports=arguments.report))
    else:
        print_differences(evaluate_several(several, arguments.output, reports=arguments.report))


def _options(arguments: Arguments) -> Any:
    """EvaluateOptions of all models, under the first one's name."""
    from pipelines.evaluating.options import EvaluateOptions

    options = EvaluateOptions(
        arguments.models[0],
        arguments.senteval,
        arguments.dev_pairs,
        arguments.tasks,
        arguments.allow_missing,
        arguments.template,
        arguments.readout,
        arguments.precision,
        names_of(arguments.remove),
        arguments.frequent_count,
        arguments.top_k,
        arguments.denoise,
        arguments.whiten,
        arguments.whiten_dimensions,
        encoding=arguments.encoding,
    )
    if arguments.resamples is None:
        return options
    return replace(options, resamples=arguments.resamples)

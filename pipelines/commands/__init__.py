"""The commands: one file each for its options and the call they become.

A job's own module is imported when the job runs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pipelines.commands import (
    augment,
    cluster,
    compare,
    embed,
    evaluate,
    export,
    generate_templates,
    geometry,
    index,
    listings,
    prepare,
    quickstart,
    search,
    search_template,
    submit,
    tokens,
    track_sync,
    train,
    tune,
)
from pipelines.commands.options import Arguments

Command = tuple[Callable[[argparse.ArgumentParser], None], Callable[[Arguments], None], str]
COMMANDS: dict[str, Command] = {
    "quickstart": (
        quickstart.add_options,
        quickstart.run,
        "the whole main job on this machine",
    ),
    "prepare": (
        prepare.add_options,
        prepare.run,
        "make a corpus: distinct, tokenized sentences",
    ),
    "augment": (
        augment.add_options,
        augment.run,
        "give each sentence of a corpus a rewrite: a back-translation or a language model's",
    ),
    "train": (train.add_options, train.run, "train an encoder by a recipe on a corpus"),
    "tune": (
        tune.add_options,
        tune.run,
        "search a space of settings: many trainings, compared in one MLflow run",
    ),
    "compare": (
        compare.add_options,
        compare.run,
        "train several recipes on one budget and seeds, and table their scores",
    ),
    "evaluate": (
        evaluate.add_options,
        evaluate.run,
        "score an encoder on STS tasks or graded pairs",
    ),
    "embed": (embed.add_options, embed.run, "turn text into vectors in Parquet"),
    "search": (
        search.add_options,
        search.run,
        "find the texts nearest to a query among the vectors of embed",
    ),
    "index": (
        index.add_options,
        index.run,
        "make a FAISS index of the vectors of embed",
    ),
    "export": (
        export.add_options,
        export.run,
        "write an encoder as an ONNX graph, or as a folder of safetensors",
    ),
    "geometry": (
        geometry.add_options,
        geometry.run,
        "compare how the vectors of several encoders lie",
    ),
    "tokens": (
        tokens.tokens_options,
        tokens.tokens,
        "show the tokens that a template's mask predicts",
    ),
    "token-map": (
        tokens.map_options,
        tokens.token_map,
        "draw an encoder's vocabulary by frequency and kind",
    ),
    "search-template": (
        search_template.add_options,
        search_template.run,
        "find the template under which an untrained encoder tells sentences apart best",
    ),
    "generate-templates": (
        generate_templates.add_options,
        generate_templates.run,
        "make templates with T5 from words and their definitions",
    ),
    "cluster": (
        cluster.add_options,
        cluster.run,
        "bring up, or take down, a Ray cluster of several nodes on this machine",
    ),
    "submit": (
        submit.add_options,
        submit.run,
        "run a command on a Ray cluster, ask after it, stop it",
    ),
    "track-sync": (
        track_sync.add_options,
        track_sync.run,
        "send what jobs kept while MLflow did not answer",
    ),
    "recipes": (
        listings.recipes_options,
        listings.recipes,
        "list the training recipes, or print one",
    ),
    "spaces": (
        listings.spaces_options,
        listings.spaces,
        "list the search spaces, or print one",
    ),
    "templates": (listings.no_options, listings.templates, "list the templates"),
}

__all__ = ["COMMANDS", "Arguments", "Command"]

"""The commands, one file each: a dataclass of the options with a method that runs the job.

The job's module is imported only when the job runs, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import NamedTuple

from pipelines.commands import (
    adapt,
    augment,
    cluster,
    compare,
    data,
    embed,
    evaluate,
    geometry,
    index,
    listings,
    models,
    prepare,
    pretrain,
    quickstart,
    search,
    serve,
    submit,
    templates,
    track_sync,
    train,
    tune,
)


class Command(NamedTuple):
    """A command: the dataclass of its options, whose `run` runs it, and a line of help."""

    options: type
    help: str


COMMANDS: dict[str, Command] = {
    "quickstart": Command(
        quickstart.Quickstart,
        "adapt an encoder to the docstrings of installed packages, and embed the held-out ones",
    ),
    "adapt": Command(
        adapt.Adapt, "adapt an encoder to your text: choose the best training method without labels"
    ),
    "prepare": Command(prepare.Prepare, "make a corpus of distinct, tokenized sentences from text"),
    "augment": Command(
        augment.Augment,
        "add a rewrite of each sentence to a corpus, by back-translation or a language model",
    ),
    "train": Command(train.Train, "train an encoder by a recipe on a corpus"),
    "pretrain": Command(
        pretrain.Pretrain, "train an encoder, or a new one, as a masked language model on a corpus"
    ),
    "tune": Command(tune.Tune, "search a space of settings: many trainings in one MLflow run"),
    "compare": Command(
        compare.Compare,
        "train several recipes with the same budget and seeds, and compare their scores",
    ),
    "evaluate": Command(
        evaluate.Evaluate,
        "score encoders on STS, transfer and MTEB tasks, graded pairs, own documents or labels",
    ),
    "data": Command(data.Data, "count the rows of SentEval's tasks in a folder, or download it"),
    "embed": Command(embed.Embed, "turn text into vectors in Parquet files"),
    "search": Command(
        search.Search, "find the texts closest to a query among the vectors of embed"
    ),
    "index": Command(index.Index, "build a FAISS index of the vectors of embed"),
    "serve": Command(serve.Serve, "answer requests for embeddings over HTTP, as OpenAI's API does"),
    "export": Command(
        models.Export, "write an encoder as an ONNX graph or a folder of safetensors"
    ),
    "quantize": Command(
        models.Quantize, "make an encoder faster on CPUs, by an int8 graph calibrated on your texts"
    ),
    "merge": Command(models.Merge, "average the weights of two equally shaped encoders"),
    "geometry": Command(
        geometry.Geometry,
        "compare alignment, uniformity and anisotropy of the vectors of several encoders",
    ),
    "tokens": Command(
        templates.Tokens, "show the tokens that an encoder predicts at a template's mask"
    ),
    "token-map": Command(
        templates.TokenMap,
        "draw an encoder's vocabulary in two dimensions, by token frequency and kind",
    ),
    "search-template": Command(
        templates.SearchTemplate,
        "find the template that gives an untrained encoder the best dev score",
    ),
    "generate-templates": Command(
        templates.GenerateTemplates, "generate templates with T5 from words and their definitions"
    ),
    "cluster": Command(
        cluster.Cluster, "start or stop a Ray cluster of several nodes on this machine"
    ),
    "submit": Command(submit.Submit, "run a command on a Ray cluster, show its state, or stop it"),
    "track-sync": Command(
        track_sync.TrackSync, "send MLflow the records that jobs stored while it did not answer"
    ),
    "recipes": Command(listings.Recipes, "list the training recipes, or print one"),
    "spaces": Command(listings.Spaces, "list the search spaces, or print one"),
    "templates": Command(listings.Templates, "list the templates"),
}

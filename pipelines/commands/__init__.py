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
    """A command: the dataclass of its options, whose `run` runs it, a line of help, and an example
    command line, which ends its --help."""

    options: type
    help: str
    example: str


COMMANDS: dict[str, Command] = {
    "quickstart": Command(
        quickstart.Quickstart,
        "adapt an encoder to the docstrings of installed packages, and search the held-out ones",
        "cotbert quickstart --output runs/first",
    ),
    "adapt": Command(
        adapt.Adapt,
        "adapt an encoder to your text: choose the best training method without labels",
        """cotbert adapt tickets.csv --text-column subject,body --split en \\
      --output runs/mine""",
    ),
    "prepare": Command(
        prepare.Prepare,
        "make a corpus of distinct, tokenized sentences from text",
        """cotbert prepare --input texts.csv --text-column body --split en \\
      --encoder bert-base-uncased --output corpus""",
    ),
    "augment": Command(
        augment.Augment,
        "add a rewrite of each sentence to a corpus, by back-translation or a language model",
        """cotbert augment --corpus corpus --method back-translation \\
      --output augmented""",
    ),
    "train": Command(
        train.Train,
        "train an encoder by a recipe on a corpus",
        "cotbert train cot-bert-base --corpus sentences.txt --output runs/mine",
    ),
    "pretrain": Command(
        pretrain.Pretrain,
        "train an encoder, or a new one, as a masked language model on a corpus",
        "cotbert pretrain mlm-base --corpus corpus --output runs/language-model",
    ),
    "tune": Command(
        tune.Tune,
        "search a space of settings: many trainings in one MLflow run",
        "cotbert tune temperature --corpus corpus --trials 10 --output runs/sweep",
    ),
    "compare": Command(
        compare.Compare,
        "train several recipes with the same budget and seeds, and compare their scores",
        """cotbert compare cot-bert-base simcse-base --corpus corpus --seeds 3 \\
      --output runs/compared""",
    ),
    "evaluate": Command(
        evaluate.Evaluate,
        "score encoders on STS, transfer and MTEB tasks, graded pairs, own documents or labels",
        """cotbert evaluate all-MiniLM-L6-v2 runs/mine/model --senteval SentEval \\
      --tasks sts""",
    ),
    "data": Command(
        data.Data,
        "count the rows of SentEval's tasks in a folder, or download it",
        "cotbert data check SentEval/data",
    ),
    "embed": Command(
        embed.Embed,
        "turn text into vectors in Parquet files",
        "cotbert embed runs/mine/model --input texts.parquet --output vectors",
    ),
    "search": Command(
        search.Search,
        "find the texts closest to a query among the vectors of embed",
        'cotbert search vectors "a delayed parcel" --text texts.parquet',
    ),
    "index": Command(
        index.Index,
        "build a FAISS index of the vectors of embed",
        "cotbert index vectors --output vectors.faiss",
    ),
    "serve": Command(
        serve.Serve,
        "answer requests for embeddings over HTTP, as OpenAI's API does",
        "cotbert serve runs/mine/model --port 8000",
    ),
    "export": Command(
        models.Export,
        "write an encoder as an ONNX graph or a folder of safetensors",
        "cotbert export runs/mine/model --format onnx --output graph",
    ),
    "quantize": Command(
        models.Quantize,
        "make an encoder faster on CPUs, by an int8 graph calibrated on your texts",
        "cotbert quantize runs/mine/model --input texts.parquet --output fast",
    ),
    "merge": Command(
        models.Merge,
        "average the weights of two equally shaped encoders",
        "cotbert merge all-MiniLM-L6-v2 runs/mine/model --output merged",
    ),
    "geometry": Command(
        geometry.Geometry,
        "compare alignment, uniformity and anisotropy of the vectors of several encoders",
        """cotbert geometry all-MiniLM-L6-v2 runs/mine/model \\
      --output runs/geometry""",
    ),
    "tokens": Command(
        templates.Tokens,
        "show the tokens that an encoder predicts at a template's mask",
        'cotbert tokens bert-base-uncased "Two dogs run." --top 5',
    ),
    "token-map": Command(
        templates.TokenMap,
        "draw an encoder's vocabulary in two dimensions, by token frequency and kind",
        "cotbert token-map bert-base-uncased --output runs/tokens",
    ),
    "search-template": Command(
        templates.SearchTemplate,
        "find the template that gives an untrained encoder the best dev score",
        "cotbert search-template bert-base-uncased --output runs/template",
    ),
    "generate-templates": Command(
        templates.GenerateTemplates,
        "generate templates with T5 from words and their definitions",
        """cotbert generate-templates t5-large --definitions words.tsv \\
      --output templates.txt""",
    ),
    "cluster": Command(
        cluster.Cluster,
        "start or stop a Ray cluster of several nodes on this machine",
        "cotbert cluster up --nodes 3",
    ),
    "submit": Command(
        submit.Submit,
        "run a command on a Ray cluster, show its state, or stop it",
        """cotbert submit --address http://head:8265 -- train cot-bert-base \\
      --corpus /mnt/cotbert/corpus --output /mnt/cotbert/runs/mine""",
    ),
    "track-sync": Command(
        track_sync.TrackSync,
        "send MLflow the records that jobs stored while it did not answer",
        "cotbert track-sync runs/mine",
    ),
    "recipes": Command(
        listings.Recipes,
        "list the training recipes, or print one",
        "cotbert recipes cot-bert-base",
    ),
    "spaces": Command(
        listings.Spaces,
        "list the search spaces, or print one",
        "cotbert spaces temperature",
    ),
    "templates": Command(
        listings.Templates,
        "list the templates",
        "cotbert templates",
    ),
}

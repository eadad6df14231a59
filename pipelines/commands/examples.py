"""An example command line for each command, shown at the end of its --help."""

from __future__ import annotations

EXAMPLES = {
    "quickstart": "cotbert quickstart --output runs/first",
    "adapt": """cotbert adapt tickets.csv --text-column subject,body --split en \\
      --output runs/mine""",
    "prepare": """cotbert prepare --input texts.csv --text-column body --split en \\
      --encoder bert-base-uncased --output corpus""",
    "augment": """cotbert augment --corpus corpus --method back-translation \\
      --output augmented""",
    "train": "cotbert train cot-bert-base --corpus sentences.txt --output runs/mine",
    "pretrain": "cotbert pretrain mlm-base --corpus corpus --output runs/language-model",
    "tune": "cotbert tune temperature --corpus corpus --trials 10 --output runs/sweep",
    "compare": """cotbert compare cot-bert-base simcse-base --corpus corpus --seeds 3 \\
      --output runs/compared""",
    "evaluate": """cotbert evaluate all-MiniLM-L6-v2 runs/mine/model --senteval SentEval \\
      --tasks sts""",
    "data": "cotbert data check SentEval/data",
    "embed": "cotbert embed runs/mine/model --input texts.parquet --output vectors",
    "search": 'cotbert search vectors "a delayed parcel" --text texts.parquet',
    "index": "cotbert index vectors --output vectors.faiss",
    "serve": "cotbert serve runs/mine/model --port 8000",
    "export": "cotbert export runs/mine/model --format onnx --output graph",
    "quantize": "cotbert quantize runs/mine/model --input texts.parquet --output fast",
    "merge": "cotbert merge all-MiniLM-L6-v2 runs/mine/model --output merged",
    "geometry": """cotbert geometry all-MiniLM-L6-v2 runs/mine/model \\
      --output runs/geometry""",
    "tokens": 'cotbert tokens bert-base-uncased "Two dogs run." --top 5',
    "token-map": "cotbert token-map bert-base-uncased --output runs/tokens",
    "search-template": "cotbert search-template bert-base-uncased --output runs/template",
    "generate-templates": """cotbert generate-templates t5-large --definitions words.tsv \\
      --output templates.txt""",
    "cluster": "cotbert cluster up --nodes 3",
    "submit": """cotbert submit --address http://head:8265 -- train cot-bert-base \\
      --corpus /mnt/cotbert/corpus --output /mnt/cotbert/runs/mine""",
    "track-sync": "cotbert track-sync runs/mine",
    "recipes": "cotbert recipes cot-bert-base",
    "spaces": "cotbert spaces temperature",
    "templates": "cotbert templates",
}

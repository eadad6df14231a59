"""The values that a setting or an option may take, and a default that the core shares.

Imported by the command line: nothing heavy.
"""

from __future__ import annotations

from typing import Literal

Precision = Literal["auto", "bf16", "fp32"]
Attention = Literal["auto", "plain", "eager", "sdpa", "unpadded"]
Backend = Literal["auto", "torch", "openvino"]
# The readouts of a sentence without a template, and those of one with a mask.
Pooling = Literal["cls", "mean"]
Readout = Literal["mask", Pooling]
# How the vector of an empty template is computed, and whether it is subtracted.
EmptyTemplate = Literal["position", "pad"]
Denoise = Literal["none", EmptyTemplate]

# The weight of BM25 beside a cosine. Of 0.1, 0.2, 0.3, 0.5 and 1 this one found most dev queries
# first: of docstrings 52.4 % (the cosine alone 45.1), of film reviews 25.6 % (17.8).
KEYWORD_WEIGHT = 0.3

"""A pickled encoder in a process that has not loaded an encoder, as of joblib or a data loader."""

import pickle
import subprocess
import sys

import numpy as np

from cotbert_core import SentenceEncoder

TEXTS = ["Two dogs run", "oil", "a typed [MASK]"]
READ = (
    f"TEXTS = {TEXTS}"
    + """
import gc, os, pickle, sys
gc.disable()  # looking for garbage during the imports and at the end took 2 s of 4
import numpy as np
import transformers.models.bert.modeling_bert, cotbert_core.sentence_encoder
for name in sys.argv[1:]:
    if os.fork() == 0:  # a process for each, with the same modules
        with open(name, "rb") as file:
            vectors = pickle.load(file).encode(TEXTS, precision="fp32")
        np.save(f"{name}.npy", vectors)
        os._exit(0)
    assert os.wait()[1] == 0, name
os._exit(0)
"""
)


def test_a_pickled_encoder_encodes_in_a_new_process(bert_folder, tmp_path):
    encoders = {}
    for attention in ("auto", "unpadded"):
        path = tmp_path / attention
        encoders[str(path)] = SentenceEncoder.from_pretrained(bert_folder, attention=attention)
        path.write_bytes(pickle.dumps(encoders[str(path)]))
    subprocess.run([sys.executable, "-c", READ, *encoders], check=True)
    for path, encoder in encoders.items():
        expected = encoder.encode(TEXTS, precision="fp32")
        np.testing.assert_allclose(np.load(f"{path}.npy"), expected, atol=1e-6)

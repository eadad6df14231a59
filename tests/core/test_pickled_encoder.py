"""A pickled encoder in a process that has not loaded an encoder, as of joblib or a data loader."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from cotbert_core import SentenceEncoder

READ = """
import pickle, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    np.save(sys.argv[2], pickle.load(file).encode(["Two dogs run", "oil"], precision="fp32"))
"""


@pytest.mark.parametrize("attention", ["auto", "unpadded"])
def test_a_pickled_encoder_encodes_in_a_new_process(bert_folder, tmp_path, attention):
    encoder = SentenceEncoder.from_pretrained(bert_folder, attention=attention)
    (tmp_path / "encoder").write_bytes(pickle.dumps(encoder))
    given = [str(tmp_path / name) for name in ("encoder", "vectors.npy")]
    subprocess.run([sys.executable, "-c", READ, *given], check=True)
    expected = encoder.encode(["Two dogs run", "oil"], precision="fp32")
    np.testing.assert_allclose(np.load(given[1]), expected, atol=1e-6)

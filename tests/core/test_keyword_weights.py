"""The weights of keyword search in a model folder."""

import pytest

from cotbert_core.errors import UserError
from cotbert_core.saving.keyword_weights import keyword_weight, save_keyword_weights


def weights(folder):
    return [keyword_weight(str(folder), passages=passages) for passages in (False, True)]


def test_a_folder_has_the_default_weight_until_it_gets_its_own(tmp_path):
    assert weights(tmp_path) == [0.3, 0.3]
    save_keyword_weights(tmp_path, 0.15)
    assert weights(tmp_path) == [0.15, 0.3]
    save_keyword_weights(tmp_path, 0.2, 0.7)
    assert weights(tmp_path) == [0.2, 0.7]


@pytest.mark.parametrize("text", ["[]", '{"keyword_weight": "a"}', '{"keyword_weight": -1}', "{"])
def test_a_damaged_file_is_refused(tmp_path, text):
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(UserError, match=r"search.json"):
        weights(tmp_path)

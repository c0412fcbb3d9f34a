"""Item ids and indexes: a bijection that never meets a special token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.contract.id_rule import MAX_ID_LENGTH, is_valid_id
from model.contract.vocabulary import PAD, UNKNOWN, Vocabulary, VocabularyError

ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=12)
catalogues = st.lists(ids, min_size=1, max_size=40)


@given(catalogues)
def test_decode_undoes_encode(items):
    """Every id comes back from its index, in any order."""
    vocabulary = Vocabulary.from_items(items)
    assert vocabulary.decode(vocabulary.encode(items).tolist()) == items


@given(catalogues)
def test_indexes_fill_the_space_between_pad_and_mask(items):
    """V items have the indexes 1 to V exactly; PAD and MASK lie outside."""
    vocabulary = Vocabulary.from_items(items)
    indexes = sorted(vocabulary.encode(set(items)).tolist())
    assert indexes == list(range(PAD + 1, vocabulary.mask_index))
    assert vocabulary.table_size == vocabulary.mask_index + 1


@given(catalogues)
def test_lower_index_means_lower_id(items):
    """Ties broken by index are ties broken by id."""
    vocabulary = Vocabulary.from_items(items)
    ordered = sorted(set(items))
    assert vocabulary.encode(ordered).tolist() == sorted(vocabulary.encode(ordered).tolist())


@given(catalogues)
def test_bytes_round_trip(items):
    """The written vocabulary reads back as it was."""
    vocabulary = Vocabulary.from_items(items)
    assert Vocabulary.from_bytes(vocabulary.to_bytes()).item_ids == vocabulary.item_ids


@given(catalogues, ids)
def test_no_string_maps_to_a_special_token(items, asked):
    """An id is an item of the vocabulary or UNKNOWN, whatever it spells."""
    vocabulary = Vocabulary.from_items(items)
    index = vocabulary.index_of(asked)
    assert index == UNKNOWN if asked not in items else 1 <= index <= len(vocabulary)


@pytest.mark.parametrize("spelling", ["[mask]", "[MASK]", "[PAD]", "<unk>", "0", "__proto__"])
def test_special_spellings_are_plain_ids(spelling):
    """Ids that look like tokens are items like any other."""
    vocabulary = Vocabulary.from_items([spelling, "a"])
    assert 1 <= vocabulary.index_of(spelling) <= 2
    assert vocabulary.decode([vocabulary.index_of(spelling)]) == [spelling]


def test_unknown_items_are_marked_and_left_out():
    """`encode` keeps a place for an unknown item, `encode_known` does not."""
    vocabulary = Vocabulary(["a", "b"])
    assert vocabulary.encode(["b", "x", "a"]).tolist() == [2, UNKNOWN, 1]
    assert vocabulary.encode_known(["b", "x", "a"]).tolist() == [2, 1]
    assert vocabulary.encode_known([]).dtype == np.int32


@pytest.mark.parametrize("index", [PAD, 3, -1, 99])
def test_decode_refuses_what_is_no_item(index):
    """PAD, MASK and anything outside have no id."""
    with pytest.raises(VocabularyError, match=str(index)):
        Vocabulary(["a", "b"]).decode([index])


@pytest.mark.parametrize("bad", ["", " ", "a b", "a\n", "é", "a\x00", "x" * (MAX_ID_LENGTH + 1), "\ud800"])
def test_id_rule_refuses(bad):
    """Empty, spaced, non-ASCII, control or overlong ids break the rule, in a vocabulary too."""
    assert not is_valid_id(bad)
    with pytest.raises(VocabularyError):
        Vocabulary([bad])


@pytest.mark.parametrize("good", ["a", "!", "~", "a/b", "100%", '{"x":1}', "x" * MAX_ID_LENGTH])
def test_id_rule_accepts_any_punctuation(good):
    """Printable ASCII without spaces is fine up to the full length."""
    assert is_valid_id(good)


@pytest.mark.parametrize("items", [[], ["b", "a"], ["a", "a"]])
def test_vocabulary_wants_distinct_sorted_items(items):
    """An empty, unsorted or repeated list is refused."""
    with pytest.raises(VocabularyError):
        Vocabulary(items)


@pytest.mark.parametrize("content", [b"", b"a\n\nb\n", b"b\na\n", b"a b\n", "é\n".encode()])
def test_damaged_bytes_are_refused(content):
    """A vocabulary file that breaks a rule does not load."""
    with pytest.raises(VocabularyError):
        Vocabulary.from_bytes(content)

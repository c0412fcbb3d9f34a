"""Ids that break the id rule: one encoding, reversible, and none for those that keep it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.contract.event_logs.ids import ID_RULE, decode_id, encode_id
from model.contract.vocabulary import MAX_ID_LENGTH, is_valid_id


@pytest.mark.parametrize(
    ("original", "encoded"),
    [
        ("café au lait", "caf%C3%A9%20au%20lait"),
        ("100%", "100%25"),
        ("a%20b", "a%2520b"),
        ("a b", "a%20b"),
        ("\t\n\x00", "%09%0A%00"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~", "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    ],
)
def test_only_what_breaks_the_rule_is_encoded(original, encoded):
    """And the percent sign, without which one could not tell what was."""
    assert encode_id(original) == encoded
    assert decode_id(encoded) == original


@given(st.text(min_size=1, max_size=25))
def test_every_id_comes_back(original):
    """Whatever the text: encoded it keeps the id rule, and decoded it is itself."""
    encoded = encode_id(original)
    assert is_valid_id(encoded)
    assert decode_id(encoded) == original


def test_the_rule_in_words_is_the_rule():
    """It stands where numpy may be missing."""
    assert ID_RULE.startswith(f"1 to {MAX_ID_LENGTH} printable ASCII")


def test_what_is_no_unicode_is_refused():
    """Half a character has no UTF-8, and stray bytes are no text."""
    with pytest.raises(ValueError, match="surrogates"):
        encode_id("\ud800")
    with pytest.raises(ValueError, match="decode"):
        decode_id("%FF")

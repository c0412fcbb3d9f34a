"""Encoding ids: as trainings and imports encode them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.contract.event_logs import ids
from nextitem.client import decode_id, encode_id


@given(st.text(min_size=1))
def test_the_client_encodes_as_logs_are_encoded(original):
    """The client imports no room, so that the rule stands twice; it is one."""
    assert encode_id(original) == ids.encode_id(original)
    assert decode_id(encode_id(original)) == original


def test_what_is_no_text_is_refused():
    """On both ways."""
    with pytest.raises(ValueError, match="surrogates"):
        encode_id("\ud800")
    with pytest.raises(ValueError, match="decode"):
        decode_id("%FF")

"""Folding: what makes no difference to a search, and what does."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.search.folding import fold


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("", ""),
        ("Star Wars (1977)", "star wars 1977"),
        ("  Spider-Man:  No\tWay\nHome ", "spider man no way home"),
        ("Schindler's", "schindlers"),
        ("Schindler\u2019s", "schindlers"),
        ("Am\u00e9lie", "amelie"),
        ("Ame\u0301lie", "amelie"),
        ("STRASSE", "strasse"),
        ("Stra\u00dfe", "strasse"),
        ("\u0130stanbul \u0131", "istanbul i"),
        ("\u00d8rsted \u0141\u00f3d\u017a \u00c6on", "orsted lodz aeon"),
        ("\uff34\uff4f\uff4b\uff59\uff4f \u00b2", "tokyo 2"),
        (
            "\u041f\u0440\u0438\u0432\u0435\u0442 \u041c\u0418\u0420",
            "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
        ),
        ("\u4e03\u4eba\u306e\u4f8d", "\u4e03\u4eba\u306e\u4f8d"),
        ("\u0915\u093f\u0924\u093e\u092c", "\u0915\u093f\u0924\u093e\u092c"),
        ("\U0001f3ac!?\0_\ufffd", ""),
        ("a_b", "a b"),
    ],
)
def test_examples(text, folded):
    """Case, accents, punctuation, width and apostrophes."""
    assert fold(text).decode() == folded


@given(text=st.text(max_size=60))
def test_any_text(text):
    """Words with one space between, without a line end; upper case and decomposed text fold to the same."""
    folded = fold(text).decode()
    assert folded.split(" ") == folded.split() or folded == ""
    assert "\n" not in folded
    assert not any(character.isascii() and not (character.isalnum() or character == " ") for character in folded)
    assert fold(unicodedata.normalize("NFD", text)) == fold(unicodedata.normalize("NFC", text))


@given(text=st.text(st.characters(max_codepoint=0x7F), max_size=60))
def test_ascii_text_takes_no_other_way(text):
    """The short way for ASCII folds as the long one."""
    long_way = fold(text + "\u00e9").decode()
    assert long_way.endswith("e")
    assert long_way.removesuffix("e").rstrip() == fold(text).decode()
    assert fold(text.upper()) == fold(text.lower())

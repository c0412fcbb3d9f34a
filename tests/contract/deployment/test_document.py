"""deployment.json: read back as it was written, kept where it is newer than we are, refused where it is malformed."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.contract.deployment.document import (
    DEPLOYMENT,
    DEPLOYMENT_MAX_BYTES,
    MODES,
    Deployment,
    DeploymentMalformed,
    Mode,
    PastChampion,
    TrialTerms,
    is_followed,
    read_deployment,
)

NAMES = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}", fullmatch=True)
WORDS = st.text(max_size=30)
SHARES = st.floats(0, 1)
COUNTS = st.integers(0, 10**9)
OTHERS = st.dictionaries(
    WORDS.map("new_".__add__),
    st.recursive(st.none() | st.booleans() | COUNTS | WORDS, lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    max_size=3,
)
TERMS = st.builds(
    TrialTerms,
    auto=st.booleans(),
    path=st.sampled_from(["shadow", "canary"]),
    alpha=st.floats(0.001, 0.999),
    margin=SHARES,
    return_margin=SHARES,
    min_trials=COUNTS,
    min_answers=COUNTS,
    min_hours=st.floats(0, 1e6),
    max_days=st.floats(0.001, 1e6),
    others=OTHERS,
)
PAST = st.builds(
    PastChampion,
    generation=COUNTS,
    champion=NAMES,
    at=WORDS,
    by=WORDS,
    why=WORDS,
    rolled_back=st.booleans(),
    others=OTHERS,
)


@st.composite
def deployments(draw):
    """Any deployment whose fields agree."""
    candidate = draw(st.none() | NAMES)
    champion = draw(NAMES.filter(lambda name: name != candidate))
    mode: Mode = "off" if candidate is None else draw(st.sampled_from(MODES[1:]))
    return Deployment(
        generation=draw(COUNTS),
        champion=champion,
        candidate=candidate,
        mode=mode,
        share=draw(SHARES),
        salt=draw(st.from_regex("[0-9a-f]{8}", fullmatch=True)),
        folder_id=draw(st.from_regex("[0-9a-f]{0,16}", fullmatch=True)),
        previous=draw(st.none() | NAMES),
        digests=draw(st.dictionaries(NAMES, st.from_regex("[0-9a-f]{64}", fullmatch=True), max_size=2)),
        trial=draw(TERMS),
        history=tuple(draw(st.lists(PAST, max_size=4))),
        at=draw(WORDS),
        by=draw(WORDS),
        others=draw(OTHERS),
    )


@settings(deadline=None, max_examples=60)
@given(deployments())
def test_what_is_written_is_read_back(deployment):
    """Every field, and those that this version does not know, at every level."""
    assert Deployment.from_bytes(deployment.to_bytes()) == deployment


VALID = json.loads(
    Deployment(
        generation=3, champion="v2", candidate="v3", mode="canary", share=0.1, salt="ab", previous="v1"
    ).to_bytes()
)


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"format": True},
        {"generation": -1},
        {"generation": 1.0},
        {"generation": True},
        {"folder_id": 7},
        {"folder_id": "x" * 65},
        {"folder_id": "\u00e9"},
        {"champion": None},
        {"champion": ""},
        {"champion": "../v1"},
        {"champion": "v3"},
        {"candidate": "a/b"},
        {"candidate": None},
        {"mode": "off"},
        {"mode": "both"},
        {"mode": ["canary"]},
        {"share": 1.5},
        {"share": "0.1"},
        {"salt": ""},
        {"salt": 7},
        {"previous": "a b"},
        {"digests": {"v1": "abc"}},
        {"digests": {"v1": "g" * 64}},
        {"digests": []},
        {"trial": []},
        {"trial": {"alpha": 0}},
        {"trial": {"alpha": 1}},
        {"trial": {"min_trials": -1}},
        {"trial": {"auto": 1}},
        {"trial": {"path": "straight"}},
        {"trial": {"max_days": 0}},
        {"history": {}},
        {"history": [1]},
        {"history": [{"generation": 1}]},
        {"history": [{"generation": 1, "champion": "../x", "at": "", "by": "", "why": ""}]},
        {"at": None},
        {"by": 1},
    ],
)
def test_a_wrong_field_is_named(changed):
    """It is refused, in a sentence that names it."""
    with pytest.raises(DeploymentMalformed, match="|".join(changed)):
        Deployment.from_bytes(json.dumps({**VALID, **changed}).encode())


@pytest.mark.parametrize("name", [name for name in VALID if name not in {"trial", "history", "id_key", "folder_id"}])
def test_a_missing_field_is_named(name):
    """Trial, history, the key of ids and the folder's id may be missing; nothing else may."""
    with pytest.raises(DeploymentMalformed, match=name):
        Deployment.from_bytes(json.dumps({key: value for key, value in VALID.items() if key != name}).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format":1,"x":NaN}',
        b'{"format":1,"x":1e999}',
        b"9" * 9999,
    ],
)
def test_what_is_no_document_is_refused(content):
    """Whatever the bytes are."""
    with pytest.raises(DeploymentMalformed):
        Deployment.from_bytes(content)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_document_with_flipped_bytes_is_read_or_refused(data):
    """No other error than DeploymentMalformed comes of it, and what is read can be written."""
    content = bytearray(json.dumps(VALID).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = Deployment.from_bytes(bytes(content))
    except DeploymentMalformed:
        return
    assert Deployment.from_bytes(read.to_bytes()) == read


def test_a_file_that_is_too_large_or_no_file_is_refused(root):
    """Neither is read to its end."""
    (root / DEPLOYMENT).write_bytes(b" " * (DEPLOYMENT_MAX_BYTES + 1))
    with pytest.raises(DeploymentMalformed, match="larger"):
        read_deployment(root)
    (root / DEPLOYMENT).unlink()
    os.mkfifo(root / DEPLOYMENT)
    with pytest.raises(DeploymentMalformed, match="cannot be read"):
        read_deployment(root)


def test_which_folders_are_followed(root):
    """A folder of versions with a deployment or a `current` is; a single bundle is not."""
    assert not is_followed(root)
    (root / "current").write_text("v1\n")
    assert is_followed(root)
    assert not is_followed(root / "v1")

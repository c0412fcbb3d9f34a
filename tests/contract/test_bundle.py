"""Bundles: written whole or not at all, and refused by name of the fault when anything is off."""

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from model.contract import bundle, bundle_content, similar
from model.contract.bundle import open_bundle, point_current, read_bundle, write_bundle
from model.contract.manifest import BundleCorrupt, BundleError, BundleFormat, BundleMissing, Manifest

VERSION = "20260102T030405-0a1b2c3d"


def rewrite(folder, change):
    """Edit manifest.json as a document."""
    path = folder / bundle.MANIFEST
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def replace(folder, name, content):
    """Change a file and let the manifest agree, so that only its content is wrong."""
    (folder / name).write_bytes(content)
    file = bundle.describe_file(content)
    rewrite(folder, lambda document: document["files"].update({name: {"sha256": file.sha256, "bytes": file.bytes}}))


def test_read_gives_what_was_written(published, files, make_manifest):
    """A published bundle comes back field by field."""
    read = read_bundle(published)
    assert read.manifest == make_manifest()
    assert read.network == files[bundle.NETWORK]
    assert read.vocabulary.item_ids == ("a", "b", "c")
    assert read.counts.tolist() == [3, 9, 3]
    assert read.metadata is not None
    assert json.loads(read.metadata[1]) == {"title": "B & é"}
    assert read.golden[0].expected_items == ("b", "c")


def test_root_and_version_folder_read_alike(published):
    """A path may be the bundle or the folder with `current`."""
    assert read_bundle(published).digest == read_bundle(published / VERSION).digest


def test_popular_ranking_orders_ties_by_id(published):
    """Falling counts; a and c are equal and stand in the order of their ids."""
    assert read_bundle(published).rank_popular().tolist() == [2, 1, 3]


def test_manifest_round_trip(make_manifest):
    """The manifest reads back as it was written."""
    manifest = make_manifest()
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_current_moves_to_the_newest(published, files, make_manifest):
    """Publishing a second version moves readers to it and leaves the first readable."""
    newer = make_manifest(version="20260203T000000-ffffffff")
    write_bundle(published, newer, files)
    point_current(published, newer.version)
    assert read_bundle(published).manifest.version == newer.version
    assert read_bundle(published / VERSION).manifest.version == VERSION


def test_open_files_outlive_their_folder(published):
    """What was opened is read, and verified, though the version was removed, as often as one likes."""
    with open_bundle(published) as opened:
        digest = opened.read().digest
        shutil.rmtree(published)
        assert opened.read().digest == digest
    with pytest.raises(BundleMissing):
        read_bundle(published)


def test_open_files_are_verified_each_time(published):
    """A file that is changed in its place is refused, though it was fine when it was opened."""
    with open_bundle(published) as opened:
        opened.read()
        with (published / VERSION / bundle.NETWORK).open("r+b") as network:
            network.write(b"changed")
        with pytest.raises(BundleCorrupt, match=bundle.NETWORK):
            opened.read()


def test_refused_bundles_leave_no_file_open(published):
    """However far the opening came."""
    (published / VERSION / bundle.GOLDEN).unlink()
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with pytest.raises(BundleMissing):
            open_bundle(published)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("kind", ["pipe", "device", "long"])
def test_current_that_is_no_file_is_refused_at_once(published, kind):
    """Who opens a pipe waits for a writer; a device may never end."""
    current = published / "current"
    current.unlink()
    if kind == "pipe":
        os.mkfifo(current)
    elif kind == "device":
        current.symlink_to("/dev/zero")
    else:
        current.write_bytes(b"x" * 100_000)
    with pytest.raises(BundleFormat, match="current"):
        read_bundle(published)


def test_writing_twice_changes_nothing(published, files, make_manifest):
    """A version that exists is left as it is."""
    before = (published / VERSION).stat().st_mtime_ns
    write_bundle(published, make_manifest(), files)
    assert (published / VERSION).stat().st_mtime_ns == before


def test_interrupted_write_leaves_nothing_to_read(tmp_path, files, make_manifest, monkeypatch):
    """When writing stops half-way there is no version and no remainder."""

    def fail(path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(bundle, "sync_folder", fail)
    with pytest.raises(OSError, match="No space"):
        write_bundle(tmp_path, make_manifest(), files)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [bundle.NETWORK, bundle.VOCABULARY, bundle.COUNTS, bundle.GOLDEN, bundle.METADATA])
def test_every_flipped_bit_is_found(published, name):
    """One bit changed in any file is refused, and the message names the file."""
    path = published / VERSION / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(BundleCorrupt, match=name):
        read_bundle(published)


@pytest.mark.parametrize("name", [bundle.NETWORK, bundle.VOCABULARY, bundle.METADATA])
def test_truncated_and_grown_files_are_refused(published, name):
    """A file of another size is refused before its digest is computed."""
    path = published / VERSION / name
    whole = path.read_bytes()
    for content in (whole[:-1], whole + b"\n", b""):
        path.write_bytes(content)
        with pytest.raises(BundleCorrupt, match=f"{name} has {len(content)} bytes"):
            read_bundle(published)


@pytest.mark.parametrize("name", [bundle.NETWORK, bundle.COUNTS, bundle.METADATA])
def test_missing_file_is_named(published, name):
    """A listed file that is not there is named."""
    (published / VERSION / name).unlink()
    with pytest.raises(BundleMissing, match=name):
        read_bundle(published)


def test_swapped_files_are_refused(published):
    """Two files in each other's place are refused."""
    folder = published / VERSION
    golden, metadata = folder / bundle.GOLDEN, folder / bundle.METADATA
    first, second = golden.read_bytes(), metadata.read_bytes()
    golden.write_bytes(second)
    metadata.write_bytes(first)
    with pytest.raises(BundleCorrupt):
        read_bundle(published)


@pytest.mark.parametrize("number", [0, 2, "1", None, True, 1.0])
def test_unknown_format_is_named(published, number):
    """A format that this version does not read is refused by its number."""
    rewrite(published / VERSION, lambda document: document.update(format=number))
    with pytest.raises(BundleFormat, match=f"unknown bundle format {number!r}"):
        read_bundle(published)


FIELDS = ["version", "item_count", "max_length", "trained_at", "last_event_at", "inputs", "files", "metrics"]


@pytest.mark.parametrize("field", FIELDS)
def test_missing_field_is_named(published, field):
    """A manifest without a field is refused, and the field named."""
    rewrite(published / VERSION, lambda document: document.pop(field))
    with pytest.raises(BundleFormat, match=field):
        read_bundle(published)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", "../x"),
        ("version", ""),
        ("item_count", 0),
        ("item_count", True),
        ("max_length", "200"),
        ("max_length", 1),
        ("trained_at", "yesterday"),
        ("trained_at", "2026-01-02T03:04:05"),
        ("trained_at", "2026-01-02T03:04:05+02:00"),
        ("last_event_at", 5),
        ("last_event_at", "2026-13-01T00:00:00Z"),
        ("metrics", {"HR@10": "high"}),
        ("metrics", {"HR@10": float("nan")}),
        ("metrics", {"HR@10": float("inf")}),
        ("metrics", {"HR@10": 10**400}),
        ("metrics", {"HR@10": True}),
        ("inputs", ["item_ids", 3]),
        ("files", {"../network.onnx": {"sha256": "0" * 64, "bytes": 1}}),
        ("files", {"network.onnx": {"sha256": "0" * 63, "bytes": 1}}),
        ("files", {"network.onnx": {"sha256": "0" * 64, "bytes": True}}),
        ("files", {"network.onnx": {"sha256": "0" * 64, "bytes": -1}}),
        ("files", {"network.onnx": "0" * 64}),
    ],
)
def test_malformed_field_is_named(published, field, value):
    """A field of the wrong kind, a path that leaves the folder included, is refused by name."""
    rewrite(published / VERSION, lambda document: document.update({field: value}))
    with pytest.raises(BundleFormat, match=field):
        read_bundle(published)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_manifest_that_is_no_object_is_refused(published, content):
    """Anything but a JSON object is no manifest."""
    (published / VERSION / bundle.MANIFEST).write_bytes(content)
    with pytest.raises(BundleFormat, match=r"manifest\.json"):
        read_bundle(published)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (bundle.VOCABULARY, b"a\nb\n"),
        (bundle.VOCABULARY, b"c\nb\na\n"),
        (bundle.COUNTS, b"not an array"),
        (bundle.COUNTS, b""),
        (bundle.COUNTS, bundle_content.encode_counts(np.array([1, 2]))),
        (bundle.COUNTS, bundle_content.encode_counts(np.array([1, -1, 2]))),
        (bundle.COUNTS, bundle_content.encode_counts(np.array([1, 2, 3]))[:-1]),
        (bundle.COUNTS, bundle_content.encode_counts(np.array([1, 2, 3])).replace(b"(3,)", b"(3,(")),
        (
            bundle.COUNTS,
            bundle_content.encode_counts(np.array([1, 2, 3])).replace(b"(3,), }        ", b"(3" + b"0" * 9 + b",), }"),
        ),
        (bundle.COUNTS, bundle_content.encode_counts(np.array([1, 2, 3])).replace(b"(3,)", b"'3' ")),
        (bundle.METADATA, b"{}\n"),
        (bundle.GOLDEN, b"[{}]"),
        (bundle.GOLDEN, b"{"),
    ],
)
def test_content_that_does_not_fit_is_refused(published, name, content):
    """A file that agrees with its digest and not with the rest is refused by name."""
    replace(published / VERSION, name, content)
    with pytest.raises(BundleFormat, match=name):
        read_bundle(published)


def test_pickled_counts_never_load(published):
    """An array of objects, which only pickle could read, is refused."""
    path = published / VERSION / bundle.COUNTS
    np.save(path, np.array([{}, {}, {}], dtype=object), allow_pickle=True)
    replace(published / VERSION, bundle.COUNTS, path.read_bytes())
    with pytest.raises(BundleFormat, match=bundle.COUNTS):
        read_bundle(published)


def test_an_archive_of_arrays_is_no_count(published):
    """An .npz, which numpy would open as something else, is refused."""
    buffer = io.BytesIO()
    np.savez(buffer, counts=np.array([1, 2, 3]))
    replace(published / VERSION, bundle.COUNTS, buffer.getvalue())
    with pytest.raises(BundleFormat, match=bundle.COUNTS):
        read_bundle(published)


@pytest.mark.parametrize("required", [bundle.NETWORK, bundle.VOCABULARY, bundle.COUNTS, bundle.GOLDEN])
def test_manifest_must_list_what_a_bundle_needs(published, required):
    """A manifest that lists less than a bundle is refused."""
    rewrite(published / VERSION, lambda document: document["files"].pop(required))
    with pytest.raises(BundleFormat, match=required):
        read_bundle(published)


def test_empty_folder_says_what_to_do(tmp_path):
    """A path without a bundle says so and what would help."""
    with pytest.raises(BundleMissing, match="publish a bundle"):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("pointer", "fault"), [("../../etc", BundleFormat), ("", BundleFormat), ("gone", BundleMissing)]
)
def test_pointer_must_name_a_version_beside_it(published, pointer, fault):
    """`current` cannot lead elsewhere, nor to what is not there."""
    (published / bundle.CURRENT).write_text(pointer)
    with pytest.raises(fault, match="current"):
        read_bundle(published)


def test_every_fault_is_a_bundle_error():
    """One except clause catches them all."""
    assert all(issubclass(fault, BundleError) for fault in (BundleMissing, BundleFormat, BundleCorrupt))


def test_event_types_are_optional_and_come_back(published):
    """Most bundles have none; those that have some hold them in the order of their codes."""
    assert read_bundle(published).event_types == ()
    replace(published / VERSION, bundle.EVENT_TYPES, bundle_content.encode_types(("view", "buy")))
    assert read_bundle(published).event_types == ("view", "buy")


@pytest.mark.parametrize("content", [b"view\nview\n", b"a type\n", "käuflich\n".encode(), b"\n"])
def test_event_types_that_are_none_are_refused(published, content):
    """Twice the same, a space, no ASCII, and nothing at all."""
    replace(published / VERSION, bundle.EVENT_TYPES, content)
    with pytest.raises(BundleFormat, match=r"event_types\.txt is not"):
        read_bundle(published)


def test_the_graph_of_similar_items_is_optional(published, files):
    """Its two files come back; most bundles have neither."""
    assert read_bundle(published).similar is None
    replace(published / VERSION, similar.SIMILAR, b"a graph")
    replace(published / VERSION, similar.SIMILAR_GOLDEN, files[bundle.GOLDEN])
    found = read_bundle(published).similar
    assert found is not None
    assert (found.network, found.golden) == (b"a graph", read_bundle(published).golden)


@pytest.mark.parametrize("name", [similar.SIMILAR, similar.SIMILAR_GOLDEN])
def test_half_a_graph_of_similar_items_is_refused(published, files, name):
    """Either file alone, and examples that are none."""
    replace(published / VERSION, name, files[bundle.GOLDEN])
    with pytest.raises(BundleFormat, match="without the other"):
        read_bundle(published)
    for other in (similar.SIMILAR, similar.SIMILAR_GOLDEN):
        replace(published / VERSION, other, b"[]")
    with pytest.raises(BundleFormat, match=r"similar_golden\.json is not what it should be"):
        read_bundle(published)

"""Bundles that must not serve: each is refused with a sentence that says what is wrong with it."""

import json
import os
import random
import re
import shutil

import pytest

from model.contract import bundle
from model.contract.bundle import locate_bundle
from service.errors import StartFailed
from service.inference import model
from service.inference.model import load_model


def load(path):
    """Load a bundle on the CPU."""
    return load_model(path, provider="cpu", threads=1, max_batch=4)


def test_the_bundle_itself_loads(bundle_path, broken_bundle):
    """By its folder and by `current`; a copy that nothing was changed in loads, too."""
    assert load(bundle_path).digest == load(locate_bundle(bundle_path)).digest
    assert load(broken_bundle("", b"")).manifest.name == "tiny"


def test_no_bundle(tmp_path):
    """A folder without a bundle."""
    with pytest.raises(StartFailed, match="publish a bundle there first"):
        load(tmp_path)


def test_flipped_bit(bundle_path, broken_bundle):
    """One bit of the network, which ONNX Runtime would load without a word."""
    content = bytearray((locate_bundle(bundle_path) / "network.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    with pytest.raises(StartFailed, match=r"the digest of network\.onnx is not the one in the manifest"):
        load(broken_bundle("network.onnx", bytes(content), sealed=False))


def corrupt(folder, chance):
    """Do one thing to one file of a bundle that its manifest does not say; what was done."""
    path = chance.choice(sorted(folder.iterdir()))
    whole = path.read_bytes()
    at = chance.randrange(len(whole))
    kinds = ["cut", "linked", "hard-linked", "removed", "a folder", "a pipe"]
    # Of its other fields the manifest itself is the only witness.
    kind = chance.choice(
        kinds if path.name == "manifest.json" else [*kinds, *["flip"] * 4, "zeros", "grown", "swapped"]
    )
    path.unlink()
    match kind:
        case "flip":
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
        case "zeros":
            zeros = bytes(len(whole) - at)
            path.write_bytes(whole[:at] + (zeros if whole[at:] != zeros else b"\1" * len(zeros)))
        case "cut":
            path.write_bytes(whole[:at])
        case "grown":
            path.write_bytes(whole + chance.randbytes(1 + at))
        case "swapped":
            path.write_bytes((folder / "manifest.json").read_bytes())
        case "linked" | "hard-linked":
            elsewhere = folder.with_name(f"{folder.name}-elsewhere")
            elsewhere.write_bytes(whole)
            path.symlink_to(elsewhere) if kind == "linked" else path.hardlink_to(elsewhere)
        case "a folder":
            path.mkdir()
        case "a pipe":
            os.mkfifo(path)
    return f"{path.name} {kind}"


def test_two_hundred_corrupted_bundles(bundle_path, tmp_path, monkeypatch):
    """Not one is accepted, and ONNX Runtime sees no byte of any."""

    def see(*_args, **_named):
        raise AssertionError("ONNX Runtime was given a network")

    monkeypatch.setattr(model, "open_engine", see)
    chance = random.Random(1)  # noqa: S311 - to be the same each time
    for number in range(200):
        folder = tmp_path / str(number)
        shutil.copytree(locate_bundle(bundle_path), folder)
        done = corrupt(folder, chance)
        with pytest.raises(StartFailed, match=re.escape(done.split()[0])):
            load(folder)


@pytest.mark.parametrize("name", ["manifest.json", "network.onnx"])
def test_files_too_large(broken_bundle, monkeypatch, name):
    """One byte above the cap is refused before it is read."""
    folder = broken_bundle("", b"")
    size = (folder / name).stat().st_size
    cap = "MANIFEST_MAX_BYTES" if name == "manifest.json" else "FILE_MAX_BYTES"
    monkeypatch.setattr(bundle, cap, size)
    if name == "manifest.json":
        load(folder)
    monkeypatch.setattr(bundle, cap, size - 1)
    with pytest.raises(StartFailed, match=f"is larger than {size - 1} bytes"):
        load(folder)


@pytest.mark.parametrize("location", ["weights", "../weights", "/weights", "*/_ORT_MEM_ADDR_/*"])
def test_weights_in_other_files(broken_bundle, bundle_path, tmp_path, monkeypatch, location):
    """A graph whose weights lie beside it, elsewhere or in memory is refused, sealed or not: nobody verified them."""
    onnx = pytest.importorskip("onnx", reason="the service does not install onnx")
    graph = onnx.load_from_string((locate_bundle(bundle_path) / "network.onnx").read_bytes())
    weights = max(graph.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    content = weights.raw_data
    (tmp_path / "inside").mkdir()
    for folder in (tmp_path, tmp_path / "inside"):
        (folder / "weights").write_bytes(content)
    monkeypatch.chdir(tmp_path / "inside")
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(
        key="location", value=location.replace("/weights", f"{tmp_path}/weights", location[0] == "/")
    )
    weights.external_data.add(key="length", value=str(len(content)))
    folder = broken_bundle("network.onnx", graph.SerializeToString())
    (folder / "weights").write_bytes(content)
    with pytest.raises(StartFailed, match="cannot be loaded"):
        load(folder)


def test_network_that_is_none(broken_bundle):
    """A sealed bundle whose network ONNX Runtime cannot parse."""
    with pytest.raises(StartFailed, match="cannot be loaded"):
        load(broken_bundle("network.onnx", b"no graph"))


def test_network_that_answers_otherwise(bundle_path, broken_bundle):
    """A sealed bundle whose network is not the one that its golden examples come from."""
    golden = json.loads((locate_bundle(bundle_path) / "golden.json").read_bytes())
    golden[1]["expected_scores"][3] += 0.01
    with pytest.raises(StartFailed, match="as its trainer did: golden example 1, asked alone: scores differ"):
        load(broken_bundle("golden.json", json.dumps(golden).encode()))


@pytest.mark.parametrize(
    "inputs", [["item_ids", "lengths", "exclude", "candidates", "k", "dwell"], ["item_ids", "lengths"]]
)
def test_other_inputs(broken_bundle, inputs):
    """A network that wants what the service cannot give, or cannot take what clients may ask for."""
    with pytest.raises(StartFailed, match="the bundle's network wants item_ids"):
        load(broken_bundle("", b"", inputs=inputs))


def test_inputs_that_the_graph_does_not_have(broken_bundle):
    """A manifest that promises what its graph does not read."""
    with pytest.raises(StartFailed, match="has other inputs or outputs"):
        load(broken_bundle("", b"", inputs=["item_ids", "lengths", "exclude", "candidates", "k", "times"]))


def test_metadata_that_is_no_object(bundle_path, broken_bundle):
    """A line of metadata that is JSON, but no object."""
    lines = (locate_bundle(bundle_path) / "metadata.jsonl").read_bytes().splitlines()
    lines[4] = b"[]"
    with pytest.raises(StartFailed, match="line 5 of its metadata"):
        load(broken_bundle("metadata.jsonl", b"\n".join(lines) + b"\n"))


def test_cuda_without_a_gpu(bundle_path):
    """`cuda` is never answered by the CPU."""
    import onnxruntime  # noqa: PLC0415 - for this condition only

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("onnxruntime-gpu is installed here")
    with pytest.raises(StartFailed, match="onnxruntime-gpu"):
        load_model(bundle_path, provider="cuda", threads=1, max_batch=4)


def test_generator_makes_the_committed_bundle(bundle_path):
    """The bundle in the repository is the one that its generator writes."""
    pytest.importorskip("onnx", reason="the generator needs onnx, which the service does not install")
    from importlib.util import module_from_spec, spec_from_file_location  # noqa: PLC0415 - after the skip

    spec = spec_from_file_location("generate_bundle", bundle_path.parent / "generate_bundle.py")
    assert spec
    assert spec.loader
    generator = module_from_spec(spec)
    spec.loader.exec_module(generator)
    manifest, files = generator.make_files()
    folder = locate_bundle(bundle_path)
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert (folder / "manifest.json").read_bytes() == manifest.to_bytes()


def test_sessions_that_are_none(broken_bundle):
    """Sessions that nothing could be ranked by are refused at the start, not when the engine fails."""
    with pytest.raises(StartFailed, match=r"sessions\.npy holds no arrays"):
        load(broken_bundle("sessions.npy", b"PK no archive"))

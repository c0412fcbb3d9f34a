"""The key of recommendation ids and the folder's id: there before the first change, and kept by later ones."""

import json
import shutil

from model.contract import bundle
from model.contract.deployment.changes import hold, promote, resume, set_candidate
from model.contract.deployment.document import DEPLOYMENT, Deployment, read_deployment
from model.contract.deployment.writer import change_deployment


def test_changes_keep_the_key_of_a_folder_that_had_no_deployment(published, files, make_manifest):
    """So ids from before the first change are still read after it, and after a promotion."""
    before = read_deployment(published)
    bundle.write_bundle(published, make_manifest(version="second"), files)
    change_deployment(published, set_candidate("second"), action="candidate", by="test")
    after = change_deployment(published, promote(why="test"), action="promote", by="test")
    assert len(before.id_key) == 32
    assert before.id_key == after.id_key == read_deployment(published).id_key
    with bundle.open_bundle(published / before.champion) as champion:
        assert before.id_key not in champion.digest  # which GET /model tells everybody


def test_the_first_change_gives_a_folder_an_id_of_its_own(published, tmp_path_factory):
    """Folders that began with the same version are told apart from then on; a copy made later is the same folder."""
    twin = shutil.copytree(published, tmp_path_factory.mktemp("twin") / "bundles")
    assert read_deployment(published).folder_id == read_deployment(twin).folder_id != ""
    first, of_twin = (change_deployment(root, hold(), action="hold", by="test") for root in (published, twin))
    assert first.folder_id != of_twin.folder_id
    assert "" not in (first.folder_id, of_twin.folder_id)
    later = change_deployment(published, resume(), action="resume", by="test")
    copy = shutil.copytree(published, tmp_path_factory.mktemp("copy") / "bundles")
    assert first.folder_id == later.folder_id == read_deployment(copy).folder_id


def test_a_deployment_without_a_key_gets_one_by_its_next_change(published):
    """One that was written by hand, and an id of its folder."""
    document = json.loads(Deployment(generation=3, champion=read_deployment(published).champion).to_bytes())
    del document["id_key"], document["folder_id"]
    (published / DEPLOYMENT).write_text(json.dumps(document))
    assert (read_deployment(published).id_key, read_deployment(published).folder_id) == ("", "")
    after = change_deployment(published, hold(), action="hold", by="test")
    assert (len(after.id_key), len(after.folder_id)) == (32, 16)

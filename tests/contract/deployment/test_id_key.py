"""The key of recommendation ids: there before the first change, kept by every change, and in no manifest's digest."""

import json

from model.contract import bundle
from model.contract.deployment.changes import hold, promote, set_candidate
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


def test_a_deployment_without_a_key_gets_one_by_its_next_change(published):
    """One that was written by hand."""
    document = json.loads(Deployment(generation=3, champion=read_deployment(published).champion).to_bytes())
    del document["id_key"]
    (published / DEPLOYMENT).write_text(json.dumps(document))
    assert read_deployment(published).id_key == ""
    assert len(change_deployment(published, hold(), action="hold", by="test").id_key) == 32

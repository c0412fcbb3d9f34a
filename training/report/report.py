"""report.html of a run, and report.json, the numbers in it that only the log gives."""

from pathlib import Path

from model.contract.atomic_files import write_whole
from training.data.interactions import Log
from training.data.item_features import Metadata
from training.data.split import Split
from training.errors import RunError
from training.json_files import write_json
from training.logs.items import read_items
from training.logs.reader import read_log
from training.report.collection import Document, Lists, Scorers, collect, name_results
from training.report.page import render_page
from training.runs.documents import parse
from training.runs.evaluate import cut, print_note
from training.runs.run import Run

PAGE, FACTS = "report.html", "report.json"


def report_run(run: Run, data: Path | None, items: Path | None = None) -> Path:
    """Write the report of a run, finished or not, and return its path.

    Without `data` it says of the log what the last report did, where that one was of the same results. `items` gives
    titles in place of those that `fit` was given. Raises DataError, and RunError for a log that is not the run's.
    """
    if data is None:
        facts = _read_facts(run)
        with run.reading(FACTS):
            return write_page(run, facts, items)
    log = read_log(data, run.recipe.data)
    if log.fingerprint != run.config["data"]["fingerprint"]:
        raise RunError(f"{data} is not the log that {run.path} was trained on: a report is of a run and its own log")
    facts = collect(run, log, cut(log, run.recipe.data))
    if run.is_finished:  # what is said of an interrupted run holds until it goes on
        write_json(run.path / FACTS, facts)
    return write_page(run, facts, items)


def report_finished(run: Run, log: Log, split: Split, scorers: Scorers, lists: Lists) -> None:
    """Write the report of a run that has just been finished. Whatever goes wrong is said: the run is kept."""
    try:
        facts = collect(run, log, split, scorers, lists)
        write_json(run.path / FACTS, facts)
        write_page(run, facts)
    except Exception as error:  # noqa: BLE001 - nobody loses hours of training to a picture of them
        print_note(
            f"{PAGE} was not written ({type(error).__name__}: {error}); the run is whole. "
            f"`nextitem-train report {run.path} --data FILE` tries again"
        )


def write_page(run: Run, facts: Document, items: Path | None = None) -> Path:
    """Render the page from what the run holds and `facts`. Raises RunError for a damaged run."""
    metadata: Metadata | None = run.read_metadata() if items is None else read_items(items, run.recipe.data.ids)
    path = run.path / PAGE
    write_whole(path, render_page(run, facts, metadata).encode("utf-8", "replace"))
    return path


def _read_facts(run: Run) -> Document:
    """What was collected for the results that the run has, or nothing. Raises RunError for a damaged file."""
    path = run.path / FACTS
    if not (run.is_finished and path.is_file()):
        return {}
    with run.reading(FACTS):
        facts: Document = parse(path.read_text(), {"results_of": str, "data": {}})
        return facts if facts["results_of"] == name_results(run) else {}

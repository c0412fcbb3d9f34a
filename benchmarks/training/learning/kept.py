"""The results so far: what was measured under the same terms is kept, and nothing is measured twice."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.training.learning.crossings import describe_crossings, list_published
from benchmarks.training.learning.plan import Turn
from benchmarks.training.terms import Terms
from training.json_files import write_json

Curve = dict[str, Any]


class OtherTerms(Exception):
    """The file holds curves that do not compare with those asked for; the message says what to do."""


class Results:
    """A document of curves on disk, one for each system and network. An ended curve is one whose turn came to its end.

    Raises OtherTerms, at any use, for a file that is of another log or under other terms.
    """

    def __init__(self, path: Path, log: Mapping[str, Any]) -> None:
        """Take the file of the results, whether it exists or not, and the description of the log."""
        self.path = path
        self.document: dict[str, Any] = {"log": dict(log), "curves": [], "published": []}
        if path.is_file():
            held = _read(path)
            if held["log"]["fingerprint"] != log["fingerprint"] or held["log"] != log:
                raise OtherTerms(f"{path} holds curves of another log or other users: choose another --out")
            self.document = held

    @property
    def curves(self) -> list[Curve]:
        """All curves, in the order of their turns."""
        curves: list[Curve] = self.document["curves"]
        return curves

    def list_missing(self, turns: Sequence[Turn]) -> list[Turn]:
        """The turns that have not come to their end."""
        return [turn for turn in turns if not self._is_measured(turn)]

    def keep(self, curve: Curve) -> None:
        """Write a curve as far as it goes, in place of one of the same system and network that did not get further."""
        names = [(held["network"], held["system"]) for held in self.curves]
        name = (curve["network"], curve["system"])
        if name not in names:
            self.curves.append(curve)
        elif curve["ended"] or len(curve["checks"]) >= len(self.curves[names.index(name)]["checks"]):
            self.curves[names.index(name)] = curve
        self.write()

    def forget(self, turns: Sequence[Turn]) -> None:
        """Measure these anew."""
        asked = {(turn.network, turn.system) for turn in turns}
        self.document["curves"] = [curve for curve in self.curves if (curve["network"], curve["system"]) not in asked]

    def write(self) -> None:
        """Keep what there is, and when it crosses which published row."""
        rows = list_published(self.document["log"]["fingerprint"])
        self.document["published"] = describe_crossings(self.curves, rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self.document)

    def _is_measured(self, turn: Turn) -> bool:
        names = [(curve["network"], curve["system"]) for curve in self.curves]
        if (turn.network, turn.system) not in names:
            return False
        held, wanted = self.curves[names.index((turn.network, turn.system))], write_terms(turn.terms)
        if held["terms"] != wanted:
            keys = ", ".join(key for key in wanted if held["terms"].get(key) != wanted[key])
            raise OtherTerms(
                f"{self.path} holds {turn.system}'s {turn.network} under other terms ({keys}): --anew measures it "
                "again, --out FILE keeps both"
            )
        return bool(held["ended"])


def begin_curve(turn: Turn, **known: object) -> Curve:
    """A curve without checks, and what is known of it before it begins."""
    names = {"network": turn.network, "system": turn.system}
    return {**names, "terms": write_terms(turn.terms), "ended": False, **known, "checks": []}


def write_terms(terms: Terms) -> dict[str, Any]:
    """Terms as they come back from JSON."""
    document: dict[str, Any] = json.loads(json.dumps(asdict(terms)))
    return document


def _read(path: Path) -> dict[str, Any]:
    try:
        held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        [*_] = (held["log"]["fingerprint"], held["curves"])
    except (ValueError, KeyError, TypeError) as error:
        raise OtherTerms(f"{path} holds no curves: choose another --out") from error
    return held

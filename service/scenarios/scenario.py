"""A scenario: what a request has where it does not say otherwise, under a name that requests give."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Self

import orjson

from service.api.responses import ScenarioState
from service.errors import FieldError, Invalid


@dataclass(frozen=True, slots=True)
class Scenario:
    """Fields of a request as JSON has them. Immutable."""

    name: str
    fields: Mapping[str, Any]
    rules: str
    """A digest of the fields, 8 hexadecimal digits: workers that have read the same file agree on it."""

    @classmethod
    def of(cls, name: str, fields: Mapping[str, Any]) -> Self:
        """Take fields that were checked."""
        written = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
        return cls(name, fields, blake2b(written, digest_size=4).hexdigest())

    def fill(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A request with the scenario's fields where it does not have them; one that is null it has."""
        return {**self.fields, **document}

    def blame(self, invalid: Invalid, document: Mapping[str, Any]) -> Invalid:
        """The errors of a request that was filled in: at /scenario where it did not have the field itself."""
        return Invalid([self._blame(error, document) for error in invalid.field_errors], invalid.detail)

    def describe(self) -> ScenarioState:
        """What an answer says of it."""
        return {"name": self.name, "rules": self.rules}

    def _blame(self, error: FieldError, document: Mapping[str, Any]) -> FieldError:
        field = error.pointer.split("/")[1] if error.pointer else ""
        if field in document or field not in self.fields:
            return error
        return FieldError("/scenario", error.code, f"the scenario's {field} {error.detail}")

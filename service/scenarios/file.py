"""The scenarios file: TOML, a table for each scenario, with fields of POST /recommend.

```
[home]
k = 20
filter = {field = "year", gte = 1990}
boosts = [{filter = {field = "genres", in = ["Drama"]}, add = 0.5}]
```
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import orjson

from model.contract.atomic_files import read_regular
from service.api.business_rules import MAX_SCENARIO_NAME, SCENARIO_PATTERN
from service.api.requests import RecommendRequest
from service.api.validation import Validator
from service.errors import Invalid, ScenariosUnusable
from service.scenarios.scenario import Scenario

MAX_BYTES = 128 * 1024
"""Of the file, which is read on the event loop: so many take a tenth of a second."""
MAX_SCENARIOS = 64
FIELDS = (
    "k",
    "exclude_seen",
    "exclude_item_ids",
    "candidate_item_ids",
    "filter",
    "boosts",
    "diversity",
    "max_per",
    "pins",
    "return_metadata",
    "explain",
    "timeout_ms",
)
"""What a scenario may say. Who asks, what they have seen and who is to answer is the request's to say."""

_validate = Validator(RecommendRequest)


def read_scenarios(file: Path) -> Mapping[str, Scenario]:
    """All scenarios of a file, by name. Raises ScenariosUnusable with the first reason."""
    try:
        content = read_regular(file, MAX_BYTES + 1)
    except OSError as error:
        raise ScenariosUnusable(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise ScenariosUnusable(f"{file} is larger than {MAX_BYTES} bytes")
    try:
        tables = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ScenariosUnusable(f"{file} is not TOML: {error}") from error
    if len(tables) > MAX_SCENARIOS:
        raise ScenariosUnusable(f"{file} holds more than {MAX_SCENARIOS} scenarios")
    return {name: _read(file, name, table) for name, table in tables.items()}


def _read(file: Path, name: str, table: object) -> Scenario:
    if len(name) > MAX_SCENARIO_NAME or not re.fullmatch(SCENARIO_PATTERN, name):
        raise ScenariosUnusable(
            f"{file}: a scenario's name is 1 to {MAX_SCENARIO_NAME} letters, digits, dots, dashes or underscores, and "
            "begins with a letter or a digit"
        )
    if not isinstance(table, dict):
        raise ScenariosUnusable(f"{file}: {name} must be a table, [{name}]")
    unknown = sorted(table.keys() - set(FIELDS))
    if unknown:
        raise ScenariosUnusable(f"{file}: {name} has {unknown[0]!r}; a scenario may have {', '.join(FIELDS)}")
    try:
        fields = orjson.loads(orjson.dumps(table))  # as a client could send them
        _validate({"items": [], **fields})
    except orjson.JSONEncodeError as error:
        raise ScenariosUnusable(f"{file}: {name} holds what JSON cannot: {error}") from error
    except Invalid as invalid:
        [wrong, *_] = invalid.field_errors
        raise ScenariosUnusable(f"{file}: {name}: {wrong.pointer} {wrong.detail} ({wrong.code})") from None
    return Scenario.of(name, fields)

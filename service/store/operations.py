"""The operations on the store, as metrics and the failure log name them."""

from collections.abc import Mapping
from typing import Final, Literal

from service.store.failures import Calls

Operation = Literal["append", "read", "export", "erase", "ping", "inspect", "change", "catalogue"]
OPERATIONS: Final[tuple[Operation, ...]] = (
    "append", "read", "export", "erase", "ping", "inspect", "change", "catalogue",
)  # fmt: skip
CALLS: Final[Mapping[Operation, Calls]] = {
    "append": "appends",
    "read": "reads",
    "export": "reads",
    "erase": "erasures",
    "ping": "reads",
    "inspect": "reads",
    "change": "changes",
    "catalogue": "reads",
}
"""The kind of calls that each operation makes."""

"""How a log file is to be read, as the options of both commands say it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from model.contract.event_logs.columns import ROLES
from model.contract.event_logs.errors import LogError
from model.contract.event_logs.form import FORMATS
from model.contract.event_logs.ids import ID_WRITINGS, MISSING_RULES
from model.contract.event_logs.times import TIME_UNITS, find_zone


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How to read a log. Raises LogError for what no log can be read by."""

    format: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict)
    """The columns in the file by role; "" for none. Roles that are absent are found by their usual names."""
    time_zone: str = "UTC"
    """The zone of times that name none."""
    time_unit: str = "auto"
    """The unit of times that are numbers."""
    ids: str = "plain"
    missing_ids: str = "skip"

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise LogError(f"--{name.replace('_', '-')} must be one of {', '.join(known)}")
        if not set(self.columns) <= set(ROLES):
            raise LogError(f"--columns must be given by {', '.join(ROLES)}")
        find_zone(self.time_zone)


CHOICES: Mapping[str, tuple[str, ...]] = {
    "format": FORMATS,
    "time_unit": TIME_UNITS,
    "ids": ID_WRITINGS,
    "missing_ids": MISSING_RULES,
}
"""What the options that are words may be."""

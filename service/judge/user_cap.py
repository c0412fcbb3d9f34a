"""At most so many trials an hour and user, so that no robot decides. Keeps salted hashes in memory, and no ids."""

import hashlib
import secrets
from typing import Final

TRIALS_AN_HOUR: Final = 6
USERS_KEPT: Final = 200_000
"""Some 20 MB. Beyond it counting begins anew within the hour."""
HOUR_MS: Final = 3_600_000


class UserCap:
    """Counts trials by user and hour of the store's clock."""

    def __init__(self, trials_an_hour: int = TRIALS_AN_HOUR) -> None:
        self._trials_an_hour = trials_an_hour
        self._salt = secrets.token_bytes(16)
        self._hour = -1
        self._trials: dict[int, int] = {}

    def hash(self, user_id: str) -> int:
        """What stands for a user while this process lasts."""
        return int.from_bytes(hashlib.blake2b(user_id.encode(), digest_size=8, key=self._salt).digest())

    def take(self, user_id: str, at_ms: int) -> bool:
        """Whether a user may have one more trial in the hour of `at_ms`; if so, it is counted."""
        hour = at_ms // HOUR_MS
        if hour > self._hour or len(self._trials) >= USERS_KEPT:
            self._hour, self._trials = hour, {}
        user = self.hash(user_id)
        taken = self._trials.get(user, 0)
        if taken >= self._trials_an_hour:
            return False
        self._trials[user] = taken + 1
        return True

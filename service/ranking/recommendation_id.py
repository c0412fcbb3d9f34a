"""Recommendation ids say which generation and variant made an answer, to whoever has the deployment's key.

An id is a UUIDv7 (RFC 9562, section 5.7), with a meaning in its random bits:

```
48 bits  time in milliseconds since 1970
12 bits  rand_a: generation modulo 1024 (10), by the candidate (1), from the model (1)
62 bits  rand_b: zero (2), random (40), message authentication code (20)
```
The code is keyed BLAKE2b over all before it and the user id. So an id counts for its own user only, and one in a
million ids from elsewhere is taken for ours. Its 20 bits are the last 5 digits of the text.
"""

import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from model.contract.deployment.document import VariantName

GENERATIONS = 1 << 10
"""Ids hold the generation modulo this."""
MAX_CLOCK_STEP_MS = 10_000
"""While the clock is behind the last id by no more than this, ids keep the last id's time; otherwise they follow it."""

_MAC_DIGITS = 5
_RANDOM_BYTES = 5
_POOL = 512
"""How many ids' random digits are drawn at once: a call of the system for each would double its cost."""
_PATTERN = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7([0-9a-f]{3})-8[0-9a-f]{3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Origin:
    """What an id says about the answer that it names."""

    made_ms: int
    """Milliseconds since 1970, by the clock of the process that answered."""
    generation: int
    """Of the deployment, modulo GENERATIONS."""
    variant: VariantName
    from_model: bool
    """Whether the variant's model ranked the items; otherwise neighbours or popular items did."""

    def find_generation(self, newest: int) -> int:
        """The whole generation: the last one up to `newest` that this id can mean. Negative if there is none."""
        return newest - (newest - self.generation) % GENERATIONS


class RecommendationIds:
    """Makes and reads the ids of one deployment.

    The milliseconds of one object's ids never fall, unless the clock is set back by more than MAX_CLOCK_STEP_MS. Each
    process makes an object of its own: a fork would share random bits.
    """

    def __init__(self, key: str, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """Take the key of the deployment, at most 64 ASCII characters. Without one, only this object reads its ids."""
        self.key = key
        self._keyed = blake2b(key=key.encode() or secrets.token_bytes(16), digest_size=(_MAC_DIGITS + 1) // 2)
        self._clock_ns = clock_ns
        self._last_ms = -MAX_CLOCK_STEP_MS
        self._time_digits = ""
        self._pool: list[str] = []

    def make(self, user_id: str | None, *, generation: int, variant: VariantName, from_model: bool) -> str:
        """A new id, as text."""
        flags = generation % GENERATIONS << 2 | (variant == "candidate") << 1 | from_model
        if not self._pool:
            self._pool = os.urandom(_POOL * _RANDOM_BYTES).hex(" ", _RANDOM_BYTES).split()
        random = self._pool.pop()
        unsigned = f"{self._tell_time()}-7{flags:03x}-8{random[:3]}-{random[3:]}"
        return unsigned + self._sign(unsigned, user_id)

    def read(self, recommendation_id: str, user_id: str | None) -> Origin | None:
        """What an id says, if this deployment made it for the user; else None. Never raises."""
        text = recommendation_id.lower()
        parts = _PATTERN.fullmatch(text)
        if parts is None or self._sign(text[:-_MAC_DIGITS], user_id) != text[-_MAC_DIGITS:]:
            return None
        flags = int(parts[3], 16)
        return Origin(
            made_ms=int(parts[1] + parts[2], 16),
            generation=flags >> 2,
            variant="candidate" if flags & 2 else "champion",
            from_model=bool(flags & 1),
        )

    def _sign(self, unsigned: str, user_id: str | None) -> str:
        state = self._keyed.copy()
        state.update((unsigned + (user_id or "")).encode())  # of one length before the user id, which is never empty
        return state.hexdigest()[:_MAC_DIGITS]

    def _tell_time(self) -> str:
        """The first two groups of digits."""
        now_ms = self._clock_ns() // 1_000_000
        if now_ms > self._last_ms or now_ms < self._last_ms - MAX_CLOCK_STEP_MS:
            self._last_ms = now_ms
            digits = f"{now_ms:012x}"
            self._time_digits = f"{digits[:8]}-{digits[8:]}"
        return self._time_digits

"""What the workers count of a canary, by variant, in one hash a generation of each bundle folder, for the judge.

```
nextitem:variants:<folder_id>:<generation>
    <variant>:answers, :degraded, :failures, :breakers_opened   how many
    <variant>:runs:<seconds>, :runs:inf   runs up to so long, above the bound before
```
Folder id and generation are deployment.json's: services of several bundle folders may share a store. Workers add what
they counted since they last did. A write whose reply is lost may count twice: both variants alike.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from redis.asyncio import Redis

from model.contract.deployment.document import VARIANTS, VariantName
from service.store.redis_keys import PREFIX

RUN_BOUNDS_S: Final = tuple(round(0.0005 * 1.25**step, 6) for step in range(45))
"""Upper bounds of the buckets of run times, in seconds: half a millisecond to nine seconds, a quarter longer each."""
KEPT_S: Final = 30 * 24 * 60 * 60
"""How long after its last change a hash is kept."""

Counted = Literal["answers", "degraded", "failures", "breakers_opened"]
_COUNTED: Final[tuple[Counted, ...]] = get_args(Counted)
_RUNS: Final = (*(f"runs:{bound_s}" for bound_s in RUN_BOUNDS_S), "runs:inf")


@dataclass(frozen=True, slots=True)
class VariantCounts:
    """What all workers counted of one variant in one generation, without forced answers and those without a user."""

    answers: int = 0
    """Answers to users assigned to this variant, whoever made them in the end."""
    degraded: int = 0
    """Of these, how many were degraded."""
    failures: int = 0
    """Of these, how many this variant's model did not rank because it failed, or was slower than the champion."""
    breakers_opened: int = 0
    """How often a worker took the variant out of use for failing or being slow."""
    runs: tuple[int, ...] = (0,) * len(_RUNS)
    """Runs of the model by time: one number for each of RUN_BOUNDS_S, and one for longer runs."""


class VariantTally:
    """What this worker counted of both variants since it last wrote it to the store."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, variant: VariantName, counted: Counted) -> None:
        """Count one."""
        self._counts[f"{variant}:{counted}"] += 1

    def add_run(self, variant: VariantName, seconds: float) -> None:
        """Count a run of the model."""
        self._counts[f"{variant}:{_RUNS[bisect_left(RUN_BOUNDS_S, seconds)]}"] += 1

    def take(self) -> Mapping[str, int]:
        """What was counted, by field of the hash. From here on it counts anew."""
        taken, self._counts = self._counts, Counter()
        return taken

    def put_back(self, counts: Mapping[str, int]) -> None:
        """Count again what could not be written."""
        self._counts.update(counts)


def name_variant_counts(folder_id: str, generation: int, *, prefix: str = PREFIX) -> str:
    """The key of a generation's hash."""
    return f"{prefix}variants:{folder_id}:{generation}"


async def add_variant_counts(
    client: Redis, folder_id: str, generation: int, counts: Mapping[str, int], *, prefix: str = PREFIX
) -> None:
    """Add counts to a generation's hash, in one trip, which expires KEPT_S later. Raises RedisError, OSError."""
    key = name_variant_counts(folder_id, generation, prefix=prefix)
    async with client.pipeline(transaction=False) as pipeline:
        for field, number in counts.items():
            pipeline.hincrby(key, field, number)
        pipeline.pexpireat(key, int((time.time() + KEPT_S) * 1000))
        await pipeline.execute()


async def read_variant_counts(
    client: Redis, folder_id: str, generation: int, *, prefix: str = PREFIX
) -> dict[VariantName, VariantCounts]:
    """What all workers counted in a generation; zeros where nobody counted. Raises RedisError, OSError."""
    fields = await client.hgetall(name_variant_counts(folder_id, generation, prefix=prefix))
    return parse_variant_counts({_text(field): _text(value) for field, value in fields.items()})


def parse_variant_counts(fields: Mapping[str, str]) -> dict[VariantName, VariantCounts]:
    """The counts in a hash. A field that is no number counts as 0, an unknown one is passed over."""

    def count(variant: VariantName, name: str) -> int:
        value = fields.get(f"{variant}:{name}", "")
        return int(value) if value.isascii() and value.isdigit() else 0

    return {
        variant: VariantCounts(
            **{name: count(variant, name) for name in _COUNTED}, runs=tuple(count(variant, run) for run in _RUNS)
        )
        for variant in VARIANTS
    }


def _text(word: str | bytes) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else word

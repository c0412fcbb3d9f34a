"""Events: each gets an id once, they go out in requests that the service takes, and their receipts become one."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nextitem.client.answers import NOTHING, FieldErrorDescription, Receipt, Rejection
from nextitem.client.errors import ClientError, EventsRejected, Problem, describe_unlisted
from nextitem.client.exchange import CLOCK, Call, Clock, Exchange, ask
from nextitem.client.reader import read
from nextitem.client.requests import MAX_EVENTS, MAX_EVENTS_BYTES, EventRequest, check_names, write_json
from nextitem.client.settings import Limits

ROUTE = "/events"

_OPEN, _CLOSE = b'{"events":[', b"]}"
_REFUSED = (413, 422)
"""The service stores nothing of a request without a valid event, or of one that is too large."""


def record_one(event: EventRequest, *, limits: Limits) -> Exchange[Receipt]:
    """Record an event. Raises EventsRejected if the service will never store it."""
    receipt = yield from record_many([event], strict=False, limits=limits)
    if receipt.rejected:
        raise EventsRejected(receipt)
    return receipt


def record_many(
    events: Iterable[EventRequest], *, strict: bool, limits: Limits, clock: Clock = CLOCK
) -> Exchange[Receipt]:
    """Record events in as many requests as they need, one after the other.

    Raises ValueError for `strict` with more than one request takes; ClientError, which knows the receipt of what was
    acknowledged, and the events that were not.
    """
    named = [name_event(event) for event in events]
    chunks = list(split([write_json(event) for event in named]))
    if strict and len(chunks) > 1:
        raise ValueError(f"strict events go out together: {MAX_EVENTS}, and {MAX_EVENTS_BYTES} bytes, at most")
    total, done = replace(NOTHING, history={}), 0
    for chunk in chunks:
        try:
            receipt = yield from ask(_post(chunk, strict=strict, limits=limits), clock)
        except ClientError as error:
            if strict or not isinstance(error, Problem) or error.status not in _REFUSED:
                error.receipt, error.unacknowledged = total, tuple(named[done:])
                raise
            receipt = reject_all(error, len(chunk))
        total = add(total, receipt, done)
        done += len(chunk)
    return total


def name_event(event: EventRequest) -> EventRequest:
    """The event with an id: its own, or a new one that every later attempt keeps. Raises TypeError for no field."""
    check_names(event.keys(), EventRequest)
    return event if event.get("event_id") is not None else {**event, "event_id": str(uuid.uuid4())}


def split(written: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The events in their order, in parts that one request takes. One that is too large by itself is a part alone."""
    start, size = 0, len(_OPEN + _CLOSE)
    for index, event in enumerate(written):
        if index > start and (index - start == MAX_EVENTS or size + len(event) + 1 > MAX_EVENTS_BYTES):
            yield written[start:index]
            start, size = index, len(_OPEN + _CLOSE)
        size += len(event) + 1  # and a comma
    if written:
        yield written[start:]


def add(total: Receipt, receipt: Receipt, offset: int) -> Receipt:
    """Both receipts as one: the indexes of rejections count from the first event of all."""
    moved = (replace(rejection, index=rejection.index + offset) for rejection in receipt.rejected)
    return Receipt(
        accepted=total.accepted + receipt.accepted,
        duplicates=total.duplicates + receipt.duplicates,
        late=total.late + receipt.late,
        rejected=(*total.rejected, *moved),
        history=total.history | receipt.history,
        took_ms=total.took_ms + receipt.took_ms,
    )


def reject_all(problem: Problem, count: int) -> Receipt:
    """The receipt of a request of which the service stored nothing since no event of it is valid."""
    first: dict[int, FieldErrorDescription] = {}
    for error in problem.errors:
        number, slash, field = error.pointer.removeprefix(f"{ROUTE}/").partition("/")
        if number.isdecimal():
            first.setdefault(int(number), replace(error, pointer=slash + field))
    unlisted = describe_unlisted(problem)
    rejected = []
    for index in range(count):
        error = first.get(index, unlisted)
        rejected.append(Rejection(index=index, pointer=error.pointer, code=error.code, detail=error.detail))
    return replace(NOTHING, rejected=tuple(rejected), history={})


def _post(chunk: Sequence[bytes], *, strict: bool, limits: Limits) -> Call[Receipt]:
    body = _OPEN + b",".join(chunk) + _CLOSE
    return Call(
        "POST",
        ROUTE,
        read=lambda content: read(Receipt, content),
        limit_s=limits.timeout_s,
        attempt_s=limits.attempt_timeout_s,
        path=f"{ROUTE}?strict=true" if strict else ROUTE,
        write=lambda _elapsed_s: body,
    )

"""Our exceptions, in one tree. What reaches a client carries a status, the slug of its problem type and a fixed title.

```
ServiceError
├── Problem                      status  slug                     (urn:nextitem:problem:<slug>)
│   ├── BadRequest
│   │   ├── MalformedRequest     400     malformed-request        the connection is closed, as after the next two
│   │   ├── RequestTimeout       408     request-timeout
│   │   ├── HeadTooLarge         431     head-too-large
│   │   ├── MalformedJson        400     malformed-json
│   │   ├── Invalid              422     validation               with up to 10 faults
│   │   ├── BodyTooLarge         413     body-too-large
│   │   ├── UnsupportedMediaType 415     unsupported-media-type
│   │   ├── Unauthorized         401     unauthorized             with WWW-Authenticate
│   │   ├── Forbidden            403     forbidden
│   │   ├── NotFound             404     not-found
│   │   └── MethodNotAllowed     405     method-not-allowed       with the methods allowed
│   ├── HistoryBehind            409     history-version
│   ├── StoreUnavailable         503     store-unavailable        with Retry-After
│   │   └── StoreNotDurable                                       the store may lose events and gets none
│   ├── Overloaded               503     overloaded               with Retry-After
│   └── Internal                 500     internal                 a bug of ours
├── KeysUnusable                 the file of keys cannot be read or changed: one sentence for whoever runs the service
├── EngineUnavailable            never leaves the recommender: its ladder answers instead
└── StartFailed                  the process cannot start: one clear sentence for the log
```
No message holds input: what a client sent is neither echoed to it nor written to the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

MAX_FAULTS = 10
"""How many faults a validation problem shows."""


class ServiceError(Exception):
    """Everything that the service raises on purpose."""


class Problem(ServiceError):
    """What a client is told as application/problem+json. `detail` says what to do, in words of ours only."""

    status: ClassVar[int]
    slug: ClassVar[str]
    title: ClassVar[str]
    default_detail: ClassVar[str]

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or self.default_detail
        super().__init__(self.detail)


class BadRequest(Problem):
    """The request is at fault: sent again unchanged, it fails again."""


class MalformedRequest(BadRequest):
    """What arrived is not HTTP as RFC 9112 has it, or a form of it that proxies understand differently."""

    status = 400
    slug = "malformed-request"
    title = "The request is not HTTP"
    default_detail = "Send HTTP/1.1 as RFC 9112 has it, with one Host header and a path."


class RequestTimeout(BadRequest):
    """The request did not arrive in time."""

    status = 408
    slug = "request-timeout"
    title = "The request took too long to arrive"
    default_detail = "Send head and body within 10 seconds each."


class HeadTooLarge(BadRequest):
    """The head passes its cap, in bytes or in headers."""

    status = 431
    slug = "head-too-large"
    title = "The head is too large"
    default_detail = "Send at most 32 KiB of head and 100 headers."


class MalformedJson(BadRequest):
    """The body is no JSON."""

    status = 400
    slug = "malformed-json"
    title = "The body is not JSON"
    default_detail = "Send one JSON document in UTF-8, without NaN, Infinity or lone surrogates."


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong field: a JSON pointer into the request, a code for programs and a sentence for people."""

    pointer: str
    code: str
    detail: str


class Invalid(BadRequest):
    """Fields of a well-formed request are wrong. Keeps the first MAX_FAULTS faults."""

    status = 422
    slug = "validation"
    title = "The request is not valid"
    default_detail = "Correct the fields listed in errors."

    def __init__(self, faults: Sequence[Fault] = (), detail: str | None = None) -> None:
        super().__init__(detail)
        self.faults = tuple(faults[:MAX_FAULTS])


class BodyTooLarge(BadRequest):
    """The body passes the cap of its route."""

    status = 413
    slug = "body-too-large"
    title = "The body is too large"
    default_detail = "Send less at once: split the request."


class UnsupportedMediaType(BadRequest):
    """The body is declared as something else than plain JSON in UTF-8."""

    status = 415
    slug = "unsupported-media-type"
    title = "The media type is not supported"
    default_detail = "Send application/json in UTF-8 without Content-Encoding."


class Unauthorized(BadRequest):
    """No key, or none that is known."""

    status = 401
    slug = "unauthorized"
    title = "A key is needed"
    default_detail = "Send a valid key as Authorization: Bearer nk_<id>_<secret>."


class Forbidden(BadRequest):
    """The key is known, and not for this."""

    status = 403
    slug = "forbidden"
    title = "The key does not allow this"
    default_detail = "This route needs a key with another scope."


class NotFound(BadRequest):
    """No such route, or no such item."""

    status = 404
    slug = "not-found"
    title = "Not found"
    default_detail = "There is nothing at this path."


class MethodNotAllowed(BadRequest):
    """The route exists for other methods, which `allowed` names for the Allow header."""

    status = 405
    slug = "method-not-allowed"
    title = "The method is not allowed"
    default_detail = "Use a method that the Allow header names."

    def __init__(self, allowed: Sequence[str], detail: str | None = None) -> None:
        super().__init__(detail)
        self.allowed = tuple(allowed)


class HistoryBehind(Problem):
    """The user's history did not reach `min_history_version` in time."""

    status = 409
    slug = "history-version"
    title = "The history is not that new yet"
    default_detail = "The history did not reach min_history_version in time: ask again, or ask without it."


class StoreUnavailable(Problem):
    """The store is down, slow, or refuses. Nothing was acknowledged; the same event ids may be sent again."""

    status = 503
    slug = "store-unavailable"
    title = "The store is unavailable"
    default_detail = (
        "The store cannot answer. Nothing was acknowledged: send the same request with the same event_ids again."
    )
    retry_after_s: ClassVar[int] = 1

    def __init__(self, detail: str | None = None, *, kind: str | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        """What went wrong, as the history port counts it; None where the store was not even asked."""


class StoreNotDurable(StoreUnavailable):
    """The store answers, but would not keep what it acknowledges."""

    default_detail = (
        "The store may lose events, so none is taken. Nothing was acknowledged: send the same request with the same "
        "event_ids again."
    )


class Overloaded(Problem):
    """The process holds as many requests as it may. Nothing was read of this one."""

    status = 503
    slug = "overloaded"
    title = "The service is overloaded"
    default_detail = "The service has no room for another request at the moment: send it again later."
    retry_after_s: ClassVar[int] = 1


class Internal(Problem):
    """A bug of ours. What happened is in the log, under the request id."""

    status = 500
    slug = "internal"
    title = "Internal error"
    default_detail = "The service failed. Its log tells more about this request id."


class KeysUnusable(ServiceError):
    """The file of keys cannot be read or changed. The message says which and why, never what is in it."""


class EngineUnavailable(ServiceError):
    """No model can answer. The recommender turns this into popular items."""


class StartFailed(ServiceError):
    """The process cannot start. The message is one sentence that says what to do."""

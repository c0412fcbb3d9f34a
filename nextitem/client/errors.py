"""The client's exceptions. A message says what happened and what to do; none holds the key.

```
ClientError                 what every call may raise
├── Problem                 the service refused (RFC 9457), or a proxy before it
│   ├── Unauthorized  401   no key, or one that is not known
│   ├── Forbidden     403   the key lacks the scope
│   ├── NotFound      404   no such item, version or route
│   ├── HistoryBehind 409   the history did not reach `min_history_version` in time
│   ├── Invalid       422   `errors` name the fields
│   └── Unavailable   502, 503, 504: overloaded, or its store is down; retried before it is raised
├── Unreachable             no answer came in time; retried before it is raised
├── UnexpectedAnswer        an answer came that is none of nextitem's
└── EventsRejected          `record` sent an event that will never be stored
```
"""

from collections.abc import Sequence

from nextitem.client.answers import NOTHING, FieldErrorDescription, ProblemDescription, Receipt
from nextitem.client.reader import Mismatch, read
from nextitem.client.requests import EventRequest

_URN = "urn:nextitem:problem:"
_MAX_RETRY_AFTER_S = 3600.0


class ClientError(Exception):
    """Base of all. Of recorded events it knows which were not acknowledged."""

    receipt: Receipt = NOTHING
    """What was acknowledged of the events before the failure."""
    unacknowledged: Sequence[EventRequest] = ()
    """The events that were not, with the ids that they were sent with: recorded again, each counts once."""


class Problem(ClientError):
    """The service refused a request. The same request would be refused again, unless it is Unavailable."""

    def __init__(self, description: ProblemDescription, retry_after_s: float | None = None) -> None:
        super().__init__(description, retry_after_s)
        self.type = description.type
        self.code = description.type.removeprefix(_URN) if description.type.startswith(_URN) else ""
        """The problem in one word, as in docs/reference/http-api.md; empty where a proxy answered."""
        self.title = description.title
        self.status = description.status
        self.detail = description.detail
        self.request_id = description.request_id
        """The service's log has the request under it; empty where a proxy answered."""
        self.errors = description.errors
        self.retry_after_s = retry_after_s
        """Seconds after which the service wants to be asked again."""

    @property
    def pointer(self) -> str | None:
        """The JSON pointer to the first wrong field; None where no field is named."""
        return self.errors[0].pointer if self.errors else None

    def __str__(self) -> str:
        wrong = (f"{error.pointer} {error.detail} ({error.code})".lstrip() for error in self.errors)
        told = " ".join([f"{self.status} {self.code}".rstrip() + f": {self.detail}", "; ".join(wrong)]).rstrip()
        return f"{told} [request {self.request_id}]" if self.request_id else told


class Unauthorized(Problem):
    """The key is missing or not known (401)."""


class Forbidden(Problem):
    """The key lacks the route's scope (403)."""


class NotFound(Problem):
    """No such item, version or route (404)."""


class HistoryBehind(Problem):
    """The user's history did not reach `min_history_version` in time (409)."""


class Invalid(Problem):
    """Fields of the request are wrong (422)."""


class Unavailable(Problem):
    """The service or its store cannot answer now (502, 503, 504). Nothing was acknowledged."""


class Unreachable(ClientError):
    """No answer came in time. The service may have done its work all the same."""


class UnexpectedAnswer(ClientError):
    """An answer came that is none of nextitem's: most likely the address is another service's."""


class EventsRejected(ClientError):
    """Events will never be stored as they are. `receipt.rejected` says why, event by event."""

    def __init__(self, receipt: Receipt) -> None:
        super().__init__(receipt)
        self.receipt = receipt

    def __str__(self) -> str:
        first = self.receipt.rejected[0]
        count = len(self.receipt.rejected)
        many = "The event was" if count == 1 else f"{count} events were"
        return f"{many} rejected: {first.pointer} {first.detail} ({first.code}). Correct it, or drop it."


RETRIED = frozenset({502, 503, 504})
"""What may be gone when the same request is sent again later. No 4xx is: the request is at fault."""

_BY_CODE = {"history-version": HistoryBehind}
_BY_STATUS: dict[int, type[Problem]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    422: Invalid,
    **dict.fromkeys(RETRIED, Unavailable),
}


def read_problem(status: int, content: bytes, retry_after: str | None) -> Problem:
    """The exception for an answer that is none of success."""
    try:
        description = read(ProblemDescription, content)
    except Mismatch:
        description = ProblemDescription(
            type="about:blank",
            title="Not an answer of nextitem",
            status=status,
            detail="Something between client and service answered, such as a proxy, or the address is another's.",
            request_id="",
        )
    problem = Problem(description)
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(status, Problem)
    return kind(description, read_retry_after(retry_after))


def read_retry_after(header: str | None) -> float | None:
    """The seconds of a Retry-After header, an hour at most; None where there is none, or a date."""
    if header is None or not header.strip().isdecimal():
        return None
    return min(float(header.strip()[:9]), _MAX_RETRY_AFTER_S)


def describe_unlisted(problem: Problem) -> FieldErrorDescription:
    """What to say of an event that a refusal of its whole request does not name."""
    detail = problem.detail
    if problem.errors:
        detail = "is in a request of which no event is valid; the service names ten errors at most"
    return FieldErrorDescription(pointer="", code=problem.code or f"http-{problem.status}", detail=detail)

"""The service's exceptions. Those that reach a client carry a status, the slug of the problem type and a fixed title.

```
ServiceError
├── Problem                      status  slug                     (urn:nextitem:problem:<slug>)
│   ├── BadRequest
│   │   ├── MalformedRequest     400     malformed-request        the connection is closed, as after the next two
│   │   ├── RequestTimeout       408     request-timeout
│   │   ├── HeadTooLarge         431     head-too-large
│   │   ├── HostNotAllowed       421     host-not-allowed         likewise, as after the next
│   │   ├── CrossSite            403     cross-site
│   │   ├── MalformedJson        400     malformed-json
│   │   ├── Invalid              422     validation               with up to 10 errors
│   │   ├── BodyTooLarge         413     body-too-large
│   │   ├── UnsupportedMediaType 415     unsupported-media-type
│   │   ├── Unauthorized         401     unauthorized             with WWW-Authenticate
│   │   ├── Forbidden            403     forbidden
│   │   ├── NotFound             404     not-found
│   │   └── MethodNotAllowed     405     method-not-allowed       with the methods allowed
│   ├── VersionBehind
│   │   ├── HistoryBehind        409     history-version
│   │   └── CatalogueBehind      409     catalogue-version
│   ├── VariantUnavailable       409     variant-unavailable
│   ├── DeploymentChanged        409     generation-conflict
│   ├── FolderReadOnly           409     read-only
│   ├── DeploymentRefused        409     deployment-refused
│   ├── StoreUnavailable         503     store-unavailable        with Retry-After
│   │   └── StoreNotDurable                                       the store may lose events, so none is accepted
│   ├── Overloaded               503     overloaded               with Retry-After
│   ├── SearchNotReady           503     search-not-ready         with Retry-After
│   └── Internal                 500     internal                 a bug of ours
├── KeysUnusable                 the API key file cannot be read or changed: one sentence for the operator
├── EngineUnavailable            never leaves the recommender, which falls back
├── ArchiveFailed                an archiver run did not complete: one sentence and a kind
└── StartFailed                  the process cannot start: one clear sentence for the log
    ├── ScenariosUnusable        the scenarios file cannot be used: the one before goes on, if there was one
    └── ModelRefused             a bundle cannot be used: also a code, for metrics and for GET /model
```
No message holds input: what a client sent is neither echoed to it nor written to the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

MAX_FIELD_ERRORS = 10
"""Maximum field errors in a validation problem."""


class ServiceError(Exception):
    """Base class of the service's exceptions."""


class Problem(ServiceError):
    """An error sent to the client as application/problem+json. `detail` says what to do and holds no input."""

    status: ClassVar[int]
    slug: ClassVar[str]
    title: ClassVar[str]
    default_detail: ClassVar[str]

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or self.default_detail
        super().__init__(self.detail)

    @property
    def reason(self) -> str:
        """The problem in a word for GET /status: its slug, unless that says too little."""
        return self.slug.replace("-", "_")


class BadRequest(Problem):
    """The client's error: the same request would fail again."""


class MalformedRequest(BadRequest):
    """The input is not HTTP as RFC 9112 defines it, or a form of it that proxies interpret differently."""

    status = 400
    slug = "malformed-request"
    title = "The request is not valid HTTP"
    default_detail = "Send HTTP/1.1 as RFC 9112 defines it, with one Host header and a path."


class RequestTimeout(BadRequest):
    """The request did not arrive in time."""

    status = 408
    slug = "request-timeout"
    title = "The request took too long to arrive"
    default_detail = "Send head and body within 10 seconds each."


class HeadTooLarge(BadRequest):
    """The head exceeds its limit of bytes or headers."""

    status = 431
    slug = "head-too-large"
    title = "The request head is too large"
    default_detail = "Send at most 32 KiB of head and 100 headers."


class HostNotAllowed(BadRequest):
    """The Host header names a host that is not allowed."""

    status = 421
    slug = "host-not-allowed"
    title = "The host name is not allowed"
    default_detail = (
        "The service does not accept the name in the Host header. Use localhost or 127.0.0.1, or ask the operator to "
        "add the name to --allowed-hosts (NEXTITEM_ALLOWED_HOSTS)."
    )


class CrossSite(BadRequest):
    """A browser sent the request for a page of another site, and the service requires no keys."""

    status = 403
    slug = "cross-site"
    title = "Cross-site requests are not allowed"
    default_detail = (
        "A web page of another site sent this request. To allow it, ask the operator to require API keys "
        "(--keys-file), and send the request from your own server with a key."
    )


class MalformedJson(BadRequest):
    """The body is not JSON."""

    status = 400
    slug = "malformed-json"
    title = "The body is not JSON"
    default_detail = "Send one JSON document in UTF-8, without NaN, Infinity or lone surrogates."


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field: a JSON pointer into the request, a code for programs and a sentence for people."""

    pointer: str
    code: str
    detail: str


class Invalid(BadRequest):
    """Fields of a well-formed request are wrong. Keeps the first MAX_FIELD_ERRORS errors."""

    status = 422
    slug = "validation"
    title = "The request is not valid"
    default_detail = "Correct the fields listed in errors."

    def __init__(self, field_errors: Sequence[FieldError] = (), detail: str | None = None) -> None:
        super().__init__(detail)
        self.field_errors = tuple(field_errors[:MAX_FIELD_ERRORS])

    def under(self, pointer: str) -> "Invalid":
        """The same of a document that stands there in a larger one."""
        return Invalid([replace(error, pointer=pointer + error.pointer) for error in self.field_errors], self.detail)


class BodyTooLarge(BadRequest):
    """The body exceeds the limit of its route."""

    status = 413
    slug = "body-too-large"
    title = "The body is too large"
    default_detail = "Send less at once: split the request."


class UnsupportedMediaType(BadRequest):
    """The declared media type is not plain JSON in UTF-8."""

    status = 415
    slug = "unsupported-media-type"
    title = "The media type is not supported"
    default_detail = "Send application/json in UTF-8 without Content-Encoding."


class Unauthorized(BadRequest):
    """The API key is missing or unknown."""

    status = 401
    slug = "unauthorized"
    title = "An API key is required"
    default_detail = "Send a valid key as Authorization: Bearer nk_<id>_<secret>."


class Forbidden(BadRequest):
    """The API key lacks the required scope."""

    status = 403
    slug = "forbidden"
    title = "The API key does not allow this request"
    default_detail = "This route needs a key with another scope."


class NotFound(BadRequest):
    """No such route, or no such item."""

    status = 404
    slug = "not-found"
    title = "Not found"
    default_detail = "There is nothing at this path."


class MethodNotAllowed(BadRequest):
    """The route exists, but not for this method. `allowed` names its methods for the Allow header."""

    status = 405
    slug = "method-not-allowed"
    title = "The method is not allowed"
    default_detail = "Use a method that the Allow header names."

    def __init__(self, allowed: Sequence[str], detail: str | None = None) -> None:
        super().__init__(detail)
        self.allowed = (*allowed, "HEAD") if "GET" in allowed else tuple(allowed)


class VersionBehind(Problem):
    """What the answer depends on did not reach the version in time that the request wants."""

    status = 409


class HistoryBehind(VersionBehind):
    """The user's history did not reach `min_history_version` in time."""

    slug = "history-version"
    title = "The history has not reached this version"
    default_detail = "The history did not reach min_history_version in time: retry, or send the request without it."


class CatalogueBehind(VersionBehind):
    """The catalogue did not reach `min_catalogue_version` in time."""

    slug = "catalogue-version"
    title = "The catalogue has not reached this version"
    default_detail = "The catalogue did not reach min_catalogue_version in time: retry, or send the request without it."


class VariantUnavailable(Problem):
    """The request wants the candidate, and this worker has none to answer with."""

    status = 409
    slug = "variant-unavailable"
    title = "The candidate is not in use"
    default_detail = (
        "No candidate answers here: none is in canary, or it is not loaded. Leave variant out, or retry when GET "
        "/model names a candidate."
    )


class DeploymentChanged(Problem):
    """The deployment is no longer of the generation that the request was meant for, or is being changed now."""

    status = 409
    slug = "generation-conflict"
    title = "The deployment has changed meanwhile"
    default_detail = "Somebody else changed the deployment: read GET /models, then decide again."


class FolderReadOnly(Problem):
    """The service may not write to its bundle folder, as in docker compose."""

    status = 409
    slug = "read-only"
    title = "The service cannot write to the bundle folder"
    default_detail = "Run `nextitem-serve models` on a machine that can write to the bundle folder: services follow it."


class DeploymentRefused(Problem):
    """The deployment does not allow the change, or it cannot be read."""

    status = 409
    slug = "deployment-refused"
    title = "The deployment does not allow this"
    default_detail = "The deployment cannot be read: look at `nextitem-serve models status`."


class StoreUnavailable(Problem):
    """The store is down, slow or refusing. Nothing was acknowledged; clients may resend the same event ids."""

    status = 503
    slug = "store-unavailable"
    title = "The store is unavailable"
    default_detail = (
        "The store does not answer. Nothing was acknowledged: send the same request with the same event_ids again."
    )

    def __init__(self, detail: str | None = None, *, kind: str | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        """The kind of failure, as in the metric; None if the circuit breaker stopped the call."""


class StoreNotDurable(StoreUnavailable):
    """The store answers, but its settings may lose acknowledged events."""

    default_detail = (
        "The store may lose events, so the service accepts none. Nothing was acknowledged: send the same request with "
        "the same event_ids again."
    )
    reason = "store_not_durable"


class Overloaded(Problem):
    """The process is at a limit of requests. It did nothing for this one."""

    status = 503
    slug = "overloaded"
    title = "The service is overloaded"
    default_detail = "The service is at its request limit: send the request again later."


class SearchNotReady(Problem):
    """The index that a search needs is being built. It did nothing else for this request."""

    status = 503
    slug = "search-not-ready"
    title = "The search index is being built"
    default_detail = (
        "The first search by a model builds its index, which may take seconds: send the request again later."
    )


class Internal(Problem):
    """A bug of the service. The log has the details under the request id."""

    status = 500
    slug = "internal"
    title = "Internal error"
    default_detail = "The service failed. Its log has the details under this request id."


class KeysUnusable(ServiceError):
    """The API key file cannot be read or changed. The message names the file and the reason, never its content."""


class EngineUnavailable(ServiceError):
    """The model cannot answer. The recommender falls back to other items."""


class StartFailed(ServiceError):
    """The process cannot start. The message is one sentence that says what to do."""


class ScenariosUnusable(StartFailed):
    """The scenarios file cannot be used. The message is one sentence that names the file and the reason."""


class ModelRefused(StartFailed):
    """A bundle cannot be used. `code` says why in one word; the message is one sentence."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class ArchiveFailed(ServiceError):
    """An archiver run did not complete. The message is one sentence."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind

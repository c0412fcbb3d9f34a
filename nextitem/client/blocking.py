"""The client for plain functions and threads."""

import time
from collections.abc import Iterable
from typing import Self, TypeVar, Unpack

import httpx

from nextitem.client import calls, recording
from nextitem.client.answers import (
    CatalogueReceipt,
    FoundItems,
    HistoryExport,
    ItemDescription,
    Readiness,
    Receipt,
    Recommendation,
    SimilarItems,
)
from nextitem.client.exchange import Done, Exchange, Lost, Pause, Reply, Send, advance, ask
from nextitem.client.model_answers import ModelDescription, ModelList
from nextitem.client.requests import (
    EventRequest,
    ItemChangeRequest,
    ItemPatchRequest,
    ItemRequest,
    RecommendRequest,
    SimilarRequest,
)
from nextitem.client.settings import Options, read_limits, read_url
from nextitem.client.wire import read_loss, read_reply, write_http_options, write_request

T = TypeVar("T")


class Client:
    """Calls the service, with a pool of connections. Threads may share one; after a fork, a process makes its own.

    `url`, `key` and `key_file` may come from NEXTITEM_CLIENT_URL, _KEY and _KEY_FILE. Options: `timeout_s` (10) for all
    attempts of a call, `attempt_timeout_s` (3) for one, `network_ms` (200) beyond the `timeout_ms` of a recommendation,
    `max_connections` (100), `verify` as httpx has it. Every method raises ClientError.
    """

    def __init__(
        self, url: str | None = None, *, transport: httpx.BaseTransport | None = None, **options: Unpack[Options]
    ) -> None:
        """Make a client; it connects with the first call. Raises ValueError or OSError for wrong options."""
        self._url = read_url(url)
        self._limits = read_limits(options)
        self._http = httpx.Client(transport=transport, **write_http_options(self._url, options))

    def recommend(self, *, after: Receipt | None = None, **request: Unpack[RecommendRequest]) -> Recommendation:
        """Rank items for a user, or for the items of a session. `after`: what `record` gave, to have it counted."""
        return self._run(ask(calls.recommend(request, after=after, limits=self._limits)))

    def recommend_batch(
        self, requests: Iterable[RecommendRequest], *, after: Receipt | None = None
    ) -> list[Recommendation]:
        """Answers in the order of up to 256 requests. One that is invalid fails all."""
        batch = self._run(ask(calls.recommend_batch(requests, after=after, limits=self._limits)))
        return [*batch.responses]

    def find_similar(self, **request: Unpack[SimilarRequest]) -> SimilarItems:
        """Items like others. Raises NotFound for one that the model does not know."""
        return self._run(ask(calls.find_similar(request, limits=self._limits)))

    def record(self, **event: Unpack[EventRequest]) -> Receipt:
        """Store an event, exactly once however often it had to be sent. Raises EventsRejected."""
        return self._run(recording.record_one(event, limits=self._limits))

    def record_many(self, events: Iterable[EventRequest], *, strict: bool = False) -> Receipt:
        """Store events, each exactly once. The receipt says which were rejected; `strict` has one refuse all.

        They go out in requests of what the service takes, in order. `timeout_s` counts for each. An error knows what
        was acknowledged before it (`receipt`), and what was not (`unacknowledged`): record that again.
        """
        return self._run(recording.record_many(events, strict=strict, limits=self._limits))

    def put_item(self, item_id: str, **item: Unpack[ItemRequest]) -> CatalogueReceipt:
        """Say all that there is to say of an item, or of a new one. Needs the scope `catalogue`, as the next ones."""
        return self._run(ask(calls.put_item(item_id, item, limits=self._limits)))

    def patch_item(self, item_id: str, **item: Unpack[ItemPatchRequest]) -> CatalogueReceipt:
        """Change an item; what is not given stays as it is. Raises NotFound."""
        return self._run(ask(calls.patch_item(item_id, item, limits=self._limits)))

    def delete_item(self, item_id: str) -> CatalogueReceipt:
        """Hide an item for good. Raises NotFound, also where an earlier attempt's answer was lost."""
        return self._run(ask(calls.delete_item(item_id, limits=self._limits)))

    def change_items(self, items: Iterable[ItemChangeRequest]) -> CatalogueReceipt:
        """Change up to 1,000 items in one step, or none."""
        return self._run(ask(calls.change_items(items, limits=self._limits)))

    def get_history(self, user_id: str) -> HistoryExport:
        """Everything that is remembered of a user, oldest first. Needs the scope `admin`."""
        return self._run(ask(calls.get_history(user_id, limits=self._limits)))

    def erase(self, user_id: str) -> None:
        """Erase a user, and have older events rejected from now on. Needs the scope `admin`."""
        return self._run(ask(calls.erase(user_id, limits=self._limits)))

    def get_item(self, item_id: str) -> ItemDescription:
        """What is known of an item. Raises NotFound."""
        return self._run(ask(calls.get_item(item_id, limits=self._limits)))

    def find_items(self, query: str, *, limit: int = 20) -> FoundItems:
        """Items by title or id, best match first."""
        return self._run(ask(calls.find_items(query, limit=limit, limits=self._limits)))

    def get_model(self) -> ModelDescription:
        """The model in use."""
        return self._run(ask(calls.get_model(limits=self._limits)))

    def get_models(self) -> ModelList:
        """The versions of the bundle folder, and which of them answer. Needs the scope `models`."""
        return self._run(ask(calls.get_models(limits=self._limits)))

    def get_readiness(self) -> Readiness:
        """Whether the service can answer. Needs no key; asked once, and not repeated."""
        return self._run(ask(calls.get_readiness(limits=self._limits)))

    def close(self) -> None:
        """Close the connections. The client cannot be used any more."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def _run(self, exchange: Exchange[T]) -> T:
        reply = None
        while not isinstance(step := advance(exchange, reply), Done):
            reply = self._take(step)
        return step.result

    def _take(self, step: Send | Pause) -> Reply | Lost | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return read_reply(self._http.request(**write_request(self._url, step)))
        except httpx.RequestError as error:
            return read_loss(error)

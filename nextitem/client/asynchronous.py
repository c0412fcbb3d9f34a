"""The client for coroutines. Its methods are those of Client, awaited."""

import asyncio
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


class AsyncClient:
    """Calls the service from one event loop, whose tasks may share it. Otherwise as Client."""

    def __init__(
        self, url: str | None = None, *, transport: httpx.AsyncBaseTransport | None = None, **options: Unpack[Options]
    ) -> None:
        """Make a client; it connects with the first call. Raises ValueError or OSError for wrong options."""
        self._url = read_url(url)
        self._limits = read_limits(options)
        self._http = httpx.AsyncClient(transport=transport, **write_http_options(self._url, options))

    async def recommend(self, *, after: Receipt | None = None, **request: Unpack[RecommendRequest]) -> Recommendation:
        return await self._run(ask(calls.recommend(request, after=after, limits=self._limits)))

    async def recommend_batch(
        self, requests: Iterable[RecommendRequest], *, after: Receipt | None = None
    ) -> list[Recommendation]:
        batch = await self._run(ask(calls.recommend_batch(requests, after=after, limits=self._limits)))
        return [*batch.responses]

    async def find_similar(self, **request: Unpack[SimilarRequest]) -> SimilarItems:
        return await self._run(ask(calls.find_similar(request, limits=self._limits)))

    async def record(self, **event: Unpack[EventRequest]) -> Receipt:
        return await self._run(recording.record_one(event, limits=self._limits))

    async def record_many(self, events: Iterable[EventRequest], *, strict: bool = False) -> Receipt:
        return await self._run(recording.record_many(events, strict=strict, limits=self._limits))

    async def put_item(self, item_id: str, **item: Unpack[ItemRequest]) -> CatalogueReceipt:
        return await self._run(ask(calls.put_item(item_id, item, limits=self._limits)))

    async def patch_item(self, item_id: str, **item: Unpack[ItemPatchRequest]) -> CatalogueReceipt:
        return await self._run(ask(calls.patch_item(item_id, item, limits=self._limits)))

    async def delete_item(self, item_id: str) -> CatalogueReceipt:
        return await self._run(ask(calls.delete_item(item_id, limits=self._limits)))

    async def change_items(self, items: Iterable[ItemChangeRequest]) -> CatalogueReceipt:
        return await self._run(ask(calls.change_items(items, limits=self._limits)))

    async def get_history(self, user_id: str) -> HistoryExport:
        return await self._run(ask(calls.get_history(user_id, limits=self._limits)))

    async def erase(self, user_id: str) -> None:
        return await self._run(ask(calls.erase(user_id, limits=self._limits)))

    async def get_item(self, item_id: str) -> ItemDescription:
        return await self._run(ask(calls.get_item(item_id, limits=self._limits)))

    async def find_items(self, query: str, *, limit: int = 20) -> FoundItems:
        return await self._run(ask(calls.find_items(query, limit=limit, limits=self._limits)))

    async def get_model(self) -> ModelDescription:
        return await self._run(ask(calls.get_model(limits=self._limits)))

    async def get_models(self) -> ModelList:
        return await self._run(ask(calls.get_models(limits=self._limits)))

    async def get_readiness(self) -> Readiness:
        return await self._run(ask(calls.get_readiness(limits=self._limits)))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self._url!r})"

    async def _run(self, exchange: Exchange[T]) -> T:
        reply = None
        while not isinstance(step := advance(exchange, reply), Done):
            reply = await self._take(step)
        return step.result

    async def _take(self, step: Send | Pause) -> Reply | Lost | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return read_reply(await self._http.request(**write_request(self._url, step)))
        except httpx.RequestError as error:
            return read_loss(error)

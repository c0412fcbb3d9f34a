"""The textbook handler: FastAPI with models for request and response, history by LRANGE, one row a run, in a thread."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from redis.asyncio import Redis

from benchmarks.serving.systems.orders import STORE_VARIABLE
from benchmarks.serving.systems.plain import PlainModel

HISTORY_KEY = "history:{}"
"""A list of a user's newest item ids, oldest first, cut to the window when it was written."""


class RecommendRequest(BaseModel):
    """Whom to recommend to, and how much."""

    user_id: str = Field(min_length=1, max_length=256)
    k: int = Field(default=10, ge=1, le=500)


class Item(BaseModel):
    """One recommendation."""

    item_id: str
    score: float


class RecommendResponse(BaseModel):
    """The best items, best first."""

    user_id: str
    items: list[Item]


@asynccontextmanager
async def open_all(app: FastAPI) -> AsyncIterator[None]:
    """Load the model and connect to the store, once for each worker."""
    app.state.model = PlainModel.from_environment()
    app.state.store = Redis.from_url(os.environ[STORE_VARIABLE], decode_responses=True)
    yield
    await app.state.store.aclose()


app = FastAPI(lifespan=open_all, telemetry={"auto_configure": False})


@app.post("/recommend")
async def recommend(ask: RecommendRequest, request: Request) -> RecommendResponse:
    """Read the history, score every item in a thread, sort outside the graph."""
    state = request.app.state
    history = await state.store.lrange(HISTORY_KEY.format(ask.user_id), 0, -1)
    [ranked] = await run_in_threadpool(state.model.rank, [history], ask.k)
    return RecommendResponse(
        user_id=ask.user_id, items=[Item(item_id=item_id, score=score) for item_id, score in ranked]
    )

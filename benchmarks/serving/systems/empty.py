"""Ceilings: endpoints that read a request, answer ten items as long as real ones, and do nothing else."""

import orjson
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from benchmarks.serving.systems.textbook import Item, RecommendRequest, RecommendResponse

ANSWER = [(f"{number:07d}", 10.0 - number / 7) for number in range(10)]

fastapi_app = FastAPI(telemetry={"auto_configure": False})


@fastapi_app.post("/recommend")
async def recommend(ask: RecommendRequest) -> RecommendResponse:
    """The textbook's models with nothing between them."""
    return RecommendResponse(
        user_id=ask.user_id, items=[Item(item_id=item_id, score=score) for item_id, score in ANSWER]
    )


async def asgi_app(scope: Scope, receive: Receive, send: Send) -> None:
    """JSON in, JSON out, without a framework."""
    if scope["type"] != "http":
        return
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    items = [{"item_id": item_id, "score": score} for item_id, score in ANSWER]
    content = orjson.dumps({"user_id": orjson.loads(body)["user_id"], "items": items})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})

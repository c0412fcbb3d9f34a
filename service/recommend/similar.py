"""Answers POST /similar: by the cosines of the items' rows, or by the model with the items as a history.

Both are a recommendation for the items of a session, and have its deadline and what replaces a failing engine.
"""

from functools import partial

from service.api.requests import RecommendRequest
from service.api.responses import Recommendation
from service.api.similar import SimilarItems, SimilarRequest, SimilarSource
from service.errors import EngineUnavailable, FieldError, Invalid, NotFound, VersionBehind
from service.ranking.batcher import BatcherStopped, Expired, QueueFull
from service.ranking.pending import PendingRequest
from service.ranking.response import make_response
from service.recommend.recommender import Recommender
from service.recommend.variant import Variant
from service.telemetry.metrics import Metrics
from service.telemetry.stage_timer import StageTimer

_NOT_PUBLISHED = FieldError(
    "/by", "not_published", "the bundle has no graph of similar items: publish it with --similar, or ask by next"
)


async def find_similar(
    recommender: Recommender, request: SimilarRequest, *, metrics: Metrics, started_s: float
) -> SimilarItems:
    """The items like those of a request that began at `started_s` (time.perf_counter).

    Raises NotFound for an item that the champion does not know, Invalid if its bundle lacks the graph or a field of the
    filter, and VersionBehind if the catalogue is not that new in time.
    """
    variant = recommender.variants.champion
    if request.by == "taste" and variant.similar is None:
        raise Invalid([_NOT_PUBLISHED])
    for place, item_id in enumerate(request.item_ids):
        if item_id not in variant.model.vocabulary:
            raise NotFound(f"The model in use does not know the item at /item_ids/{place}.")
    session = RecommendRequest.model_construct(
        items=request.item_ids,
        k=request.k,
        exclude_item_ids=request.exclude_item_ids,
        filter=request.filter,
        min_catalogue_version=request.min_catalogue_version,
        timeout_ms=request.timeout_ms,
        return_metadata=request.return_metadata,
    )
    timer = StageTimer(started_s)  # the request's own would count it among the stages of POST /recommend
    source: SimilarSource | None = None
    if request.by == "next":
        answer = await recommender.recommend(session, timer)
    else:
        attempt = partial(_answer_by_taste, recommender, variant, session, timer)
        try:
            try:
                pending, answer = await attempt()
            except VersionBehind as behind:
                pending, answer = await recommender.await_version(attempt, session, timer, type(behind))
        except BatcherStopped:  # it retired meanwhile
            return await find_similar(recommender, request, metrics=metrics, started_s=started_s)
        metrics.found_similar(answer["degraded"])
        if pending.catalogue is not None and pending.catalogue.behind:
            metrics.catalogue.answered_behind()
        source = None if pending.ranking is None else "similar"
    ranked_by = source or answer["source"]
    assert ranked_by != "rules"  # noqa: S101 - they rank only for who names them
    found = SimilarItems(
        items=answer["items"],
        count=answer["count"],
        requested=answer["requested"],
        source=ranked_by,
        degraded=answer["degraded"],
        model=answer["model"],
        took_ms=answer["took_ms"],
    )
    if "allowed" in answer:
        found["allowed"] = answer["allowed"]
    if "catalogue" in answer:
        found["catalogue"] = answer["catalogue"]
    return found


async def _answer_by_taste(
    recommender: Recommender, variant: Variant, session: RecommendRequest, timer: StageTimer
) -> tuple[PendingRequest, Recommendation]:
    """The answer by cosines, or what replaces it, with `ranking` None in the request.

    Raises BatcherStopped if the variant is not the champion any more, and what speaks against an answer.
    """
    pending, pipeline = PendingRequest(session, timer), variant.pipeline
    await pipeline.read_histories([pending])  # of nobody: the catalogue alone
    await pipeline.encode(pending)
    if pending.question is None:
        raise pending.failure or RuntimeError("a question was not encoded")
    assert variant.similar is not None  # noqa: S101 - was asked before
    if variant.runner.stuck:
        return pending, await recommender.fall_back(variant, pending, EngineUnavailable())
    try:
        pending.ranking = await variant.similar.submit(pending.question, expires_s=pending.expires_s)
    except (Expired, QueueFull, EngineUnavailable) as refusal:
        return pending, await recommender.fall_back(variant, pending, refusal)
    except BatcherStopped:
        if recommender.variants.champion is not variant:
            raise
        return pending, await recommender.fall_back(variant, pending, EngineUnavailable())
    answer = make_response(variant.model, pending, pipeline.role)
    if isinstance(answer, Exception):
        raise answer
    return pending, answer

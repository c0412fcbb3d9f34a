"""Finds items by the beginnings of their ids."""

from bisect import bisect_left

import numpy as np

from service.inference.model import LiveModel


def find_ids(model: LiveModel, prefix: str, most: int) -> list[int]:
    """The places of the most popular items whose ids begin so."""
    ids = model.vocabulary.item_ids
    first, end = bisect_left(ids, prefix), bisect_left(ids, f"{prefix}\x7f")  # which is above all that ids may hold
    places = model.popular.places[first + 1 : end + 1]
    if len(places) > most:
        places = np.partition(places, most)[:most]
    return [int(place) for place in np.sort(places)]

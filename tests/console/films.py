"""Twenty films, which the tiny bundle's items are in the console's tests."""

from typing import Any

TITLES = (
    *("Star Wars", "Star Trek", "Starship Troopers", "Toy Story", "Alien", "Fargo", "Contact", "Casablanca", "Heat"),
    *("Vertigo", "Psycho", "Rear Window", "Jaws", "Rocky", "Amadeus", "Gandhi", "Clueless", "Scream", "Emma", "Babe"),
)
FILMS: list[dict[str, Any]] = [
    {"title": title, "year": 1970 + number, "genres": ["Drama", "Sci-Fi"][: number % 3]}
    for number, title in enumerate(TITLES)
]

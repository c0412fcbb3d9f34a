"""What papers print for the models of the benchmark, so that a reader sees at once which row is reached.

Rows compare under one protocol on one log, which its fingerprint names. HR@10, NDCG@10 and MRR, None where none is
printed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from training.evaluation.results import SHOWN

Row = tuple[float, float, float | None]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One table of results."""

    name: str
    logs: tuple[str, ...]
    """Fingerprints of the logs that it is about."""
    protocol: str
    rows: dict[str, Row]
    """By what the table calls the model."""
    held_out_users: int | None
    """How many users' event before the test is in no training data, all users' being None, as data.held_out_users."""
    but: str = ""
    """What else keeps its numbers from comparing exactly."""


ML_1M = "sha256:f12a37c60713ab3412a415771d7cc8d80e6178241c5a7918ba9311e558767e3d"
BEAUTY = "sha256:93b27c8f1a2c0abdd0cbe326e9fe7f411613009407bc4c23f1b1e12988f25771"
"""The files that the authors of BERT4Rec publish beside their code."""
BEAUTY_5CORE = "sha256:ce2839b8b081e88d98f561098f2e06b8b21725df4c9a2acc01a7c97bd20b4af0"
"""The file that the authors of S3-Rec publish beside theirs."""

_SUN = "Sun et al., BERT4Rec, CIKM 2019, table 2"
_KANG = "Kang & McAuley, SASRec, ICDM 2018, table of results"
_KLENITSKIY = "Klenitskiy & Vasilev, RecSys 2023"
_RECTOOLS = "RecTools' networks in the harness of Petrov & Macdonald 2022, its repository's README, 2025"

RECIPES = {
    "POP": ("pop",),
    "BPR-MF": ("bpr-mf",),
    "NCF": ("ncf",),
    "FMC": ("fmc",),
    "FPMC": ("fpmc",),
    "TransRec": ("transrec",),
    "GRU4Rec": ("gru4rec",),
    "GRU4Rec+": ("gru4rec-plus",),
    "Caser": ("caser",),
    "SASRec": ("sasrec-original",),
    "SASRec+": ("sasrec-ml-1m", "sasrec-beauty"),
    "gSASRec": ("gsasrec",),
    "NOVA": ("nova",),
    "BERT4Rec": ("bert4rec-ml-1m", "bert4rec-beauty", "bert4rec-counts-beauty"),
}
"""Recipes of each model, SASRec+ being SASRec trained by a softmax. None of them adds rules, which no paper does."""
MORE = ", on more events"
"""Beside what was reached by a model that trained on events which the published one did not have."""
REACHED, WITHIN, BELOW = "reached", "within", "below"

SOURCES = (
    Source(
        name=_SUN,
        logs=(ML_1M,),
        protocol="P1",
        held_out_users=0,
        rows={
            "POP": (0.1358, 0.0621, 0.0627),
            "BPR-MF": (0.4301, 0.2365, 0.2009),
            "NCF": (0.3477, 0.1640, 0.1358),
            "FPMC": (0.5946, 0.3439, 0.2891),
            "GRU4Rec": (0.6207, 0.3627, 0.3041),
            "GRU4Rec+": (0.6351, 0.4064, 0.3462),
            "Caser": (0.6692, 0.4268, 0.3648),
            "SASRec": (0.6629, 0.4368, 0.3790),
            "BERT4Rec": (0.6970, 0.4818, 0.4254),
        },
    ),
    Source(
        name=_SUN,
        logs=(BEAUTY,),
        protocol="P1",
        held_out_users=0,
        rows={
            "POP": (0.0762, 0.0349, 0.0437),
            "BPR-MF": (0.1992, 0.1064, 0.1006),
            "NCF": (0.2142, 0.1124, 0.1043),
            "FPMC": (0.2401, 0.1211, 0.1056),
            "GRU4Rec": (0.2343, 0.1074, 0.1023),
            "GRU4Rec+": (0.2654, 0.1453, 0.1299),
            "Caser": (0.2590, 0.1360, 0.1205),
            "SASRec": (0.2653, 0.1633, 0.1536),
            "BERT4Rec": (0.3025, 0.1862, 0.1701),
        },
    ),
    Source(
        name=_KANG,
        logs=(ML_1M,),
        protocol="P7",
        held_out_users=None,
        rows={
            "POP": (0.4329, 0.2377, None),
            "BPR-MF": (0.5781, 0.3287, None),
            "FMC": (0.6986, 0.4676, None),
            "FPMC": (0.7599, 0.5176, None),
            "TransRec": (0.6413, 0.3969, None),
            "GRU4Rec": (0.5581, 0.3381, None),
            "GRU4Rec+": (0.7501, 0.5513, None),
            "Caser": (0.7886, 0.5538, None),
            "SASRec": (0.8245, 0.5905, None),
        },
    ),
    Source(
        name=_KANG,
        logs=(BEAUTY,),
        protocol="P7",
        held_out_users=None,
        rows={
            "POP": (0.4003, 0.2277, None),
            "BPR-MF": (0.3775, 0.2183, None),
            "FMC": (0.3771, 0.2477, None),
            "FPMC": (0.4310, 0.2891, None),
            "TransRec": (0.4607, 0.3020, None),
            "GRU4Rec": (0.2125, 0.1203, None),
            "GRU4Rec+": (0.3949, 0.2556, None),
            "Caser": (0.4264, 0.2547, None),
            "SASRec": (0.4854, 0.3219, None),
        },
        but="another file of the same reviews: 52,024 users, 57,289 items",
    ),
    Source(
        name=_KLENITSKIY,
        logs=(ML_1M,),
        protocol="P2",
        held_out_users=None,
        rows={
            "GRU4Rec": (0.2811, 0.1648, None),
            "SASRec": (0.2500, 0.1341, None),
            "SASRec+": (0.3152, 0.1821, None),
            "BERT4Rec": (0.2843, 0.1537, None),
        },
        but="GRU4Rec as quoted by Zhai et al. 2024",
    ),
    Source(
        name=_RECTOOLS,
        logs=(ML_1M,),
        protocol="P2",
        held_out_users=2048,
        rows={"SASRec+": (0.3058, 0.1779, None), "BERT4Rec": (0.2921, 0.1618, None)},
    ),
    Source(
        name=_RECTOOLS,
        logs=(BEAUTY,),
        protocol="P2",
        held_out_users=2048,
        rows={"SASRec+": (0.0595, 0.0359, None), "BERT4Rec": (0.0434, 0.0242, None)},
    ),
    Source(
        name=_KLENITSKIY,
        logs=(BEAUTY,),
        protocol="P2",
        held_out_users=None,
        rows={
            "SASRec": (0.0246, 0.0126, None),
            "SASRec+": (0.0533, 0.0327, None),
            "BERT4Rec": (0.0338, 0.0187, None),
        },
    ),
    Source(
        name="Petrov & Macdonald, gSASRec, RecSys 2023, published checkpoint",
        logs=(ML_1M,),
        protocol="P2",
        held_out_users=512,
        rows={"gSASRec": (0.3003, 0.1726, None)},
    ),
    Source(
        name="Xie et al., DIF-SR, SIGIR 2022",
        logs=(BEAUTY_5CORE,),
        protocol="P6s",
        held_out_users=None,
        rows={
            "GRU4Rec": (0.0530, 0.0266, None),
            "BERT4Rec": (0.0529, 0.0237, None),
            "SASRec": (0.0828, 0.0371, None),
            "NOVA": (0.0887, 0.0439, None),
        },
    ),
)


def find_sources(fingerprint: str, protocol: str) -> list[Source]:
    """The tables about one log under one protocol."""
    return [source for source in SOURCES if fingerprint in source.logs and source.protocol == protocol]


def compare(metrics: Mapping[str, Mapping[str, float]], row: Row) -> str:
    """Whether metrics reach a row: in all of its numbers, within their 95 % intervals in all, or not."""
    pairs = [(metrics[name], printed) for name, printed in zip(SHOWN, row, strict=True) if printed is not None]
    if all(round(found["value"], 4) >= printed for found, printed in pairs):
        return REACHED
    return WITHIN if all(round(found["high"], 4) >= printed for found, printed in pairs) else BELOW


def count_as_held_out(held_out_users: int | None) -> float:
    """So many users' event before the test is held out, everybody's where none are named."""
    return math.inf if held_out_users is None else held_out_users


def say_held_out(held_out_users: int | None) -> str:
    """Whose event before the test is in no training data."""
    if not held_out_users:
        return "everybody's" if held_out_users is None else "nobody's"
    return f"{held_out_users:,} users'"


def format_row(row: Row) -> str:
    """As papers print it."""
    return " / ".join(f"{printed:.4f}" for printed in row if printed is not None)

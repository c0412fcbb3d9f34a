"""NOVA-BERT (Liu et al., AAAI 2021): side information tells attention where to look, and never enters what it looks at.

Two streams. R = F(items, side information, position) is formed anew for every layer from the layer's own input and the
same side information; queries and keys are made of R, values of the input alone, so that what a layer gives stays in
the space of the items, which ranks them (section 3.3). The invasive fusion of section 3.2, for comparison, puts R in at
the bottom of BERT4Rec as it is. Position is side information as well.

`feature_embeddings` are not the paper's: features stand in the space of the items themselves (Kula 2015, LightFM),
where values and scores know them, too, and an item that is rarely met leans on the others of its kind.

What the paper leaves open: each side vector has a LayerNorm of its own, as the sum of embeddings has in BERT4Rec, so
that all of them begin as large as the items; a fusor belongs to its layer.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.contract.vocabulary import PAD
from model.nets.bert4rec import Bert4Rec
from model.nets.configs import NovaBertConfig, NovaSasrecConfig
from model.nets.dropout import drop
from model.nets.features import SideInformation
from model.nets.sasrec import Sasrec
from model.nets.transformer import Layer, Side, Transformer, make_norm

_Config = NovaBertConfig | NovaSasrecConfig


class Fusor(nn.Module):
    """m vectors a token made one (section 3.4): their sum, a layer over all of them, or a sum with learned gates."""

    def __init__(self, fusion: str, count: int, width: int) -> None:
        super().__init__()
        self.fusion = fusion
        if fusion == "concat":
            self.joined = nn.Linear(count * width, width)
        elif fusion == "gate":
            self.gate = nn.Parameter(torch.empty(width, 1))  # W^F

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Take m vectors (B or 1, T, D). Returns (B, T, D). Each is read where it lies: positions once for all rows."""
        if self.fusion == "concat":
            parts = self.joined.weight.chunk(len(vectors), dim=1)
            read = [F.linear(vector, part) for vector, part in zip(vectors, parts, strict=True)]
            return sum(read, self.joined.bias)
        if self.fusion == "gate":
            vectors = [torch.sigmoid(vector @ self.gate) * vector for vector in vectors]
        return sum(vectors[1:], vectors[0])


class NovaLayer(Layer):
    """A layer whose queries and keys are made of its input fused with the side information."""

    def __init__(self, config: _Config, vectors: int) -> None:
        super().__init__(config)
        self.fuse = Fusor(config.fusion, vectors, config.width)

    def address(self, values: Tensor, side: Side) -> Tensor:
        """R = F(values, side) of values (B, T, D)."""
        fused: Tensor = self.fuse([values, *side])
        return fused


class Nova(Transformer):
    """Gives a transformer side information of items, of events, or of both. Goes before it in the order of bases."""

    config: _Config

    def __init__(self, config: _Config, item_count: int, side: SideInformation) -> None:
        self.vectors = 1 + (config.positions == "learned") + len(side.items) + len(side.events)
        self.event_inputs = tuple(side.events)
        super().__init__(config, item_count)
        self.columns, self.readers = side.make_columns(config.width), side.make_readers(config.width)
        self.side_norms = nn.ModuleList(make_norm(config) for _ in range(self.vectors - 1))
        if config.invasive:
            self.fuse = Fusor(config.fusion, self.vectors, config.width)
        self.feature_embeddings = config.feature_embeddings
        # `portraits` and `likeness` are names in stored weights.
        if config.id_dropout or config.feature_embeddings:
            self.portraits = side.make_columns(config.width)
            self.likeness = nn.Parameter(torch.zeros(config.width))
        self.reset_parameters()

    @property
    def rows(self) -> Tensor:
        """The output embeddings (V + 2, D); while training for new items, a share of them made of features."""
        rows = super().rows
        if self.feature_embeddings:
            rows = rows + self.embed_features(torch.arange(len(rows), device=rows.device))
        if not (self.training and self.config.id_dropout):
            return rows
        dropped = torch.rand_like(rows[:, :1]) < self.config.id_dropout
        return torch.where(dropped, self.embed_features(torch.arange(len(rows), device=rows.device)), rows)

    def pick_rows(self, columns: Tensor) -> Tensor:
        """The output embeddings (..., D) of some items; composed ones are composed alone, not the whole table."""
        if self.feature_embeddings and not (self.training and self.config.id_dropout):
            return self.read_items(columns + PAD + 1)
        return super().pick_rows(columns)

    def read_items(self, item_ids: Tensor) -> Tensor:
        """Embeddings (B, T, D) of item_ids (B, T), composed as the output ones are."""
        own = super().read_items(item_ids)
        return own + self.embed_features(item_ids) if self.feature_embeddings else own

    @torch.no_grad()
    def settle(self) -> None:
        """Put composed rows into the item table for good: the same answers from an ordinary table."""
        if self.feature_embeddings:
            self.items.weight.copy_(self.eval().rows)
            self.feature_embeddings = False

    def embed_features(self, item_ids: Tensor) -> Tensor:
        """Embeddings (..., D) of items (...) by their features alone: a sum over columns, as DropoutNet's is."""
        portraits = [column(item_ids) for column in self.portraits]
        return sum(portraits, self.likeness)

    def make_layer(self) -> Layer:
        """A layer of two streams, or an ordinary one above an invasive fusion."""
        return Layer(self.config) if self.config.invasive else NovaLayer(self.config, self.vectors)

    def place(self, tokens: Tensor, item_ids: Tensor, *events: Tensor) -> tuple[Tensor, Side]:
        """The items and their side inputs; or, with an invasive fusion, both fused and no side inputs."""
        side = self._describe(item_ids, events)
        if self.config.invasive:
            fused: Tensor = self.fuse([tokens, *side])
            return fused, ()
        return tokens, side

    def _describe(self, item_ids: Tensor, events: Sequence[Tensor]) -> list[Tensor]:
        """Side vectors (B or 1, T, D) of item_ids (B, T): none at PAD and [mask], whatever the inputs are."""
        raw = [column(item_ids) for column in self.columns]
        shown = (item_ids != PAD) & (item_ids != self.item_count + 1)
        if self.training and events:
            shown = shown & (torch.rand_like(shown[:, :1], dtype=torch.float32) >= self.config.event_dropout)
        features = events[: len(self.readers)] or [torch.zeros_like(item_ids)] * len(self.readers)
        shown = shown if events else torch.zeros_like(shown)
        raw += [reader(values, shown) for reader, values in zip(self.readers, features, strict=True)]
        if self.config.positions == "learned":
            raw.append(self.positions[self.config.max_length - item_ids.shape[1] :][None])
        normed = [norm(vector) for norm, vector in zip(self.side_norms, raw, strict=True)]
        return [drop(vector, self.config.dropout, self.training) for vector in normed]


class NovaBert(Nova, Bert4Rec):
    """NOVA-BERT, or BERT4Rec with an invasive fusion."""


class NovaSasrec(Nova, Sasrec):
    """SASRec with the same fusions."""

"""RecTools' BERT4RecModel or SASRecModel, trained by its own Lightning trainer, with a callback that counts.

Of a user's history it trains the newest N items, SASRec N targets. The layers of its BERT4Rec are pre-LN and it has no
output layer before the item table; 10 % of its masked items are shown as they are and 10 % as others.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import BERT4RecModel, SASRecModel
from torch import Tensor

from benchmarks.training.systems.meter import Enough, Entry, Meter, run_system
from benchmarks.training.terms import Material, Terms
from training.data.histories import Histories


class RecToolsScorer:
    """Asks the network itself, as its own `recommend` does: the newest N items, in BERT4Rec N - 1 and [mask]."""

    def __init__(self, module: LightningModule, item_count: int, max_length: int) -> None:
        ids = module.data_preparator.item_id_map
        known = set(ids.external_ids.tolist())
        self._to_own = np.array([ids.convert_to_internal([i])[0] if i in known else 0 for i in range(item_count + 1)])
        extra = module.data_preparator.extra_token_ids
        self._behind = [extra["MASK"]] if "MASK" in extra else []
        self._network, self._max_length, self.item_count = module.torch_model, max_length, item_count

    @torch.inference_mode()
    def score(self, histories: Histories) -> Tensor:
        """Scores of all items (B, V); items that nobody has in training come last."""
        window = self._to_own[histories.cut_windows(self._max_length - len(self._behind)).item_ids]
        asked = np.concatenate([window, np.tile(np.array(self._behind, dtype=np.int64), (len(window), 1))], axis=1)
        x = np.zeros((len(histories), self._max_length), dtype=np.int64)
        x[:, -asked.shape[1] :] = asked
        self._network.eval()
        items = self._network.item_model.get_all_embeddings()
        newest = self._network.encode_sessions({"x": torch.from_numpy(x)}, items)[:, -1:]
        scores: Tensor = self._network.similarity_module(newest, items)[:, 0]
        self._network.train()
        own = torch.from_numpy(self._to_own[1:])
        return scores[:, own].masked_fill_(own == 0, -1e9)


class TokenCounter(Callback):  # type: ignore[misc]  # lightning is not installed where types are checked
    """Counts the places of each batch that are no padding."""

    def __init__(self, terms: Terms, material: Material, entry: Entry) -> None:
        self._terms, self._material, self._entry = terms, material, entry
        self._meter: Meter | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "TokenCounter":
        """The model trains with a copy of its trainer, but there is one meter."""
        return self

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del trainer
        preparator, lengths = pl_module.data_preparator, self._material.train.lengths
        shifted = preparator.train_session_max_len_addition  # SASRec reads all but the newest item of a history
        used = np.minimum(lengths[lengths >= preparator.train_min_user_interactions] - shifted, self._terms.max_length)
        scorer = RecToolsScorer(pl_module, self._material.item_count, self._terms.max_length)
        self._meter = self._entry.begin(scorer, samples=len(used), tokens=int(used.sum()))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: dict[str, Tensor], batch_idx: int
    ) -> None:
        del trainer, pl_module, outputs, batch_idx
        if self._meter and self._meter.step(int((batch["x"] != 0).sum())):
            raise Enough


def run_trainer(terms: Terms, material: Material, entry: Entry) -> None:
    """Train until the meter says enough."""
    seed_everything(terms.seed)
    users, items = material.train.flatten()
    log = pd.DataFrame({Columns.User: users, Columns.Item: items, Columns.Weight: 1.0})
    log[Columns.Datetime] = pd.Timestamp("2000-01-01") + pd.to_timedelta(np.arange(len(log)), unit="s")
    given = {
        "dropout_rate": terms.dropout,
        "lr": terms.learning_rate,
        "batch_size": terms.batch_size,
        **({"mask_prob": terms.mask_probability} if terms.network == "bert4rec" else {}),
    }
    model = {"bert4rec": BERT4RecModel, "sasrec": SASRecModel}[terms.network](
        n_blocks=terms.layers,
        n_heads=terms.heads,
        n_factors=terms.width,
        session_max_len=terms.max_length,
        **{key: value for key, value in given.items() if value is not None},
        get_trainer_func=lambda: Trainer(
            max_epochs=-1,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[TokenCounter(terms, material, entry)],
        ),
    )
    try:
        model.fit(Dataset.construct(log))
    except Enough:
        return


if __name__ == "__main__":
    run_system("rectools", "rectools", run_trainer)

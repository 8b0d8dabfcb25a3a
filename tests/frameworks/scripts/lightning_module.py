"""Train an autoencoder of points as a LightningModule, with Lightning's Trainer and its logger to CSV.

On whatever device there is:

    python lightning_module.py --output out
    python lightning_module.py --output out --accumulate 2 --precision bf16-mixed
"""

import argparse

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 16))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        decoded: torch.Tensor = self.decoder(self.encoder(points))
        return decoded

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self(batch[0]), batch[0])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self(batch[0]), batch[0]))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--precision", default="32-true")
    options = parser.parse_args()

    L.seed_everything(0)
    points = TensorDataset(torch.randn(64, 16))
    trainer = L.Trainer(
        max_epochs=2,
        accumulate_grad_batches=options.accumulate,
        precision=options.precision,
        gradient_clip_val=1.0,
        log_every_n_steps=1,
        logger=CSVLogger(options.output, name="log", version=""),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Autoencoder()
    trainer.fit(model, DataLoader(points, batch_size=16, shuffle=True), DataLoader(points, batch_size=32))
    trainer.save_checkpoint(f"{options.output}/last.ckpt")


if __name__ == "__main__":
    main()

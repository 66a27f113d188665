#!/usr/bin/env python3
"""Trains a small network with PyTorch Lightning's DDP strategy on CPUs. Lightning starts the second process itself.

python3 examples/real_programs/lightning_ddp.py
"""

import argparse
import hashlib

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """Tells on which side of a curve a point lies."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
        )

    def training_step(self, batch, _):
        points, sides = batch
        loss = torch.nn.functional.cross_entropy(self.layers(points), sides)
        self.log("train_loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        points, sides = batch
        right = (self.layers(points).argmax(1) == sides).float().mean()
        self.log("accuracy", right, sync_dist=True)  # the mean over all ranks

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def digest_of(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def data(count, seed):
    points = torch.randn(count, 16, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(points, (points.square().sum(1) > 16).long())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3, help="passes over the data (3)")
    parser.add_argument("--ranks", type=int, default=2, help="processes (2)")
    options = parser.parse_args()

    lightning.seed_everything(1, verbose=False)
    model = Classifier()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=options.ranks,
        strategy="ddp",
        max_epochs=options.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(data(256, 2), batch_size=16, shuffle=True), DataLoader(data(64, 3), batch_size=16))

    if trainer.is_global_zero:
        print(f"accuracy {trainer.callback_metrics['accuracy'].item():.4f}\n", end="", flush=True)
    # One write a line: the ranks share the terminal.
    print(
        f"rank={trainer.global_rank} of {trainer.world_size} steps={trainer.global_step} "
        f"parameters={digest_of(model)}\n",
        end="",
        flush=True,
    )


if __name__ == "__main__":
    main()

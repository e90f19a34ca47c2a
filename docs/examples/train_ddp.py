"""Train a small network with DistributedDataParallel, over the GPUs of one machine or of many.

    torchrun --standalone --nproc-per-node=gpu docs/examples/train_ddp.py --amp
    torchrun --standalone --nproc-per-node=2 docs/examples/train_ddp.py     # without a GPU: two CPU ranks

The data are made up: ten patterns under noise. Started again with the same --checkpoint, training goes on
where it stopped. Several machines: deploy/torchrun/README.md.
"""

import argparse
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# The first step of an optimizer imports this, and it keeps the group that it finds then: its threads would
# outlive destroy_process_group, and a rank could abort at its very end. Imported before there is a group.
import torch.distributed.nn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEED = 0
CLASSES, IMAGE = 10, (1, 12, 12)


def made_up_data(images: int) -> TensorDataset:
    """The same images on every rank; the sampler gives each its own part of them."""
    generator = torch.Generator().manual_seed(SEED)
    patterns = torch.randn(CLASSES, *IMAGE, generator=generator)
    labels = torch.randint(CLASSES, (images,), generator=generator)
    return TensorDataset(patterns[labels] + torch.randn(images, *IMAGE, generator=generator), labels)


def network() -> nn.Module:
    """A convolution and a classifier."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 6 * 6, CLASSES),
    )


class Training:
    """One rank's part of the training."""

    def __init__(self, device: torch.device, options: argparse.Namespace) -> None:
        self.device, self.options, self.epoch = device, options, 0
        data = made_up_data(options.images)
        self.sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(data, seed=SEED)
        self.loader = DataLoader(data, options.batch, sampler=self.sampler, drop_last=True)
        model = network().to(device)
        self.model = DistributedDataParallel(model, [device.index] if device.type == "cuda" else None)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def train(self) -> None:
        """Every epoch that is left, with a checkpoint after each."""
        self.resume()
        for epoch in range(self.epoch, self.options.epochs):
            self.sampler.set_epoch(epoch)  # else every epoch has the order of the first
            loss = torch.stack([self.step(*batch) for batch in self.loader]).mean()
            dist.all_reduce(loss)  # of all ranks, to be shown: training itself needs no more than DDP
            self.epoch = epoch + 1
            self.save()
            if dist.get_rank() == 0:
                print(f"epoch {self.epoch}: loss {loss.item() / dist.get_world_size():.4f}", flush=True)

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """Forward, backward, update; DDP averages the gradients over the ranks during backward."""
        images, labels = images.to(self.device), labels.to(self.device)
        mixed = torch.autocast(self.device.type, torch.bfloat16) if self.options.amp else nullcontext()
        with mixed:
            loss = nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def save(self) -> None:
        """Rank 0 writes, under another name first: whoever is killed leaves a whole checkpoint."""
        path: Path = self.options.checkpoint
        if dist.get_rank() == 0:
            state = {"epoch": self.epoch, "model": self.model.module.state_dict()}
            torch.save({**state, "optimizer": self.optimizer.state_dict()}, path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)

    def resume(self) -> None:
        """Rank 0 reads the checkpoint, if there is one, and tells the others, whose disks may lack it."""
        path: Path = self.options.checkpoint
        found: list[Any] = [None]
        if dist.get_rank() == 0 and path.exists():
            found = [torch.load(path, map_location="cpu", weights_only=True)]
            print(f"goes on after epoch {found[0]['epoch']}", flush=True)
        dist.broadcast_object_list(found, device=self.device)
        if found[0] is not None:
            self.epoch = found[0]["epoch"]
            self.model.module.load_state_dict(found[0]["model"])
            self.optimizer.load_state_dict(found[0]["optimizer"])


def main() -> None:
    """Join the group that torchrun made, train, leave the group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
    parser.add_argument("--amp", action="store_true", help="bf16 autocast")
    parser.add_argument("--checkpoint", type=Path, default=Path("train_ddp.pt"))
    options = parser.parse_args()

    torch.manual_seed(SEED)
    local_rank = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    try:
        Training(device, options).train()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

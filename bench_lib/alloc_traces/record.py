"""Records a trace: every allocation of a real Transformer's training, as torch's profiler tells them.

`python -m bench_lib.alloc_traces.record FILE` records it on the CPU and writes the file that ships.
"""

import importlib
import json
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench_lib.alloc_traces.trace import Event, Trace, whole, write

_OF_DEVICE = {"cpu": 0, "cuda": 1}  # c10::DeviceType, as the profiler's memory events number it
_SEED = 20
_LEAST_NBYTES = 512  # smaller blocks are numbers that a training step keeps on the host


class Network(NamedTuple):
    """A Transformer that predicts the next token, and the lengths it is trained on."""

    layers: int = 4
    width: int = 512
    heads: int = 8
    vocabulary: int = 8000
    batch: int = 8
    steps: int = 8
    shortest: int = 64
    longest: int = 512


def lengths(network: Network) -> list[int]:
    """The sequence length of each step: a multiple of 8, from one seed."""
    rng = random.Random(_SEED)
    span = network.longest - network.shortest
    return [network.shortest + 8 * int(rng.random() * span / 8) for _ in range(network.steps)]


def record(network: Network, device: str = "cpu") -> Trace:
    """Train for a few steps under the profiler: what was allocated on the device, and when it was freed."""
    torch: Any = importlib.import_module("torch")
    profiler = torch.profiler
    kinds = [profiler.ProfilerActivity.CPU]
    kinds += [profiler.ProfilerActivity.CUDA] if device == "cuda" else []
    torch.manual_seed(_SEED)
    with profiler.profile(activities=kinds, profile_memory=True) as profile:
        _train(torch, network, device)
    with tempfile.TemporaryDirectory(prefix="cuda-gains-") as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        told = json.loads(path.read_text())["traceEvents"]
    return whole("transformer", blocks(told, device))


def blocks(told: Iterable[Mapping[str, Any]], device: str) -> Iterator[Event]:
    """The profiler's memory events as events of a trace: addresses become numbers of blocks.

    Left out are blocks of less than 512 bytes, and what was allocated before the profiler began.
    """
    own = [e for e in told if e.get("name") == "[memory]" and e["args"]["Device Type"] == _OF_DEVICE[device]]
    numbers: dict[int, int] = {}
    for count, event in enumerate(sorted(own, key=lambda e: float(e["ts"]))):
        address, nbytes = int(event["args"]["Addr"]), int(event["args"]["Bytes"])
        if nbytes >= _LEAST_NBYTES:
            numbers[address] = count
            yield Event(count, nbytes)
        elif nbytes < 0 and address in numbers:
            yield Event(numbers.pop(address), 0)


def _train(torch: Any, network: Network, device: str) -> None:
    nn = torch.nn
    embedding = nn.Embedding(network.vocabulary, network.width, device=device)
    layer = nn.TransformerEncoderLayer(
        network.width, network.heads, 4 * network.width, dropout=0.1, batch_first=True, device=device
    )
    body = nn.TransformerEncoder(layer, network.layers, enable_nested_tensor=False)
    head = nn.Linear(network.width, network.vocabulary, device=device)
    model = nn.ModuleList([embedding, body, head])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    for length in lengths(network):
        tokens = torch.randint(network.vocabulary, (network.batch, length + 1), device=device)
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=device)
        logits = head(body(embedding(tokens[:, :-1]), mask=mask, is_causal=True))
        targets = tokens[:, 1:].reshape(-1)
        loss = nn.functional.cross_entropy(logits.reshape(-1, network.vocabulary), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    write(Path(sys.argv[1]), record(Network()))

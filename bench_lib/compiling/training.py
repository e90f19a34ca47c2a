"""ResNet-50 or one bottleneck stage of it, with data and optimizer, and one step of it in parts.

An arm is one copy from one seed. Copies of a set-up differ in nothing but their execution.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from typing import Any

from bench_lib.compiling.compiled_model import EAGER, check_compiled, compiled, count
from bench_lib.convolution.precision import Precision, autocast, grad_scaler, in_precision
from bench_lib.convolution.tuning import without_cudnn
from bench_lib.errors import WrongResult
from bench_lib.stack_packages import resnet50
from bench_lib.timing.turns import Parts

TRAIN, INFER = "train", "infer"
NCHW, CHANNELS_LAST = "nchw", "channels_last"
RESNET50, BOTTLENECK = "resnet50", "bottleneck"
_IMAGES = {RESNET50: (3, 224, 224), BOTTLENECK: (64, 28, 28)}  # a stage gets what a stem gives, smaller
_CLASSES = {RESNET50: 1000, BOTTLENECK: 10}

# The last scale of each residual branch. At torchvision's 1.0 an untrained net amplifies rounding
# from block to block, until bf16 gradients of two equal nets have nothing in common (error 1.3).
_BRANCH_SCALE = 0.1
_LEARNING_RATE = 1e-3

# An execution may be this much further from fp32 than eager is, or nearer than the floor. Wrong
# code is off by about 1.
_TIMES_EAGER = 2.0
_FLOOR = 0.01


@dataclass(frozen=True)
class Setup:
    """What is run: everything but how it is executed."""

    network: str  # resnet50 or bottleneck
    mode: str  # train or infer
    batch: int
    precision: Precision
    layout: str  # nchw or channels_last

    def text(self) -> dict[str, Any]:
        """The fields as JSON values; `Setup.of` reads them back."""
        return asdict(self)

    @classmethod
    def of(cls, text: dict[str, Any]) -> "Setup":
        """The set-up whose `text()` this is."""
        return cls(**{**text, "precision": Precision(text["precision"])})

    @property
    def name(self) -> str:
        """The set-up in one word, for a set of turns."""
        return "-".join(map(str, asdict(self).values()))


class Arm:
    """One copy of the network on a device, eager or compiled.

    Its module is put into train() or eval() once, before it is compiled, and stays there: switching
    the mode of a compiled module compiles it again, and made a gain of 1.44x look like 1.04x.
    """

    def __init__(self, setup: Setup, execution: str, device: str) -> None:
        import torch

        self._torch, self._setup, self._device = torch, setup, device
        self._model = _network(torch, setup, device)
        self._call = compiled(torch, self._model, execution, device)
        self._images, self._labels = _data(torch, setup, device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=_LEARNING_RATE, momentum=0.9)
        self._scaler = grad_scaler(torch, setup.precision, device)
        self._loss: Any = None

    @property
    def parts(self) -> Parts:
        """The parts of one step, in order; of inference the forward pass alone."""
        if self._setup.mode == INFER:
            return {"forward": self._infer}
        return {"forward": self._forward, "backward": self._backward, "optimizer": self._update}

    def step(self) -> None:
        """One whole step."""
        for part in self.parts.values():
            part()

    def once(self, images: int | None = None) -> dict[str, Any]:
        """Output, and in training the gradient, of one pass that changes no weight: fp32 copies.

        With `images`, of the first so many of the batch.
        """
        all_of_them = self._images, self._labels
        self._images, self._labels = (data[:images] for data in all_of_them)
        try:
            return self._once()
        finally:
            self._images, self._labels = all_of_them

    def exact(self, images: int) -> dict[str, Any]:
        """What `once` would give in fp64, by torch's own kernels; the arm stays in fp64."""
        self._model.double()
        self._images = self._images.double()
        with without_cudnn(self._torch):
            return self.once(images)

    def _once(self) -> dict[str, Any]:
        if self._setup.mode == INFER:
            return {"output": self._infer().float().clone()}
        output = self._forward().detach().float().clone()
        self._backward()
        grads = [p.grad.float().flatten() for p in self._model.parameters()]
        gradient = self._torch.cat(grads) / self._scaler.get_scale()
        self._optimizer.zero_grad(set_to_none=True)
        return {"output": output, "gradient": gradient}

    def _infer(self) -> Any:
        with self._torch.no_grad(), autocast(self._torch, self._setup.precision, self._device):
            return self._call(self._images)

    def _forward(self) -> Any:
        with autocast(self._torch, self._setup.precision, self._device):
            output = self._call(self._images)
            self._loss = self._torch.nn.functional.cross_entropy(output, self._labels)
        return output

    def _backward(self) -> None:
        self._scaler.scale(self._loss).backward()
        self._loss = None

    def _update(self) -> None:
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)


def _network(torch: Any, setup: Setup, device: str) -> Any:
    drawn, state = _drawn(torch)
    torch.set_rng_state(state)
    if setup.network == BOTTLENECK:
        head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
        stage = _copy(torch, drawn.layer1, device)
        model = torch.nn.Sequential(stage, *head, torch.nn.Linear(256, _CLASSES[BOTTLENECK]))
    else:
        model = _copy(torch, drawn, device)
    model = model.to(device=device, memory_format=_memory_format(torch, setup))
    return model.train(setup.mode == TRAIN)


@cache
def _drawn(torch: Any) -> tuple[Any, Any]:
    """ResNet-50 with the weights that seed 0 gives, on the CPU, and torch's random state after it.

    All arms are copies of it: drawing 25 million weights takes longer than many a step.
    """
    torch.manual_seed(0)
    model = resnet50()
    for module in model.modules():
        if hasattr(module, "bn3"):
            torch.nn.init.constant_(module.bn3.weight, _BRANCH_SCALE)
    return model, torch.get_rng_state()


def _copy(torch: Any, module: Any, device: str) -> Any:
    """A copy of a module on the CPU; on its way to another device its tensors are copied there alone."""
    lent: dict[int, Any] = {}
    if device != "cpu":
        lent |= {id(one): torch.nn.Parameter(one.detach()) for one in module.parameters()}
        lent |= {id(one): one.detach() for one in module.buffers()}
    return deepcopy(module, lent)


def _data(torch: Any, setup: Setup, device: str) -> tuple[Any, Any]:
    images, labels = _drawn_data(torch, setup.network, setup.batch)
    return images.to(device=device, memory_format=_memory_format(torch, setup)), labels.to(device)


@lru_cache(maxsize=1)
def _drawn_data(torch: Any, network: str, batch: int) -> tuple[Any, Any]:
    """Images and labels on the CPU: those of the last set-up stay, as its arms share them."""
    seeded = torch.Generator().manual_seed(1)
    images = torch.randn(batch, *_IMAGES[network], generator=seeded)
    return images, torch.randint(_CLASSES[network], (batch,), generator=seeded)


def _memory_format(torch: Any, setup: Setup) -> Any:
    return torch.channels_last if setup.layout == CHANNELS_LAST else torch.contiguous_format


def reference(setup: Setup, device: str) -> dict[str, Any]:
    """Output and gradient of the set-up's eager copy in IEEE fp32."""
    import torch

    with in_precision(torch, Precision.FP32, device):
        return Arm(replace(setup, precision=Precision.FP32), EAGER, device).once()


def prepared(setup: Setup, execution: str, device: str) -> tuple["Arm", dict[str, Any], dict[str, str]]:
    """An arm that is compiled as it should be, what its first pass gave, and facts of its making."""
    import torch

    before = count(torch)
    arm = Arm(setup, execution, device)
    result = arm.once()
    done = count(torch).since(before)
    check_compiled(done, execution)
    return arm, result, done.facts()


def distance(result: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    """By name, the norm of the difference over the norm of what was expected."""
    return {name: float((result[name] - value).norm() / value.norm()) for name, value in expected.items()}


def check_agrees(execution: str, errors: Mapping[str, float], eager: Mapping[str, float]) -> None:
    """Raise WrongResult where an execution is further from fp32 than eager's own rounding explains."""
    for name, error in errors.items():
        bound = max(_FLOOR, _TIMES_EAGER * eager[name])
        if not error <= bound:
            raise WrongResult(
                f"{name} of {execution} is {error:.3g} from fp32, relative; eager is {eager[name]:.3g} "
                f"from it, so at most {bound:.3g} was expected"
            )

"""The one place that sets torch's precision, reads back what is in effect, and reports it.

Torch has two ways to say it: `allow_tf32` with `set_float32_matmul_precision`, in every torch from
2.0 on, and from 2.9 on `fp32_precision`, which is what the kernels then read ("none": ask the level
above). Torch raises when the two disagree and somebody reads the older one, as Inductor still does
(pytorch#166387). So both are made to say the same wherever both exist, never one alone, and what is
in effect is read from the newest there is.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bench_lib.errors import NotApplicable, Unavailable, UsageError

# The operators whose precision torch keeps apart; "cudnn" is convolutions and RNNs on the GPU.
_NEW_NAMES = ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")
_IEEE, _TF32, _NONE = "ieee", "tf32", "none"
_TENSOR_CORES, _TF32_AND_BF16 = (7, 0), (8, 0)
_OVERRIDE = "NVIDIA_TF32_OVERRIDE"  # read by cuBLAS and cuDNN themselves; 0 forbids TF32


class Precision(StrEnum):
    """How a case computes. Under autocast the tensors are fp32, in pure half they are half."""

    FP32 = "fp32"  # IEEE: TF32 is off
    TF32 = "tf32"
    FP16_AUTOCAST = "fp16-autocast"
    BF16_AUTOCAST = "bf16-autocast"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def half(self) -> str:
        """The 16-bit format it computes in, by torch's name; "" for fp32 and TF32."""
        return {"fp16": "float16", "bf16": "bfloat16"}.get(self.removesuffix("-autocast"), "")

    @property
    def autocast(self) -> bool:
        """Whether autocast chooses the format of each operator."""
        return self.endswith("-autocast")

    def dtype(self, torch: Any) -> Any:
        """The torch dtype of the tensors a case starts from."""
        return getattr(torch, self.half if self.half and not self.autocast else "float32")


@dataclass(frozen=True)
class InEffect:
    """What torch says it computes fp32 operators in, read back after setting; `ieee` or `tf32`."""

    matmul: str
    convolution: str
    autocast: str  # the format, or "off"
    autocast_cache: bool  # whether autocast keeps the cast weights of one block

    def facts(self) -> dict[str, str]:
        """The facts a case stores."""
        return {
            "precision.matmul": self.matmul,
            "precision.convolution": self.convolution,
            "precision.autocast": self.autocast,
            "precision.autocast_cache": "on" if self.autocast_cache else "off",
        }


def check_supported(precision: Precision, device: str, capability: tuple[int, int] | None) -> None:
    """Raise Unavailable where the GPU lacks the format, NotApplicable where the CPU has no such case.

    `device` is cuda or cpu, `capability` the GPU's compute capability.
    """
    if device == "cpu":
        if precision not in (Precision.FP32, Precision.BF16_AUTOCAST, Precision.BF16):
            raise NotApplicable(f"{precision} is a case of GPUs; the CPU is measured in fp32 and bf16")
        return
    needed = _TENSOR_CORES if precision.half == "float16" else _TF32_AND_BF16
    if precision is not Precision.FP32 and (capability or (0, 0)) < needed:
        have = "{}.{}".format(*capability) if capability else "unknown"
        raise Unavailable(
            f"{precision} needs compute capability {needed[0]}.{needed[1]} or newer, this GPU has {have}"
        )


@contextmanager
def in_precision(torch: Any, precision: Precision, device: str) -> Iterator[InEffect]:
    """Set torch's flags for `precision`, yield what is in effect, then restore what was found.

    Every precision but TF32 runs its fp32 operators in IEEE. Autocast itself is not entered: wrap
    the work in `autocast()`. Raises UsageError when what is in effect is not what was asked for.
    """
    found = Flags.read(torch)
    wanted = _TF32 if precision is Precision.TF32 else _IEEE
    try:
        Flags.of(wanted, found).write(torch)
        effect = _effect(torch, precision)
        _check(torch, precision, wanted, effect, device)
        yield effect
    finally:
        found.write(torch)


def autocast(torch: Any, precision: Precision, device: str) -> AbstractContextManager[Any]:
    """The autocast block of an autocast precision; a block that does nothing for the others."""
    if not precision.autocast:
        return nullcontext()
    block: AbstractContextManager[Any] = torch.autocast(
        device_type=device, dtype=getattr(torch, precision.half)
    )
    return block


def grad_scaler(torch: Any, precision: Precision, device: str) -> Any:
    """torch's GradScaler: at work for fp16, whose small gradients would vanish; else it does nothing.

    It starts at 1024: from torch's own 65536 the first gradients overflow and their steps are skipped.
    """
    options = {"init_scale": 1024.0, "enabled": precision is Precision.FP16_AUTOCAST}
    if hasattr(torch.amp, "GradScaler"):  # from 2.3 on
        return torch.amp.GradScaler(device, **options)
    return torch.cuda.amp.GradScaler(**options)


@dataclass(frozen=True)
class Flags:
    """Torch's flags: the older ones (None: not there, or unreadable after mixing) and the newer."""

    has_older: bool
    matmul: str | None  # highest, high or medium
    cudnn: bool | None
    newer: dict[str, str]

    @classmethod
    def read(cls, torch: Any) -> "Flags":
        """The flags as they are now."""
        matmul = _quiet(torch.get_float32_matmul_precision) if _has_older(torch) else None
        cudnn = _quiet(lambda: torch.backends.cudnn.allow_tf32) if _has_older(torch) else None
        return cls(_has_older(torch), matmul, cudnn, _newer(torch))

    @classmethod
    def of(cls, wanted: str, found: "Flags") -> "Flags":
        """The flags that say `wanted`; the CPU's own are only ever lowered to IEEE."""
        newer = {n: wanted for n in found.newer if wanted == _IEEE or not n.startswith("mkldnn")}
        return cls(found.has_older, "high" if wanted == _TF32 else "highest", wanted == _TF32, newer)

    def write(self, torch: Any) -> None:
        """Write the older ones, which write newer ones too, then the newer that say otherwise.

        An older flag that could not be read is derived from what was in effect.
        """
        if self.has_older:
            matmul = self.matmul or ("high" if self.newer.get("cuda.matmul") == _TF32 else "highest")
            cudnn = self.newer.get("cudnn.conv") == _TF32 if self.cudnn is None else self.cudnn
            _quiet(lambda: torch.set_float32_matmul_precision(matmul))
            _quiet(lambda: setattr(torch.backends.cudnn, "allow_tf32", cudnn))
        for name, value in _newer(torch).items():
            if self.newer.get(name, value) != value:
                _operator(torch, name).fp32_precision = self.newer[name]


def _has_older(torch: Any) -> bool:
    """Whether the older flags exist; the one of cuDNN raises when read after mixing, and is there."""
    there = _quiet(lambda: hasattr(torch.backends.cudnn, "allow_tf32"))
    return hasattr(torch, "set_float32_matmul_precision") and there is not False


def _quiet(call: Any) -> Any:
    """Call an older function without its deprecation warning; None where mixing makes it raise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*new API settings to control TF32")
        try:
            return call()
        except RuntimeError:
            return None


def _operator(torch: Any, name: str) -> Any:
    """`torch.backends.<name>` where this torch has it with the newer flag, else None."""
    owner = torch.backends
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner if hasattr(owner, "fp32_precision") else None


def _newer(torch: Any) -> dict[str, str]:
    """What the newer flags resolve to, by operator; empty before torch 2.9."""
    operators = {name: _operator(torch, name) for name in _NEW_NAMES}
    return {name: str(op.fp32_precision) for name, op in operators.items() if op is not None}


def _effect(torch: Any, precision: Precision) -> InEffect:
    newer = _newer(torch)
    if newer:
        named = {name: _IEEE if value == _NONE else value for name, value in newer.items()}
        matmul, convolution = named.get("cuda.matmul", "unknown"), named.get("cudnn.conv", "unknown")
    else:
        flags = Flags.read(torch)
        matmul = _IEEE if flags.matmul == "highest" else _TF32
        convolution = _TF32 if flags.cudnn else _IEEE
    cast = precision.half if precision.autocast else "off"
    return InEffect(matmul, convolution, cast, bool(torch.is_autocast_cache_enabled()))


def _check(torch: Any, precision: Precision, wanted: str, effect: InEffect, device: str) -> None:
    if (effect.matmul, effect.convolution) != (wanted, wanted):
        raise UsageError(
            f"asked for {precision}, torch has matmul in {effect.matmul} and convolutions in "
            f"{effect.convolution}; this torch does not take the flags, so the case cannot be measured here"
        )
    lowered = {n: v for n, v in _newer(torch).items() if n.startswith("mkldnn") and v not in (_IEEE, _NONE)}
    if device == "cpu" and wanted == _IEEE and lowered:
        raise UsageError(
            f"asked for {precision}, torch has {lowered} on the CPU; "
            "this torch does not take the flags, so the case cannot be measured here"
        )
    override = os.environ.get(_OVERRIDE)
    if device == "cuda" and override is not None and (override != "0") != (wanted == _TF32):
        raise UsageError(
            f"asked for {precision}, but {_OVERRIDE}={override} is set and cuDNN and cuBLAS obey it; unset it"
        )

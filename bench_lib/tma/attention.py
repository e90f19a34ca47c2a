"""Scaled dot-product attention in torch through a backend of its choice: made, run, checked against fp64.

torch is handed in, so that importing this loads none.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from bench_lib.compiling.executions import kept_warnings
from bench_lib.convolution.convolutions import relative_error
from bench_lib.convolution.precision import Precision
from bench_lib.convolution.shapes import tolerance
from bench_lib.errors import CudaGainsError, Unavailable, WrongResult

Tensor = Any
BACKENDS = {  # by our name: torch's in torch.nn.attention.SDPBackend, and what its operators are called
    "flash": ("FLASH_ATTENTION", "_flash_attention"),
    "cudnn": ("CUDNN_ATTENTION", "_cudnn_attention"),
    "efficient": ("EFFICIENT_ATTENTION", "_efficient_attention"),
    "math": ("MATH", "_attention_math"),
}
ANY = "any"  # torch chooses
_SEED = 20240305
_DRAWN = 2  # sequences that are drawn; a batch repeats them, so that their reference stays small
_NO_KERNEL = ("No available kernel", "No viable backend")  # torch's words, on the GPU and on the CPU
# A forward pass is two products; a backward pass makes one of them again, and four more (FlashAttention-2,
# section 4.1).
_PRODUCTS = {"forward": 2, "training": 2 + 5}


@dataclass(frozen=True)
class Key:
    """Which attention: `tokens` in sequences of `sequence`, on which device, by which backend."""

    backend: str
    sequence: int
    heads: int
    head_size: int
    tokens: int
    causal: bool
    direction: str  # forward or training
    precision: Precision
    device: str

    @property
    def flop(self) -> float:
        """What the products count; of a causal mask, the half that is not masked."""
        one = 2.0 * self.tokens * self.heads * self.head_size * self.sequence
        return _PRODUCTS[self.direction] * one / (2 if self.causal else 1)


class Attention:
    """Query, key and value on the device, laid out as a model's projections leave them; `run` is the work."""

    def __init__(self, torch: Any, key: Key) -> None:
        self.key = key
        self._torch, self._training = torch, key.direction == "training"
        self._chosen = _chosen(torch, key.backend)
        generator = torch.Generator(key.device).manual_seed(_SEED)
        size = (_DRAWN, key.sequence, key.heads, key.head_size)
        drawn = [torch.randn(size, generator=generator, device=key.device) for _ in range(4)]
        repeats = key.tokens // key.sequence // _DRAWN
        *self._inputs, self._gradient = (self._placed(numbers.repeat(repeats, 1, 1, 1)) for numbers in drawn)
        for one in self._inputs:
            one.requires_grad_(self._training)

    def _placed(self, numbers: Tensor) -> Tensor:
        return numbers.to(self.key.precision.dtype(self._torch)).transpose(1, 2)

    def backend(self) -> AbstractContextManager[Any]:
        """Only the chosen backend inside; made anew for each use."""
        if self._chosen is None:
            return nullcontext()
        from torch.nn.attention import sdpa_kernel

        context: AbstractContextManager[Any] = sdpa_kernel(self._chosen)
        return context

    def run(self) -> tuple[Tensor, ...]:
        """One call inside `backend`: the output, and in training the gradients of the three inputs."""
        output = self._attend()
        if not self._training:
            return (output,)
        return (output, *self._torch.autograd.grad(output, self._inputs, self._gradient))

    def _attend(self) -> Tensor:
        attend = self._torch.nn.functional.scaled_dot_product_attention
        return attend(*self._inputs, is_causal=self.key.causal)

    def check(self) -> float:
        """Run once and compare; the largest error (see `shapes.tolerance`).

        Raises WrongResult for numbers outside their tolerance, Unavailable where the backend has no kernel.
        """
        results, allowed = self._first(), tolerance(self.key.precision, self.key.sequence)
        errors = []
        for what, got, want in zip(("output", "dq", "dk", "dv"), results, self._reference(), strict=False):
            error = relative_error(got.unflatten(0, (-1, _DRAWN)), want)
            if not error <= allowed:
                raise WrongResult(
                    f"{what} of {self.key.backend} attention is off by {error:.2g} of its root mean square, "
                    f"{self.key.precision} allows {allowed:.2g}"
                )
            errors.append(error)
        return max(errors)

    def _first(self) -> tuple[Tensor, ...]:
        with kept_warnings() as said:
            try:
                with self.backend():
                    return self.run()
            except RuntimeError as error:
                if not str(error).startswith(_NO_KERNEL):
                    raise
        raise Unavailable(
            f"torch {self._torch.__version__} has no {self.key.backend} attention for this: "
            f"{'; '.join(said) or 'it does not say why'}"
        )

    def _reference(self) -> tuple[Tensor, ...]:
        """The sequences that were drawn, in fp64 by plain products."""
        torch, made = self._torch, []
        for i in range(_DRAWN):
            q, k, v = (one[i].detach().double().requires_grad_(self._training) for one in self._inputs)
            scores = q @ k.transpose(-1, -2) * self.key.head_size**-0.5
            if self.key.causal:
                later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
                scores = scores.masked_fill(later, float("-inf"))
            output = scores.softmax(-1) @ v
            wanted = [output.detach()]
            if self._training:
                wanted += torch.autograd.grad(output, (q, k, v), self._gradient[i].double())
            made.append(wanted)
        return tuple(torch.stack(same) for same in zip(*made, strict=True))


def _chosen(torch: Any, backend: str) -> Any:
    """Torch's name of a backend, None for any; Unavailable where this torch does not know it."""
    if backend == ANY:
        return None
    known = getattr(getattr(torch.nn, "attention", None), "SDPBackend", None)
    name, _ = BACKENDS[backend]
    if known is None or not hasattr(known, name):
        raise Unavailable(f"torch {torch.__version__} cannot be told to take {backend} attention; 2.5 can")
    return getattr(known, name)


def check_ran(backend: str, operators: str) -> None:
    """Raise CudaGainsError unless the operators that ran are those of the backend that was asked for."""
    if backend != ANY and BACKENDS[backend][1] not in operators:
        raise CudaGainsError(f"{backend} attention was asked for, and torch ran {operators or 'no operator'}")

"""Torch's precision and tuning flags as its versions keep them; no tensors.

`flags(version)` is the part of a torch module that precision and tuning of bench_lib.convolution touch.
What its kernels would compute in is `computes(op)`; the rules are those of ATen/Context.cpp.
"""

import warnings
from types import SimpleNamespace
from typing import Any

VERSIONS = ("2.0", "2.6", "2.9", "2.14", "without the older names")

_OPS = {
    "cuda.matmul": ("cuda", "matmul"),
    "cudnn.conv": ("cuda", "conv"),
    "cudnn.rnn": ("cuda", "rnn"),
    "mkldnn.matmul": ("mkldnn", "matmul"),
    "mkldnn.conv": ("mkldnn", "conv"),
    "mkldnn.rnn": ("mkldnn", "rnn"),
}
_MIXED = "used mix of the legacy and new APIs"
_OLD = "\nPlease use the new API settings to control TF32 behavior, such as ..."


class Older:
    """2.0 to 2.8: two flags, and the precision of matmul as a word."""

    def __init__(self) -> None:
        self.matmul, self.cudnn = "highest", True

    def set_matmul(self, word: str) -> None:
        self.matmul = word

    def get_matmul(self) -> str:
        return self.matmul

    def set_cudnn(self, allowed: bool) -> None:
        self.cudnn = allowed

    def get_cudnn(self) -> bool:
        return self.cudnn

    def computes(self, op: str) -> str:
        return "tf32" if (self.cudnn if op == "conv" else self.matmul != "highest") else "ieee"


class Newer(Older):
    """From 2.9 on: a precision for each operator, "none" for that of the level above."""

    def __init__(self, warns: bool) -> None:
        super().__init__()
        self._warns = warns
        self.own = dict.fromkeys(_OPS.values(), "none")
        self.own |= {("cuda", "conv"): "tf32", ("cuda", "rnn"): "tf32"}
        self.own |= {(backend, "all"): "none" for backend in ("cuda", "mkldnn", "generic")}

    def _warn(self) -> None:
        if self._warns:
            warnings.warn(_OLD, UserWarning, stacklevel=3)

    def resolved(self, backend: str, op: str) -> str:
        levels = ((backend, op), (backend, "all"), ("generic", "all"))
        return next((self.own[level] for level in levels if self.own[level] != "none"), "none")

    def set_matmul(self, word: str) -> None:
        self._warn()
        self.matmul = word
        self.own["cuda", "matmul"] = "ieee" if word == "highest" else "tf32"
        self.own["mkldnn", "matmul"] = {"highest": "ieee", "high": "tf32", "medium": "bf16"}[word]

    def get_matmul(self) -> str:
        tf32 = self.resolved("cuda", "matmul") == "tf32"
        if tf32 != (self.matmul != "highest"):
            raise RuntimeError(_MIXED)
        self._warn()
        return self.matmul

    def set_cudnn(self, allowed: bool) -> None:
        self.cudnn = allowed
        for op in ("conv", "rnn"):
            self.own["cuda", op] = "tf32" if allowed else "none"
        self._warn()

    def get_cudnn(self) -> bool:
        if {self.resolved("cuda", op) == "tf32" for op in ("conv", "rnn")} != {self.cudnn}:
            raise RuntimeError(_MIXED)
        self._warn()
        return self.cudnn

    def computes(self, op: str) -> str:
        return "tf32" if self.resolved("cuda", op) == "tf32" else "ieee"


class _Operator:
    def __init__(self, state: Newer, backend: str, op: str) -> None:
        self.__dict__.update(_state=state, _at=(backend, op))

    def __getattr__(self, name: str) -> str:
        if name == "fp32_precision":
            return self._state.resolved(*self._at)
        raise AttributeError(name)

    def __setattr__(self, name: str, value: str) -> None:
        assert name == "fp32_precision", name
        assert value in ("ieee", "tf32", "bf16", "none"), value
        self._state.own[self._at] = value


class _Cudnn:
    """torch.backends.cudnn."""

    def __init__(self, state: Older, older: bool, limit: int | None = 10) -> None:
        self.__dict__.update(
            _state=state,
            _older=older,
            enabled=True,
            benchmark=False,
            benchmark_limit=limit,
            deterministic=False,
        )

    def __getattr__(self, name: str) -> Any:
        if name == "allow_tf32" and self._older:
            return self._state.get_cudnn()
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "allow_tf32":
            assert self._older
            self._state.set_cudnn(value)
        else:
            self.__dict__[name] = value


def flags(version: str, cudnn: bool = True) -> Any:
    """A torch of that version as far as its flags go."""
    older = not version.startswith("without")
    newer = version not in ("2.0", "2.6")
    state = Newer(warns=version == "2.9") if newer else Older()
    backends = SimpleNamespace(
        cuda=SimpleNamespace(matmul=SimpleNamespace()),
        cudnn=_Cudnn(state, older, 10 if cudnn else None),
        mkldnn=SimpleNamespace(),
    )
    if newer:
        for path, at in _OPS.items():
            owner, name = path.split(".")
            vars(getattr(backends, owner))[name] = _Operator(state, *at)
    module = SimpleNamespace(
        __version__=version,
        backends=backends,
        state=state,
        computes=state.computes,
        is_autocast_cache_enabled=lambda: True,
    )
    if older:
        module.set_float32_matmul_precision = state.set_matmul
        module.get_float32_matmul_precision = state.get_matmul
    return module

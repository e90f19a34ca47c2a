"""Whether a kernel's code loads as its case says: its machine code where it can be read, else its PTX."""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from bench_lib.errors import CudaGainsError

# Instructions by what does the loading. PTX ISA 8.0, and the opcodes of NVIDIA's "CUDA Binary Utilities":
# UBLKCP is the accelerator's copy of bytes, UTMALDG its load of a tensor's tile, LDGSTS is cp.async.
_SASS = MappingProxyType(
    {
        "tma": re.compile(r"\b(?:UBLKCP|UTMALDG|UTMASTG)[\w.]*"),
        "cp_async": re.compile(r"\bLDGSTS[\w.]*"),
        "plain": re.compile(r"\bLDG\b[\w.]*"),
    }
)
_PTX = MappingProxyType(
    {
        "tma": re.compile(r"\bcp\.async\.bulk\.(?:tensor|shared|global)[\w.:]*"),
        "cp_async": re.compile(r"\bcp\.async\.c[ag]\.[\w.:]*"),
        "plain": re.compile(r"\bld\.global[\w.:]*"),
    }
)
# How a kernel waits: __syncthreads, an mbarrier, a group of cp.async (DEPBAR) or of bulk copies.
_WAITS = MappingProxyType(
    {
        "SASS": re.compile(r"\b(?:BAR\.SYNC|SYNCS\.PHASECHK|DEPBAR|UTMACMDFLUSH)[\w.]*"),
        "PTX": re.compile(r"\b(?:bar(?:rier)?\.sync|mbarrier\.\w*wait|cp\.async\.\w*\.?wait_\w+)[\w.:]*"),
    }
)
# What a kernel may not hold: the ways that are newer than the one it is said to take.
_NEVER = MappingProxyType({"tma": (), "cp_async": ("tma",), "plain": ("tma", "cp_async")})
_SECONDS = 60.0


@dataclass(frozen=True)
class Code:
    """The instructions of one kernel that load, by the way of loading, and in what they were read."""

    language: str  # SASS or PTX
    instructions: Mapping[str, tuple[str, ...]]
    waits: tuple[str, ...]

    def check(self, way: str) -> None:
        """Raise CudaGainsError unless the kernel loads in this way, and in no newer one."""
        wrong = [name for other in _NEVER[way] for name in self.instructions[other]]
        if wrong:
            raise CudaGainsError(
                f"the {self.language} of a kernel with loads={way} holds {wrong[0]}: "
                "it does not measure what it says"
            )
        if not self.instructions[way]:
            found = ", ".join(name for names in self.instructions.values() for name in names) or "no load"
            raise CudaGainsError(
                f"the {self.language} of a kernel with loads={way} holds {found} and nothing of that way: "
                "it does not measure what it says"
            )

    def facts(self) -> dict[str, str]:
        """The facts that a case stores."""
        named = [name for names in self.instructions.values() for name in names]
        waits = "; ".join(self.waits) or "none"
        return {"loads.code": self.language, "loads.instructions": "; ".join(named), "loads.waits": waits}


def of_kernel(name: str, cubin: bytes, ptx: str) -> Code:
    """The code of the kernel `name`, which is in both."""
    sass = _sass(cubin).get(name, "")
    language, text = ("SASS", sass) if sass else ("PTX", _body(ptx, name))
    patterns = _SASS if sass else _PTX
    found = {way: _names(pattern, text) for way, pattern in patterns.items()}
    return Code(language, found, _names(_WAITS[language], text))


def _names(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    return tuple(sorted(set(pattern.findall(text))))


def _body(ptx: str, name: str) -> str:
    """The PTX of one kernel: up to the next one."""
    _, _, after = ptx.partition(f".entry {name}(")
    return after.partition(".entry ")[0]


def disassembler() -> str | None:
    """The path of nvdisasm: the one that Triton brings, else a toolkit's; None where there is none."""
    spec = importlib.util.find_spec("triton")
    own = Path(spec.origin).parent / "backends" / "nvidia" / "bin" if spec and spec.origin else None
    folders = [str(own)] if own else []
    return next(
        (
            found
            for path in (*folders, None, "/usr/local/cuda/bin")
            if (found := shutil.which("nvdisasm", path=path))
        ),
        None,
    )


@cache
def _sass(cubin: bytes) -> Mapping[str, str]:
    """The machine code of every kernel by name; nothing where it cannot be read."""
    tool = disassembler()
    if tool is None:
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            done = subprocess.run(
                [tool, "-c", file.name], capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return {}
    parts = re.split(r"^\s*\.section\s+\.text\.(\w+),.*$", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))

"""The suite's own kernels as PTX text; a context and a folder in, one cubin for all runs out.

The driver turns the text into a cubin once a campaign, and every runtime and run launches that same
cubin: nothing that is compared was compiled differently.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench_lib.device.driver import Context
from bench_lib.errors import Unavailable

EMPTY = "empty"
ARGUMENT_NBYTES = (8, 64, 512, 4096)

# PTX 6.0 for Pascal: every driver from CUDA 9 on takes it, and makes code for the GPU at hand.
_HEADER = """.version 6.0
.target sm_60
.address_size 64
"""

_EMPTY = """
.visible .entry empty()
{
    ret;
}
"""

_ARGUMENTS = """
.visible .entry args_{nbytes}(.param .align 8 .b8 args_{nbytes}_block[{nbytes}])
{{
    ret;
}}
"""

# spin(u64 cycles): one thread that ends once its SM's clock has moved by so many cycles.
_SPIN = """
.visible .entry spin(.param .u64 spin_cycles)
{
    .reg .pred %more;
    .reg .u64 %cycles, %start, %now;
    ld.param.u64 %cycles, [spin_cycles];
    mov.u64 %start, %clock64;
again:
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %more, %now, %cycles;
    @%more bra again;
    ret;
}
"""

# hold(u32 flag[2], u32 turn, u64 limit_ns): ends once flag[0], a word of host memory, has reached
# `turn`. After limit_ns it writes `turn` into flag[1] and ends too, so that no mistake of the host
# stops the device for good. Turns count up, so a flag needs no resetting between two holds; the
# difference is taken as signed, so it may wrap around.
_HOLD = """
.visible .entry hold(.param .u64 hold_flag, .param .u32 hold_turn, .param .u64 hold_limit)
{
    .reg .pred %released, %more;
    .reg .u64 %flag, %limit, %start, %now;
    .reg .u32 %turn, %seen;
    ld.param.u64 %flag, [hold_flag];
    ld.param.u32 %turn, [hold_turn];
    ld.param.u64 %limit, [hold_limit];
    cvta.to.global.u64 %flag, %flag;
    mov.u64 %start, %globaltimer;
again:
    ld.volatile.global.u32 %seen, [%flag];
    sub.u32 %seen, %seen, %turn;
    setp.ge.s32 %released, %seen, 0;
    @%released bra done;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %more, %now, %limit;
    @%more bra again;
    st.volatile.global.u32 [%flag+4], %turn;
    membar.sys;
done:
    ret;
}
"""

# fill(u32 words[n], u64 n, u32 seed): word i becomes an odd (so never zero) hash of i and the seed,
# see `filled`. Any grid of one dimension.
_FILL = """
.visible .entry fill(.param .u64 fill_words, .param .u64 fill_n, .param .u32 fill_seed)
{
    .reg .pred %more;
    .reg .u64 %words, %n, %i, %step, %at;
    .reg .u32 %seed, %block, %threads, %blocks, %thread, %x, %y;
    ld.param.u64 %words, [fill_words];
    ld.param.u64 %n, [fill_n];
    ld.param.u32 %seed, [fill_seed];
    cvta.to.global.u64 %words, %words;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %i, %block, %threads;
    cvt.u64.u32 %at, %thread;
    add.u64 %i, %i, %at;
    mul.wide.u32 %step, %blocks, %threads;
again:
    setp.lt.u64 %more, %i, %n;
    @!%more bra done;
    cvt.u32.u64 %x, %i;
    xor.b32 %x, %x, %seed;
    shr.u32 %y, %x, 16;
    xor.b32 %x, %x, %y;
    mul.lo.u32 %x, %x, 0x7feb352d;
    shr.u32 %y, %x, 15;
    xor.b32 %x, %x, %y;
    mul.lo.u32 %x, %x, 0x846ca68b;
    shr.u32 %y, %x, 16;
    xor.b32 %x, %x, %y;
    or.b32 %x, %x, 1;
    shl.b64 %at, %i, 2;
    add.u64 %at, %words, %at;
    st.global.u32 [%at], %x;
    add.u64 %i, %i, %step;
    bra again;
done:
    ret;
}
"""

PTX = "".join([_HEADER, _EMPTY, *(_ARGUMENTS.format(nbytes=n) for n in ARGUMENT_NBYTES), _SPIN, _HOLD, _FILL])


def filled(n: int, seed: int) -> NDArray[np.uint32]:
    """The n words that `fill` writes (the hash is Wellons' lowbias32, its last bit set)."""
    x = np.arange(n, dtype=np.uint32) ^ np.uint32(seed)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return (x ^ (x >> np.uint32(16))) | np.uint32(1)


@dataclass(frozen=True)
class Cubin:
    """The kernels as machine code of one GPU architecture."""

    data: bytes
    sha256: str
    sm: str  # such as sm_90

    @property
    def sm_number(self) -> int:
        """Such as 90."""
        return int(self.sm.removeprefix("sm_"))


def cubin_path(context: Context, folder: Path, ptx: str = PTX) -> Path:
    """Where a campaign's folder keeps a cubin; another text or architecture is another file."""
    text = hashlib.sha256(ptx.encode()).hexdigest()[:8]
    return folder / f"kernels-{text}-{_sm(context)}.cubin"


def read_cubin(path: Path) -> Cubin:
    """A kept cubin; Unavailable when the file cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Unavailable(f"the kernels cannot be read from {path}: {error.strerror}") from None
    return Cubin(data, hashlib.sha256(data).hexdigest(), path.stem.rpartition("-")[2])


def cubin(context: Context, folder: Path | None = None, ptx: str = PTX) -> Cubin:
    """The kernels of a text for this device: kept in `folder`, made and kept there when missing.

    Whoever keeps them first wins, so that all runs of a campaign launch the same code. Without a
    folder they are made anew.
    """
    if folder is None:
        data = context.link(ptx)
        return Cubin(data, hashlib.sha256(data).hexdigest(), _sm(context))
    path = cubin_path(context, folder, ptx)
    if not path.exists():
        _keep(context.link(ptx), path)
    return read_cubin(path)


def _sm(context: Context) -> str:
    major, minor = context.compute_capability
    return f"sm_{major}{minor}"


def _keep(data: bytes, path: Path) -> None:
    """Write a whole file or nothing, and leave one that appeared meanwhile as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        try:
            path.hardlink_to(temporary)  # unlike a rename, it does not replace what is there
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)

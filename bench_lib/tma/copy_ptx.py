"""Three ways to copy device memory in tiles, as PTX text: plain loads, cp.async, and bulk copies.

Each kernel is `copy_WAY_TILE(to, from, nbytes)`, for a grid of one dimension and blocks of THREADS: a block
takes every gridDim-th tile. `cp_async` and `tma` keep a ring of tiles in flight in shared memory, `plain` has
its loads in registers. The number of bytes is that of whole tiles.
"""

WAYS = ("plain", "cp_async", "tma")
TILES = (2048, 4096, 8192, 16384)  # bytes
THREADS = 128
RING_NBYTES = (
    32 << 10
)  # of shared memory; a kernel may have 48 KiB without asking, and six of these fit an SM
_ROUND = 16 * THREADS  # bytes that a block moves by one instruction of each thread

# PTX 8.0 (CUDA 12.0) is the first with bulk copies, Hopper the first GPU that has them.
_HEADER = """.version 8.0
.target sm_90
.address_size 64
"""


def name_of(way: str, tile: int) -> str:
    """The kernel's name."""
    return f"copy_{way}_{tile}"


def _entry(way: str, tile: int, declared: str, begin: str, each: str, end: str = "") -> str:
    """A kernel that does `each` for the tiles of its block: %i is the tile's offset in %to and %from."""
    name = name_of(way, tile)
    return f"""
.visible .entry {name}(.param .u64 {name}_to, .param .u64 {name}_from, .param .u64 {name}_n)
{{{declared}
    .reg .pred %p, %done;
    .reg .u32 %block, %blocks, %thread;
    .reg .u64 %to, %from, %n, %i, %step, %x, %y;
    ld.param.u64 %to, [{name}_to];
    ld.param.u64 %from, [{name}_from];
    ld.param.u64 %n, [{name}_n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %i, %block, {tile};
    mul.wide.u32 %step, %blocks, {tile};{begin}
again:
    setp.ge.u64 %done, %i, %n;
    @%done bra end;
    add.u64 %y, %to, %i;{each}
    add.u64 %i, %i, %step;
    bra again;
end:{end}
    ret;
}}
"""


# Each thread has its own 16 bytes of each round: it reads nothing that another loaded, so none waits.
_OWN = """
    mul.wide.u32 %x, %thread, 16;
    add.u64 %from, %from, %x;
    add.u64 %to, %to, %x;"""


def _plain(tile: int) -> str:
    """All loads of a tile, then all its stores."""
    offsets = range(0, tile, _ROUND)
    words = ["{" + ", ".join(f"%w{4 * r + i}" for i in range(4)) + "}" for r in range(len(offsets))]
    pairs = list(zip(offsets, words, strict=True))
    loads = "".join(f"\n    ld.global.v4.u32 {four}, [%x+{offset}];" for offset, four in pairs)
    stores = "".join(f"\n    st.global.v4.u32 [%y+{offset}], {four};" for offset, four in pairs)
    declared = f"\n    .reg .u32 %w<{4 * len(words)}>;"
    return _entry("plain", tile, declared, _OWN, f"\n    add.u64 %x, %from, %i;{loads}{stores}")


def _ring(stages: int) -> str:
    """The ring, and registers: %slot is the one whose tile comes next, %empty the one to be filled next."""
    return f"""
    .shared .align 128 .b8 ring[{RING_NBYTES}];
    .shared .align 8 .b64 full[{stages}];
    .reg .u32 %ring, %full, %slot, %empty, %at, %bar, %parity, %w<4>;
    .reg .u64 %ahead, %state;"""


def _next(register: str, stages: int) -> str:
    """The slot after this one; %p says whether the ring begins anew."""
    return f"""
    add.u32 {register}, {register}, 1;
    setp.eq.u32 %p, {register}, {stages};
    @%p mov.u32 {register}, 0;"""


def _filled(loads: str, own: str = "") -> str:
    """The first loads, before any is waited for."""
    return f"""
    mov.u32 %ring, ring;{own}
    mov.u32 %full, full;
    mov.u32 %slot, 0;
    mov.u32 %empty, 0;
    mov.u64 %ahead, %i;{loads}"""


def _cp_async(tile: int) -> str:
    """Each thread waits for its own copies alone; a slot is a group of them, an empty one past the end."""
    stages, offsets = RING_NBYTES // tile, range(0, tile, _ROUND)
    copies = "".join(f"\n    @%p cp.async.cg.shared.global [%at+{o}], [%x+{o}], 16;" for o in offsets)
    load = f"""
    setp.lt.u64 %p, %ahead, %n;
    add.u64 %x, %from, %ahead;
    mad.lo.u32 %at, %empty, {tile}, %ring;{copies}
    cp.async.commit_group;
    add.u64 %ahead, %ahead, %step;{_next("%empty", stages)}"""
    stores = "".join(
        f"""
    ld.shared.v4.u32 {{%w0, %w1, %w2, %w3}}, [%at+{offset}];
    st.global.v4.u32 [%y+{offset}], {{%w0, %w1, %w2, %w3}};"""
        for offset in offsets
    )
    each = f"""{load}
    cp.async.wait_group {stages - 1};
    mad.lo.u32 %at, %slot, {tile}, %ring;{stores}{_next("%slot", stages)}"""
    begin = _OWN + _filled(load * (stages - 1), "\n    mad.lo.u32 %ring, %thread, 16, %ring;")
    return _entry("cp_async", tile, _ring(stages), begin, each)


def _tma(tile: int) -> str:
    """One thread of the block: the accelerator loads into the slots, and stores out of them.

    A slot is filled anew once the store out of it has read it. So that this seldom has to be waited for, the
    `lag` newest stores may still be reading.
    """
    stages = RING_NBYTES // tile
    lag = max(1, stages // 4)
    load = f"""
    setp.lt.u64 %p, %ahead, %n;
    add.u64 %x, %from, %ahead;
    mad.lo.u32 %at, %empty, {tile}, %ring;
    mad.lo.u32 %bar, %empty, 8, %full;
    @%p mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], {tile};
    @%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%at], [%x], {tile}, [%bar];
    add.u64 %ahead, %ahead, %step;{_next("%empty", stages)}"""
    barriers = "".join(f"\n    mbarrier.init.shared::cta.b64 [full+{8 * s}], 1;" for s in range(stages))
    begin = f"""
    setp.ne.u32 %p, %thread, 0;
    @%p bra end;{barriers}
    fence.mbarrier_init.release.cluster;
    fence.proxy.async;
    mov.u32 %parity, 0;{_filled(load * (stages - lag))}"""
    each = f"""
    mad.lo.u32 %at, %slot, {tile}, %ring;
    mad.lo.u32 %bar, %slot, 8, %full;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], %parity;
    @!%p bra wait;
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%y], [%at], {tile};
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read {lag};{load}{_next("%slot", stages)}
    @%p xor.b32 %parity, %parity, 1;"""
    return _entry("tma", tile, _ring(stages), begin, each, "\n    cp.async.bulk.wait_group 0;")


_MAKE = {"plain": _plain, "cp_async": _cp_async, "tma": _tma}
PTX = "".join([_HEADER, *(_MAKE[way](tile) for way in WAYS for tile in TILES)])

"""The kernels of the memory cases as PTX text: touching pages, walking a chain, a pass over all words.

A slot is a place in memory every `step` bytes (a page, or a block of pages); an order is device memory
with one 32-bit slot number an index. All but `chase` take any grid of one dimension.
"""

# PTX 6.0 for Pascal, the first GPU whose managed memory moves by page faults.
_HEADER = """.version 6.0
.target sm_60
.address_size 64
"""

_REGISTERS = """
    .reg .pred %done;
    .reg .u64 %i, %grid, %n, %at, %base, %order, %step, %slot, %out;
    .reg .u32 %block, %threads, %blocks, %thread, %number, %word, %sum;
    .reg .f32 %weight, %factor, %shift;"""

# Index i of this thread and the number of threads, then a loop over i < n.
_LOOP = """
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %i, %block, %threads;
    cvt.u64.u32 %at, %thread;
    add.u64 %i, %i, %at;
    mul.wide.u32 %grid, %blocks, %threads;
again:
    setp.ge.u64 %done, %i, %n;
    @%done bra end;"""

_NEXT = """
    add.u64 %i, %i, %grid;
    bra again;
end:"""

# The address of slot order[i].
_SLOT = """
    shl.b64 %at, %i, 2;
    add.u64 %at, %order, %at;
    ld.global.u32 %number, [%at];
    cvt.u64.u32 %slot, %number;
    mad.lo.u64 %slot, %slot, %step, %base;"""

_SLOTS = """
    ld.param.u64 %base, [{name}_base];
    ld.param.u64 %order, [{name}_order];
    ld.param.u64 %n, [{name}_n];
    ld.param.u64 %step, [{name}_step];"""

_SLOT_PARAMETERS = """
    .param .u64 {name}_base, .param .u64 {name}_order, .param .u64 {name}_n, .param .u64 {name}_step"""


def _over_slots(name: str, body: str, before: str = "", after: str = "", parameter: str = "") -> str:
    """A kernel whose body runs once for each i < n, with %slot the address of slot order[i]."""
    parameters = _SLOT_PARAMETERS.format(name=name) + parameter
    text = _REGISTERS + _SLOTS.format(name=name) + before + _LOOP + _SLOT + body + _NEXT + after
    return f"\n.visible .entry {name}({parameters})\n{{{text}\n    ret;\n}}\n"


# touch_write(base, order, n, step, u32 value): the first word of each slot becomes `value`.
_TOUCH_WRITE = _over_slots(
    "touch_write",
    parameter=", .param .u32 touch_write_value",
    before="""
    ld.param.u32 %word, [touch_write_value];""",
    body="""
    st.global.u32 [%slot], %word;""",
)

# touch_read(base, order, n, step, u32 *sum): the first words of all slots are added to *sum.
_TOUCH_READ = _over_slots(
    "touch_read",
    parameter=", .param .u64 touch_read_sum",
    before="""
    ld.param.u64 %out, [touch_read_sum];
    mov.u32 %sum, 0;""",
    body="""
    ld.global.u32 %word, [%slot];
    add.u32 %sum, %sum, %word;""",
    after="""
    red.global.add.u32 [%out], %sum;""",
)

# chain(base, order, n, step): slot i holds the address of slot order[i].
_CHAIN = _over_slots(
    "chain",
    body="""
    mad.lo.u64 %at, %i, %step, %base;
    st.global.u64 [%at], %slot;""",
)

# chase(start, hops, u64 out[2]): one thread follows `hops` addresses from `start`; out[0] is the SM
# cycles that took, out[1] the address it came to. Volatile: the L1 must not answer.
_CHASE = """
.visible .entry chase(.param .u64 chase_start, .param .u64 chase_hops, .param .u64 chase_out)
{
    .reg .pred %done;
    .reg .u64 %at, %hops, %out, %start, %now;
    ld.param.u64 %at, [chase_start];
    ld.param.u64 %hops, [chase_hops];
    ld.param.u64 %out, [chase_out];
    mov.u64 %start, %clock64;
again:
    setp.eq.u64 %done, %hops, 0;
    @%done bra end;
    ld.volatile.global.u64 %at, [%at];
    sub.u64 %hops, %hops, 1;
    bra again;
end:
    st.global.u64 [%out+8], %at;
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %start;
    st.global.u64 [%out], %now;
    ret;
}
"""

# gradient(f32 words[n], n, f32 factor, f32 shift): each word becomes word * factor + shift.
_GRADIENT = f"""
.visible .entry gradient(
    .param .u64 gradient_words, .param .u64 gradient_n,
    .param .f32 gradient_factor, .param .f32 gradient_shift)
{{{_REGISTERS}
    ld.param.u64 %base, [gradient_words];
    ld.param.u64 %n, [gradient_n];
    ld.param.f32 %factor, [gradient_factor];
    ld.param.f32 %shift, [gradient_shift];{_LOOP}
    shl.b64 %at, %i, 2;
    add.u64 %at, %base, %at;
    ld.global.f32 %weight, [%at];
    fma.rn.f32 %weight, %weight, %factor, %shift;
    st.global.f32 [%at], %weight;{_NEXT}
    ret;
}}
"""

NAMES = ("touch_write", "touch_read", "chain", "chase", "gradient")
PTX = "".join([_HEADER, _TOUCH_WRITE, _TOUCH_READ, _CHAIN, _CHASE, _GRADIENT])

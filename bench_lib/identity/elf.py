"""What a shared library is called, offers and asks for: the dynamic symbols of a 64-bit ELF file.

Only the tables are read, not the code: a library of torch has up to a gigabyte. The layout is that of
elf.h (System V ABI, chapters 4 and 5).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from bench_lib.errors import UsageError

_MAGIC = b"\x7fELF\x02\x01"  # 64 bit, little endian: x86-64 and AArch64
_HEADER = struct.Struct("<16s HHI QQQ I HHHHHH")
_SECTION = struct.Struct("<II QQQQ II QQ")
_SYMBOL = struct.Struct("<I BBH QQ")
_DYNAMIC = struct.Struct("<qQ")
_SHT_DYNAMIC, _SHT_DYNSYM = 6, 11
_DT_SONAME = 14
_STB_LOCAL, _STB_WEAK, _SHN_UNDEF = 0, 2, 0


@dataclass(frozen=True)
class Symbols:
    """One library: its soname ("" when it has none), what it defines, and what it cannot do without."""

    soname: str
    defined: frozenset[str]
    undefined: frozenset[str]  # without the weak ones, which may stay missing


class _Section(NamedTuple):
    kind: int
    offset: int
    nbytes: int
    link: int


def symbols(path: Path) -> Symbols:
    """Read a library's dynamic symbols; UsageError when the file is not such a library."""
    try:
        with path.open("rb") as stream:
            return _symbols(stream)
    except (OSError, struct.error, ValueError, IndexError) as error:
        raise UsageError(f"{path} cannot be read as a shared library: {error}; fetch it again") from None


def _symbols(stream: BinaryIO) -> Symbols:
    sections = _sections(stream)
    tables = [section for section in sections if section.kind == _SHT_DYNSYM]
    if not tables:
        raise ValueError("it has no dynamic symbols")
    names = _read(stream, sections[tables[0].link])
    defined, undefined = set(), set()
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(_read(stream, tables[0])):
        binding = info >> 4
        if binding != _STB_LOCAL and section != _SHN_UNDEF:
            defined.add(_text(names, name))
        elif binding not in (_STB_LOCAL, _STB_WEAK):
            undefined.add(_text(names, name))
    return Symbols(_soname(stream, sections), frozenset(defined), frozenset(undefined))


def _sections(stream: BinaryIO) -> list[_Section]:
    magic, *_, offset, _, _, _, _, size, count, _ = _HEADER.unpack(stream.read(_HEADER.size))
    if not magic.startswith(_MAGIC):
        raise ValueError("it is no 64-bit ELF file")
    stream.seek(offset)
    found = _SECTION.iter_unpack(stream.read(size * count))
    return [_Section(kind, at, nbytes, link) for _, kind, _, _, at, nbytes, link, *_ in found]


def _soname(stream: BinaryIO, sections: list[_Section]) -> str:
    for section in sections:
        for tag, value in _entries(stream, section):
            if tag == _DT_SONAME:
                return _text(_read(stream, sections[section.link]), value)
    return ""


def _entries(stream: BinaryIO, section: _Section) -> Iterator[tuple[int, int]]:
    if section.kind == _SHT_DYNAMIC:
        yield from _DYNAMIC.iter_unpack(_read(stream, section))


def _read(stream: BinaryIO, section: _Section) -> bytes:
    stream.seek(section.offset)
    data = stream.read(section.nbytes)
    if len(data) != section.nbytes:
        raise ValueError("it is cut short")
    return data


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()

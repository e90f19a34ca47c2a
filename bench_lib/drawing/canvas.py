"""What all charts share: the look, titles that wrap, text that cannot do harm, and saving.

No pyplot: a Figure is made, filled and returned. Text out of results is drawn letter for letter and
never read as mathematics.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from bench_lib.comparing.bridge import Ratio
from bench_lib.comparing.changes import CaseChange, Change

PNG_DPI = 144
BAND = "#dcecf5"  # the margin: changes too small to matter
GREY = "#666666"
DARK = "#333333"

FONT = "DejaVu Sans"  # comes with matplotlib: the same picture everywhere
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": [FONT, "Verdana", "sans-serif"],  # an SVG is drawn with what the reader has
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "text.parse_math": False,  # a stack may be called $x$
    "svg.fonttype": "none",  # text stays text: it can be searched and copied
    "svg.hashsalt": "cuda-gains",  # the same figure gives the same file
}

# Okabe and Ito's colours, told apart with every common form of colour blindness; the shape of a
# marker says the same once more, for print without colour.
COLOURS = ("#0072B2", "#D55E00", "#56B4E9", "#009E73", "#CC79A7", "#E69F00", "#000000")
BLUE, VERMILLION, SKY, GREEN, PINK, ORANGE, BLACK = COLOURS
MARKERS = ("o", "s", "v", "^", "D", "P", "X")
LOOKS: dict[Change, tuple[str, str, str]] = {  # colour, marker, fill
    Change.FASTER: ("#0072B2", "<", "#0072B2"),
    Change.SLOWER: ("#D55E00", ">", "#D55E00"),
    Change.SAME: (DARK, "s", DARK),
    Change.UNCLEAR: ("#8a8a8a", "o", "white"),
}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, with room at its edges; call inside STYLE."""
    figure = Figure(figsize=(width, height), layout="constrained")
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(w_pad=0.12, h_pad=0.1)  # type: ignore[call-arg]
    return figure


def title(figure: Figure, text: str) -> None:
    """What the chart shows, in bold over the whole figure, in as many lines as it needs."""
    size, weight = 11.5, "bold"
    lines = text_inches([shown(text, 400)], size, weight) / (0.97 * figure.get_figwidth())
    columns = int(len(text) / max(lines, 1.0)) - (lines > 1)
    figure.suptitle(fill(text, columns), x=0.01, ha="left", fontsize=size, fontweight=weight)


def subtitle(axes: Axes, sentences: Sequence[str], columns: int) -> None:
    """How it was found, in a smaller line over the axes that wraps after so many columns."""
    axes.set_title(fill(" ".join(sentences), columns), color="#555555", pad=8)


def reference(axes: Axes, at: float = 1.0) -> None:
    """A thin line at the value on the x axis that all others are held against."""
    axes.axvline(at, color=DARK, linewidth=0.9, zorder=0.8)


def fill(text: str, columns: int) -> str:
    """`text` made harmless and wrapped, between words or between the parameters of a case's name."""
    return _Wrapper(columns).fill(shown(text, 400))


class _Wrapper(textwrap.TextWrapper):
    wordsep_re = re.compile(r"(\s+|(?<=[,\[/])(?=[A-Za-z]))")


def text_inches(texts: Iterable[str], size: float = 9, weight: str = "normal") -> float:
    """The width in inches of the widest of some lines at a size in points; call inside STYLE."""
    font = get_font(findfont(FontProperties(family=FONT, weight=weight)))
    font.set_size(size, 72)
    widths = []
    for text in set(texts):
        font.set_text(text)
        widths.append(font.get_width_height()[0] / 64)  # FreeType counts in 64ths of a point
    return float(max(widths, default=0.0)) / 72


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write NAME.png (144 dpi) and NAME.svg (text kept as text) into `folder`; their paths."""
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    with matplotlib.rc_context(STYLE):
        figure.savefig(png, dpi=PNG_DPI, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return png, svg


def ratio_text(ratio: float) -> str:
    """A ratio with the digits that a comparison can hold: 0.972, 1.450, 12.3, 3,972, 0.000123."""
    if ratio >= 1000:
        return f"{ratio:,.0f}"
    return f"{ratio:.3f}" if 0.01 <= ratio < 10 else f"{ratio:.3g}"


def interval_text(found: CaseChange | Ratio | None) -> str:
    """`0.972 [0.968, 0.976]`; without brackets where there is no interval, empty without a ratio."""
    if found is None or found.ratio is None:
        return ""
    if found.low is None or found.high is None:
        return ratio_text(found.ratio)
    return f"{ratio_text(found.ratio)} [{ratio_text(found.low)}, {ratio_text(found.high)}]"


def shown(text: str, most: int = 110) -> str:
    """`text` as it can be drawn: one line of at most `most` characters, its middle left out if longer."""
    line = "".join(c if _drawable(c) else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))
    half = (most - 1) // 2
    return line if len(line) <= most else f"{line[:half]}…{line[-half:]}"


@cache
def _drawable(character: str) -> bool:
    return character.isprintable() and get_font(findfont(FONT)).get_char_index(ord(character)) != 0

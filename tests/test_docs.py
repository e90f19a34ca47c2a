"""The documents hang together: every link leads somewhere, every page is reached, every family has one."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = [
    *ROOT.glob("*.md"),
    *DOCS.rglob("*.md"),
    *(ROOT / "deploy").rglob("*.md"),
    *(ROOT / "results").glob("*.md"),
    *(ROOT / "results").glob("*/*.md"),
    *(ROOT / "notebooks").glob("*.ipynb"),
]
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """The Markdown of a page or notebook without its code."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return FENCED.sub("", text)


def anchors(page: Path) -> set[str]:
    """What a heading is called in a link, as GitHub makes it; the second of one name ends in -1."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose(page), re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        repeated = (f"{name}-{n}" for n in range(1, 100))
        found.add(name if name not in found else next(one for one in repeated if one not in found))
    return found


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """File and anchor ("" for none) of every link to something of ours."""
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "``", prose(page))):
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            yield (page.parent / name).resolve() if name else page.resolve(), anchor


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for target, anchor in links(page):
        if not target.exists():
            found.append(str(target))
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            found.append(f"{target}#{anchor}")
    return found


def reached(*starts: Path) -> set[Path]:
    """The Markdown pages that links lead to, one after the other."""
    found, left = set(), [start.resolve() for start in starts]
    while left:
        page = left.pop()
        if page not in found:
            found.add(page)
            left += [target for target, _ in links(page) if target.suffix == ".md" and target.is_file()]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "there.md").write_text("# A `--quick` look\n## A `--quick` look\n[up](page.md)\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[good](there.md#a---quick-look) [good](there.md#a---quick-look-1) [good](#over-there) ![bad](no.png)"
        " [bad](there.md#elsewhere) [bad](#nowhere) [web](https://example.org/x#y) `[code](none.md)`\n"
        "## Over there\n```sh\n# no heading\n[code](none.md)\n```\n[bad](#no-heading)\n"
    )
    wrong = ["no.png", "there.md#elsewhere", "page.md#nowhere", "page.md#no-heading"]
    assert broken(page) == [str(tmp_path / name) for name in wrong]
    assert reached(page) == {page, tmp_path / "there.md"}


def test_every_page_is_reached_from_the_index():
    pages = {page.resolve() for page in DOCS.rglob("*.md")}
    assert sorted(pages - reached(ROOT / "README.md", INDEX)) == []


def test_every_family_has_a_page():
    row = re.compile(r"^\| (`[^|]+`) \| \[[^|]+\]\(([^)]+)\) \|$", re.MULTILINE)
    listed = {name: path for names, path in row.findall(INDEX.read_text()) for name in names.split("`")[1::2]}
    files = (ROOT / "benchmarks").glob("bench_*.py")
    families = {re.search(r'^FAMILY = "(\w+)"', file.read_text(), re.MULTILINE)[1] for file in files}
    assert set(listed) == families
    assert [name for name, path in listed.items() if f"`{name}`" not in (DOCS / path).read_text()] == []

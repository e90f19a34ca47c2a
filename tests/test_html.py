"""A report as one HTML file: what it says in each situation, in a real browser, and of hostile results."""

import dataclasses
import html
import os
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from typer.testing import CliRunner

from bench_lib import cli
from bench_lib.claims.judged import Verdicts
from bench_lib.claims.words import Claim, Finding, Judged, Kind, Verdict
from bench_lib.comparing import sides
from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.errors import UsageError
from bench_lib.html import asking, shipped, writer
from bench_lib.layout import TABLES, CampaignFolder
from bench_lib.model import Case, Status
from bench_lib.pages import asked, destination, page, report
from bench_lib.pages.page import Code, Mark, Names, Number, Section, Table
from bench_lib.sections import answer, brief, claimed, claims, extremes
from bench_lib.sections import cases as tables

ROOT = Path(__file__).parents[1]
HOSTILE = "</script><script>alert(1)</script><img src=http://e.example/x onerror=alert(2)>\"'&lt;{{ 7 * 7 }}"


class Elements(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = [tag] if tag in ("script", "style") else []

    def handle_endtag(self, tag):
        self._inside = []

    def handle_data(self, data):
        self.text += data if not self._inside else ""

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def words(text: str) -> str:
    return " ".join(Elements(text).text.split())


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`demo`: of three stacks, `new` and `newer` make one case 20 % faster and one 10 % slower."""
    path = tmp_path_factory.mktemp("html")
    measured = [*synthetic.canaries(), *synthetic.cases(4)]
    kernels = {"kernels": "gemm_old"}
    measured[2] = synthetic.replace(
        measured[2], scale={"*": 0.8, "old": 1.0}, quantities={"peak_nbytes": 2**30}
    )
    measured[3] = synthetic.replace(measured[3], scale={"*": 1.1, "old": 1.0}, facts=kernels)
    stacks = {"old": 1.0, "new": 1.0, "newer": 1.0}
    synthetic.write_campaign(path, "demo", stacks, rounds=6, measured=measured, samples=8)
    return path


@pytest.fixture(scope="module")
def written(results: Path) -> Path:
    return report.write(asking.reported(["old", "new"], "demo", results, None), results / "report.html")


def test_the_file_holds_everything_and_refers_to_nothing(written):
    text = written.read_text()
    found = Elements(text)
    assert found.count("svg") == 2
    assert found.count("script") == 1
    references = {
        value
        for _, attributes in found.tags
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "xlink:href", "data") and value
    }
    assert all(value.startswith(("#", "data:")) for value in references)
    assert "url(http" not in text
    assert "@import" not in text
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {value[1:] for value in references if value.startswith("#")} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(ids)


def test_the_sections_come_in_order(written):
    titles = re.findall(r"<h2>\s*(.*?)\s*</h2>", written.read_text(), flags=re.S)
    assert titles == [
        "The answer",
        "What differs",
        "Canaries",
        "At a glance",
        "Cases",
        "The runs in order of time",
        "Memory",
        "Left out, failed, skipped, flagged",
        "How to read this",
        "Appendix: identities",
    ]


def test_every_case_has_a_row_with_its_value_to_sort_by(results, written):
    comparison = asked.compared(["old", "new"], "demo", results, None)[0]
    text = written.read_text()
    for row in comparison.cases:
        assert f'data-value="{row.ratio}"' in text
        assert row.case_id in Elements(text).text
    assert text.count('<span class="mark faster">faster</span>') == 1


def test_the_answer_holds_counts_extremes_and_what_differs(results, written):
    text = words(written.read_text())
    assert "What changes from old to new?" in text
    assert re.search("1 faster *1 slower *2 same", text)
    assert "Should we upgrade? 1 of 4 cases got faster, 1 slower by more than their margin, and " in text
    assert "Of these the biggest gain is launch op submit (size 1) with" in text
    assert "None of the 2 canaries moved. What differs: cudart 11.8 -> 12.4." in text


def test_a_bridge_names_its_steps_and_which_moves_most(results):
    out = report.write(
        asking.reported(["old", "new", "newer"], "demo", results, None), results / "bridge.html"
    )
    text = words(out.read_text())
    assert text.startswith("CUDA runtime 11.8 → 12.4 → 12.6, one H200 ")
    sides = "Baseline old (cudart 11.8), candidate newer (cudart 12.6), step by step over new."
    assert f"What changes from old to newer? {sides}" in text
    assert re.search(
        r"In the mean over all 4 cases the whole way takes 0\.\d+ \[0\.\d+, [01]\.\d+\] times", text
    )
    assert "step 1 of 2 (cudart 11.8 -> 12.4) moves it most" in text
    assert Elements(out.read_text()).count("svg") == 3


def test_a_contrast_says_that_the_machine_is_the_same_and_which_kernels_changed(tmp_path):
    cases = [
        synthetic.SyntheticCase(
            Case("conv", "op", {"mode": mode}), seconds, facts={"kernels": f"gemm_{mode}"}
        )
        for mode, seconds in (("off", 2e-4), ("on", 1e-4))
    ]
    synthetic.write_campaign(tmp_path, "demo", {"here": 1.0}, rounds=6, measured=cases, null=False)
    out = report.write(asking.reported([], "demo", tmp_path, "mode=off:on"), tmp_path / "x.html")
    text = words(out.read_text())
    assert text.startswith("mode on against off, one H200 ")
    assert "1 case was compared: 1 faster, 0 slower." in text
    assert "Of these the biggest gain is conv op with" in text
    assert "Both sides were measured inside each run, so the machine is the same for both." in text
    assert "1 of 1 cases ran something else on the candidate's side." in text
    assert "gemm_offgemm_on" in text


# --- the sentences, in every situation


def made(tmp_path: Path, measured, rounds=6, **more) -> Comparison:
    stacks = {"old": 1.0, "new": 1.0}
    synthetic.write_campaign(tmp_path, "demo", stacks, rounds=rounds, measured=measured, samples=5, **more)
    return asked.compared(["old", "new"], "demo", tmp_path, None)[0]


def told(comparison: Comparison) -> str:
    """The answer in words, and what moved that is neither a whole step nor a call."""
    return " ".join((*answer.sentences(comparison), *extremes.apart(comparison.cases)))


def test_steady_times_are_told_before_what_happens_once(tmp_path):
    def case(metric: str, candidate: float, **more):
        named = Case("conv", "fprop", {"shape": "3x3", "metric": metric, **more})
        return synthetic.SyntheticCase(named, scale={"old": 1.0, "new": candidate})

    measured = [case("time", 0.8), case("tuning", 5.0), case("first", 0.4), case("tuning", 1.0, shape="1x1")]
    text = told(made(tmp_path, measured))
    assert text.startswith("Should we upgrade? 2 of 4 cases got faster, 1 slower by more than their margin")
    assert re.search(
        r"Of these the biggest gain is conv fprop \(3x3\) with .*, and no case is shown to "
        r"be slower by more than its margin\. 3 of all are times that a process has once \(first, tuning\): "
        r"1 faster, 1 slower; there the biggest gain is conv fprop first \(3x3\) .*, and the biggest loss "
        r"is conv fprop tuning \(3x3\)",
        text,
    )
    alone = told(made(tmp_path / "alone", measured[1:]))
    assert "Of these the biggest gain is" in alone
    assert "of all" not in alone


def test_whole_steps_are_told_before_single_calls_and_their_parts_last(tmp_path):
    def case(op: str, metric: str, candidate: float):
        named = Case("amp", op, {"metric": metric})
        return synthetic.SyntheticCase(named, scale={"old": 1.0, "new": candidate})

    measured = [case("conv", "time", 0.2), case("resnet", "step", 0.8), case("resnet", "forward", 0.1)]
    steps, calls, parts = told(made(tmp_path, measured)).split(". ")[1:]
    assert steps.startswith("Of whole steps the biggest gain is amp resnet step with")
    assert calls.startswith("Of single calls the biggest gain is amp conv with")
    assert parts.startswith("1 of all is one of the parts of a step (forward): 1 faster, 0 slower; there the")


def moved(name: str, change: Change, ratio: float, reason: str = "", **params) -> CaseChange:
    family, _, op = name.partition("/")
    case_id = Case(family, op, params).case_id
    return CaseChange(
        case_id, family, op, params, params.get("metric", "time"), change, reason,
        margin=0.02, ratio=ratio, low=ratio - 0.01, high=ratio + 0.01,
    )  # fmt: skip


FAST = moved("amp_conv/conv", Change.FASTER, 0.8)
STEP = moved("amp_conv/train_step", Change.SLOWER, 1.08, metric="step")
WORSE = moved(
    "cudnn_selection/conv_by_path",
    Change.SLOWER,
    1.6,
    "61 % more time; implementation changed: fft → gemm; heuristic regression",
    benchmark="off",
)


def tuned(change: Change, ratio: float) -> CaseChange:
    return moved("cudnn_selection/conv_by_path", change, ratio, benchmark="on")


def test_the_short_answer_is_gains_losses_and_their_cure():
    assert brief.sentences([FAST, STEP, WORSE, tuned(Change.UNCLEAR, 0.985)]) == [
        "1 of 4 cases is faster: up to 20 % less time, in convolution, ratio 0.800 [0.790, 0.810].",
        "2 of 4 cases are slower: of whole steps up to 8 % more time, in training step, ratio 1.080 "
        "[1.070, 1.090]; of single calls up to 60 % more time, in convolution by cuDNN alone "
        "(the heuristic's choice), ratio 1.600 [1.590, 1.610]; 1 of 4 is unclear.",
        "What runs there changed (fft → gemm); with the fastest algorithm tried it is not slower: "
        "0.985 [0.975, 0.995].",
    ]
    assert brief.sentences([FAST]) == [
        "1 of 1 cases is faster: up to 20 % less time, in convolution, ratio 0.800 [0.790, 0.810].",
        "No case is shown to be slower by more than its margin.",
    ]
    same, open_ = (moved("amp_conv/conv", change, 1.0) for change in (Change.SAME, Change.UNCLEAR))
    assert brief.sentences([same, same]) == [
        "Each of the 2 cases is shown to differ by less than its margin."
    ]
    assert brief.sentences([same, open_]) == [
        "None of the 2 cases is shown to be faster or slower by more than its margin: 1 same, 1 unclear."
    ]
    assert brief.sentences([moved("a/b", Change.NOT_COMPARABLE, 1.0)]) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ((), "What runs there changed (fft → gemm)."),
        (
            (tuned(Change.SLOWER, 1.5),),
            "(fft → gemm); with the fastest algorithm tried it is slower too: 1.500 [1.490, 1.510].",
        ),
        (
            (tuned(Change.UNCLEAR, 1.02),),
            "(fft → gemm); with the fastest algorithm tried that is unclear: 1.020 [1.010, 1.030].",
        ),
    ],
)
def test_the_biggest_loss_says_what_changed_and_whether_trying_mends_it(other, said):
    assert extremes.answer([FAST, WORSE, *other]).endswith(said)


def test_what_moved_of_once_only_times_is_no_nothing():
    """Beside "3 slower" a sentence that no case is shown to be slower is a contradiction."""
    open_ = moved("allocator/block", Change.UNCLEAR, 1.1, metric="again")
    once = moved("allocator/block", Change.SLOWER, 15.4, metric="first")
    assert "the biggest loss is allocator block" in extremes.answer([open_, once])
    assert extremes.answer([open_]).startswith("No case is shown")


def test_sentences_where_nothing_moved(tmp_path):
    text = told(made(tmp_path, synthetic.cases(2)))
    assert text == (
        "Should we upgrade? None of 2 cases is shown to be faster or slower by more than its margin. "
        "Every one of them is shown to differ by less than its margin."
    )


@pytest.mark.parametrize(
    ("rounds", "interleaved", "because"),
    [
        (1, True, "a verdict needs 3 rounds and there is 1"),
        (2, True, "a verdict needs 3 rounds and there are 2"),
        (1, False, "a verdict needs 3 runs a side and there is 1"),
    ],
)
def test_sentences_on_too_few_runs(tmp_path, rounds, interleaved, because):
    slow = [synthetic.replace(synthetic.cases(1)[0], scale={"new": 1.5})]
    text = told(made(tmp_path, slow, rounds=rounds, interleaved=interleaved))
    assert text.startswith("Should we upgrade? That cannot be said yet: 1 of 1 case is unclear")
    assert f". 1 case was compared: 0 faster, 0 slower, 1 unclear, because {because}. " in text
    assert "; the largest difference seen is launch op" in text
    assert text.endswith(", without an interval.")
    assert re.search(r"ratio 1\.[45]\d\d, without", text)


def test_sentences_where_all_is_unclear(tmp_path):
    comparison = made(tmp_path, synthetic.cases(2))
    wide = [
        dataclasses.replace(row, change=Change.UNCLEAR, ratio=1.02, low=low, high=1.3)
        for row, low in zip(comparison.cases, (0.8, 1.01), strict=True)
    ]
    unclear = dataclasses.replace(comparison, cases=(wide[0],))
    assert told(unclear) == (
        "Should we upgrade? That cannot be said yet: 1 of 1 case is unclear. "
        "No case is shown to be faster or slower by more than its margin."
    )
    leans = dataclasses.replace(comparison, cases=tuple(wide))
    assert told(leans).endswith(
        "by more than its margin; 1 leans to one side without being settled, the furthest is "
        "launch op submit (size 2) with 2 % more time, ratio 1.020 [1.010, 1.300]."
    )


def test_sentences_where_nothing_can_be_compared(tmp_path):
    comparison = made(tmp_path, synthetic.cases(3))
    apart = [
        dataclasses.replace(row, change=Change.NOT_COMPARABLE, ratio=None, reason=reason)
        for row, reason in zip(comparison.cases, ("policy", "policy", "calls"), strict=True)
    ]
    assert told(dataclasses.replace(comparison, cases=())) == (
        "No case was measured on both sides, so 0 cases were compared."
    )
    three = dataclasses.replace(comparison, cases=tuple(apart))
    assert told(three) == "None of 3 cases could be compared; most often policy."
    one = dataclasses.replace(comparison, cases=(apart[2],))
    assert told(one) == "The one case there is could not be compared; calls."
    mixed = dataclasses.replace(comparison, cases=(comparison.cases[0], apart[2]))
    assert told(mixed) == (
        "Should we upgrade? The one case is shown to be neither faster nor slower by more than its margin. "
        "It is shown to differ by less than its margin."
    )


def test_some_cases_on_too_few_runs_are_counted_apart(tmp_path):
    comparison = made(tmp_path, synthetic.cases(2))
    few = dataclasses.replace(comparison.cases[1], change=Change.UNCLEAR, n=1, low=None, high=None)
    text = told(dataclasses.replace(comparison, cases=(comparison.cases[0], few)))
    assert "1 same, 1 unclear (1 of them rest on fewer than 3 rounds, which allow no verdict)." in text


def test_what_failed_stands_on_the_first_screen(tmp_path):
    synthetic.write_crashing(tmp_path)
    subject = asking.reported(["old", "new"], "demo", tmp_path, None)
    text = words(writer.page(subject.title, report.sections(subject)))
    first, _, rest = text.partition("At a glance")
    assert "The one case there is could not be compared; new: crashed: exit code -11 (3 runs)." in first
    assert "Not in these numbers, or in doubt: 1 case failed." in first
    assert "exit code -11" in rest


# --- text out of results, and results that are not as they should be


def test_nothing_in_the_results_becomes_markup():
    cells = (Code(HOSTILE), Number(HOSTILE, 1.0), Mark(HOSTILE, "faster"), Names((HOSTILE,) * 12), HOSTILE)
    blocks = (Table((HOSTILE,) * 5, (cells,), "cases"), HOSTILE, page.Bullets((HOSTILE,)))
    text = writer.page(HOSTILE, [Section(HOSTILE, blocks, place) for place in page.Place])
    found = Elements(text)
    plain = Elements(writer.page("t", [Section("t", (Table(("a",) * 5, (("b",) * 5,), "cases"), "c"))]))
    allowed = {tag for tag, _ in plain.tags} | {"ul", "li", "details", "summary", "code", "span", "wbr"}
    assert {tag for tag, _ in found.tags} <= allowed
    assert found.count("script") == 1
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert html.unescape(text).count("alert(1)") > 20
    assert "49" not in found.text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Markup in every name, a million samples, an old schema, missing columns and a truncated file."""
    path = tmp_path_factory.mktemp("hostile")
    first, second = f"old{HOSTILE}", f"new{HOSTILE}"
    bad = Case(f"fam{HOSTILE}", f"op{HOSTILE}", {f"k{HOSTILE}": HOSTILE, "metric": HOSTILE})
    broken = Case("compile_resnet50", "resnet50", {"metric": "step", "execution": HOSTILE})
    measured = [
        *synthetic.canaries(),
        synthetic.SyntheticCase(bad, facts={"kernels": HOSTILE}, quantities={HOSTILE: 2.0}),
        synthetic.SyntheticCase(broken, scale={second: 0.7}),
    ]
    identities = {stack: {f"cudart{HOSTILE}.version": stack, HOSTILE: HOSTILE} for stack in (first, second)}
    stacks = {first: 1.0, second: 1.0}
    ids = synthetic.write_campaign(
        path, "demo", stacks, rounds=4, measured=measured, samples=5, null=False, identities=identities
    )
    skipped = synthetic.measurement(measured[2], [], status=Status.FAILED, reason=HOSTILE)
    for number in range(2):
        info = synthetic.run_info("demo", second, round=f"failed-{number}")
        synthetic.write_run(path, info, synthetic.identity(synthetic.Machine(gpu_name=HOSTILE)), [skipped])
    damage(CampaignFolder(path, "demo"), ids)
    return path


def many(samples: Path, cases: Path, rows: int = 1_000_000) -> None:
    """A million samples for each of the cases of one run."""
    known, held = pq.read_table(samples), pq.read_table(cases)
    first = known["case_id"].to_pylist().index(held["case_id"][-1].as_py())
    more = known.take(pa.array(np.full(rows - 5, first)))
    pq.write_table(pa.concat_tables([known, more]), samples)
    n_samples = pa.array([5] * (held.num_rows - 1) + [rows], pa.int32())
    at = held.column_names.index("n_samples")
    pq.write_table(held.set_column(at, held.schema.field(at), n_samples), cases)


def damage(folder: CampaignFolder, ids: Sequence[str]) -> None:
    """A million rows in one run, then a fault of its own kind in each of five others."""
    samples, cases, runs = ([folder.table(table, run) for run in ids] for table in TABLES)
    many(samples[0], cases[0])
    short = pq.read_table(cases[1]).drop_columns(["margin", "reason", "quantities"])
    pq.write_table(short, cases[1])
    lacks = pq.read_table(runs[2]).drop_columns(["arm"])
    pq.write_table(lacks, runs[2])
    older = pq.read_table(samples[3]).replace_schema_metadata({"cuda_gains_schema": "0"})
    pq.write_table(older.drop_columns(["flags"]), samples[3])
    newer = pq.read_table(cases[4]).replace_schema_metadata({"cuda_gains_schema": "99"})
    pq.write_table(newer, cases[4])
    samples[5].write_bytes(samples[5].read_bytes()[:-200])
    (folder.path / "journal" / "cut.jsonl").write_text('{"event": "run", "run_id": "cu')


def test_hostile_results_give_a_page_and_a_list_of_what_was_left_out(hostile, browser):
    subject = asking.reported([f"old{HOSTILE}", f"new{HOSTILE}"], "demo", hostile, None)
    out = report.write(subject, hostile / "report.html")
    assert out.stat().st_size < 3_000_000
    found = Elements(out.read_text())
    assert found.count("script") == 1
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    left_out = " ".join(found.text.partition("Left out of the comparison:")[2].split())
    for told in (
        "lacks the column 'arm'",
        "has schema version 99",
        "holds no margin to judge it by",
        "cannot be read",
    ):
        assert told in left_out
    seen = browser(out)
    assert seen.locator("h2", has_text="Left out").count() == 1
    assert seen.locator("img").count() == 0


# --- in a browser


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def engine() -> Iterator:
    """A running Chromium, driven by playwright."""
    if (path := chromium()) is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def browser(engine) -> Iterator:
    """Open a page: `browser(path, width, color_scheme=...)`; it asks for nothing and complains of nothing."""
    asked_for: list[str] = []
    complaints: list[str] = []
    pages = []

    def opened(path: Path, width: int = 1400, **more):
        tab = engine.new_page(viewport={"width": width, "height": 900}, **more)
        pages.append(tab)
        tab.on("request", lambda request: asked_for.append(request.url))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: complaints.append(dialog.message))
        tab.goto(path.as_uri())
        return tab

    yield opened
    for tab in pages:
        tab.close()
    assert complaints == []
    assert [url.partition(":")[0] for url in asked_for] == ["file"] * len(pages)


def shown_rows(tab) -> list[list[str]]:
    return tab.eval_on_selector_all(
        "[data-name=cases] tbody tr:not([hidden])",
        "rows => rows.map(r => [...r.cells].map(c => c.innerText.trim()))",
    )


def test_the_table_of_cases_sorts_and_filters(written, browser):
    tab = browser(written)
    rows = shown_rows(tab)
    assert len(rows) == 4
    assert rows[0][5] == "faster"
    ratio = tab.locator("[data-name=cases] th button", has_text="ratio")
    ratio.click()
    ratio.click()
    assert [row[5] for row in (shown_rows(tab)[0], shown_rows(tab)[-1])] == ["slower", "faster"]
    assert tab.locator("[data-name=cases] th[aria-sort=descending]").inner_text().startswith("ratio")
    tab.locator("[data-name=cases] th button", has_text="case").click()
    sizes = [int(row[0].partition("size=")[2].rstrip("]")) for row in shown_rows(tab)]
    assert sizes == sorted(sizes)
    tab.locator("[data-name=cases] input").fill("SIZE=8 same")
    assert [row[5] for row in shown_rows(tab)] == ["same"]
    assert tab.locator("[data-name=cases] output").inner_text() == "1 of 4 shown"
    tab.locator("[data-name=cases] input").fill("")
    tab.locator("[data-name=cases] select").select_option("slower")
    assert [row[5] for row in shown_rows(tab)] == ["slower"]


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_wide_and_a_narrow_screen_light_and_dark(written, browser, width, scheme):
    tab = browser(written, width, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    style = "getComputedStyle(document.body)"
    colours = [tab.evaluate(f"{style}.{name}") for name in ("backgroundColor", "color")]
    ground, ink = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
    assert (ground > 600 > ink) if scheme == "light" else (ground < 150 < ink)
    drawn = tab.evaluate("getComputedStyle(document.querySelector('.chart svg path')).fill")
    assert drawn == tab.evaluate("getComputedStyle(document.body).backgroundColor")
    first = tab.locator("h2", has_text="At a glance").bounding_box()
    assert width == 400 or first["y"] < 900


def test_a_chart_on_a_phone_opens_at_its_axis_and_the_names_beside_it(written, browser):
    tab = browser(written, 400)
    axis = tab.locator("[id$='-axes_1'] [id$='-patch_2']").first.bounding_box()
    box = tab.locator(".chart").first.bounding_box()
    assert 0.24 < (axis["x"] - box["x"]) / box["width"] < 0.5


def test_tables_with_empty_cells_and_long_names_fit_without_scrolling(browser, tmp_path):
    long = "implementation changed: " + " → ".join(
        f"sm90_xmma_fprop_{'implicit_gemm_' * 6}{i}" for i in range(2)
    )
    named = moved("cudnn_selection/conv", Change.UNCLEAR, 1.0, long, benchmark="off", shape="3x3-256-256-14")
    gone = dataclasses.replace(named, change=Change.NOT_COMPARABLE, ratio=None, low=None, high=None)
    rows = [dataclasses.replace(named, baseline=1.234e-4, candidate=2.345e-4), gone]
    ran = Table(
        ("case", "what", "baseline", "candidate"), ((Code("a"), "kernels", *[Code(long)] * 2),), "kernels"
    )
    sections = [tables.cases(rows), tables.memory([dataclasses.replace(named, unit="peak_nbytes")])]
    out = writer.write("x", [*sections, Section("Kernels", (ran,))], tmp_path / "x.html")
    for width in (1300, 1000):
        wider = "boxes => boxes.map(box => box.scrollWidth - box.clientWidth)"
        assert browser(out, width).eval_on_selector_all(".table", wider) == [0, 0, 0]


def test_it_prints_with_everything_unfolded(written, browser, tmp_path):
    tab = browser(written, color_scheme="dark")
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not tab.locator("nav").is_visible()
    assert tab.pdf(prefer_css_page_size=True).startswith(b"%PDF-")


# --- the command, and the reports that ship


def run(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments))


def test_the_suffix_of_the_output_chooses_the_form(results, tmp_path):
    asked_for = ["report", "old", "new", "--campaign", "demo", "--results", str(results), "-o"]
    for name in ("x.HTML", "x.htm"):
        done = run(*asked_for, str(tmp_path / name))
        assert (done.exit_code, done.stdout.strip()) == (0, str(tmp_path / name))
        assert (tmp_path / name).read_text().startswith("<!doctype html>")
    failed = run(*asked_for, str(tmp_path / "deep/x.html"))
    assert isinstance(failed.exception, UsageError)
    assert str(failed.exception).startswith(f"there is no folder {tmp_path / 'deep'} for x.html; make it")
    assert not (tmp_path / "deep").exists()
    assert not destination.is_page(tmp_path / "folder")
    (tmp_path / "there.html").mkdir()
    failed = run(*asked_for, str(tmp_path / "there.html"))
    assert isinstance(failed.exception, UsageError)
    assert "is a folder, and an HTML report is a file" in str(failed.exception)


def test_a_report_without_a_name_lies_beside_the_index(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("report", "old", "new", "--campaign", "demo", "--results", str(results))
    assert done.stdout.strip() == "report/demo-old-to-new/report.md"
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["demo-old-to-new"]


@pytest.mark.parametrize(
    ("sides", "name"),
    [
        (("before / after", "before/here", "after/here"), "before-here-to-after-here"),
        (("local", "before.json", "after.json"), "local-before-to-after"),
        (("ladder", "runtime=11.8", "runtime=11.8#2"), "ladder-runtime=11.8-to-runtime=11.8-2"),
        (("", "../x", "y" * 300), "x-to-" + "y" * 92),
    ],
)
def test_the_folder_of_a_report_is_told_by_its_sides(sides, name):
    assert destination.of_sides(*sides) == Path("report") / name


@pytest.mark.parametrize("name", ["upgrade", "a/cudart-12.4", "11.8-to-12.4.1", "x.html", "stack-2.7.0rc1"])
def test_names_that_a_report_may_have(tmp_path, name):
    destination.check(tmp_path / name)


def listed(folder: Path, *entries: str) -> Path:
    (folder / shipped.LIST).write_text("\n".join(f"[[report]]\n{entry}" for entry in entries))
    return folder


def test_all_listed_reports_and_their_index(results, tmp_path):
    one = 'name = "one"\nquestion = "What of <b>new</b>?"\ncampaign = "demo"\nsides = ["old", "new"]'
    gone = 'name = "gone"\nquestion = "And of that?"\ncampaign = "lost"\nsides = ["old", "new"]'
    listed(results, one, gone)
    done = run("report", "--all", "--results", str(results), "-o", str(tmp_path / "out"))
    assert done.exit_code == 0
    text = (tmp_path / "out/index.html").read_text()
    assert 'href="one.html"' in text
    assert "What of <b>new</b>?" in words(text)
    assert "Are the claimed gains real?" in words(text)
    assert "1 of 4 cases is faster: up to " in words(text)
    assert words(text).index("What of <b>new</b>?") < words(text).rindex("Are the claimed gains real?")
    assert '<a href="#claims">Are' in text
    assert '<section id="claims"' in text
    assert "This report could not be made: no campaign &#39;lost&#39;" in text
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"index.html", "one.html"}
    report_page = (tmp_path / "out/one.html").read_text()
    header = report_page.partition("<header>")[2].partition("</header>")[0]
    assert "What of <b>new</b>?" in words(header)
    assert '<a href="index.html">' in header


def ended(*_):
    """What a page is where the kernel ends the process that makes it."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_page_whose_process_is_ended_is_one_sentence(results, tmp_path, monkeypatch):
    listed(results, 'name = "one"\nquestion = "q"\ncampaign = "demo"\nsides = ["old", "new"]')
    monkeypatch.setattr(shipped, "_pages", ended)
    failed = run("report", "--all", "--results", str(results), "-o", str(tmp_path / "out"))
    assert "was ended from outside" in str(failed.exception)
    assert not (tmp_path / "out/index.html").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is not there"),
        ("[[report]", "is not valid TOML"),
        ("", "holds no report"),
        ("[other]\na = 1", "holds other; expected"),
        ('[[report]]\nnam = "x"', "unknown key 'nam'.*did you mean 'name'"),
        ('[[report]]\nname = "x"\nquestion = 3\ncampaign = "c"', "has question = 3, expected a text"),
        ('[[report]]\nname = "../x"\nquestion = "q"\ncampaign = "c"', "report name '../x' has characters"),
        ('[[report]]\nname = "index"\nquestion = "q"\ncampaign = "c"', "as their index"),
        ('[[report]]\nname = "x"\nquestion = "q"\ncampaign = "c"\nsides = "a"', "expected a list"),
        ('[[report]]\nname = "x"\nquestion = "q"\ncampaign = "c"\n' * 2, "names x twice"),
    ],
)
def test_a_wrong_list_is_one_sentence(tmp_path, text, said):
    if text is not None:
        (tmp_path / shipped.LIST).write_text(text)
    with pytest.raises(UsageError, match=said):
        shipped.read(tmp_path / shipped.LIST)


def test_all_takes_no_sides():
    failed = run("report", "a", "b", "--all")
    assert "--all makes what reports.toml lists" in str(failed.exception)


def test_every_campaign_that_ships_has_a_report_of_campaigns_and_sides_that_are_there():
    entries = shipped.read(ROOT / "results" / shipped.LIST)
    there = [path.parent.name for path in (ROOT / "results").glob("*/README.md")]
    there.remove(
        "h200-default-suite"
    )  # one run of each policy: it says how long they take, and compares nothing
    assert {entry.campaign for entry in entries} == set(there)
    for entry in entries:
        for side in entry.sides:
            sides.resolve(side, entry.campaign, ROOT / "results")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ((Change.SAME, Change.SAME), "None of the 2 canaries moved. What differs:"),
        ((Change.SAME, Change.UNCLEAR), "None of the 2 canaries moved (1 of them unclear). What"),
        ((Change.SAME,), "The one canary did not move. What differs:"),
        (
            (Change.UNCLEAR,) * 2,
            "Whether the machine stayed the same is unclear: no canary (of 2) is shown to",
        ),
        ((Change.NOT_COMPARABLE,), "No canary was measured on both sides, so nothing shows"),
    ],
)
def test_what_canaries_say_of_the_machine(results, changes, text):
    comparison, data = asked.compared(["old", "new"], "demo", results, None)
    canaries = tuple(dataclasses.replace(comparison.canaries[0], change=change) for change in changes)
    noted = ("no canary was measured on both sides, so nothing shows",)  # read where none was seen
    said = answer.answer(dataclasses.replace(comparison, canaries=canaries, notes=noted), data)
    assert text in page.letters(said.blocks[4])


@pytest.mark.parametrize(
    ("attribution", "said"),
    [
        ("nothing differs", "None of the 2 canaries moved. Nothing differs."),
        ("no component of the stack differs", "moved. No component of the stack differs."),
        ("cudart 11.8 -> 12.4", "moved. What differs: cudart 11.8 -> 12.4."),
    ],
)
def test_what_differs_is_a_sentence(results, attribution, said):
    comparison, data = asked.compared(["old", "new"], "demo", results, None)
    made = answer.answer(dataclasses.replace(comparison, attribution=attribution), data)
    assert said in page.letters(made.blocks[4])


# --- claims


def verdicts_of(*verdicts: Verdict, sides: tuple[str, str] = ("old", "new")) -> Verdicts:
    numbers = {"shown": "1.18x [1.05, 1.32] as fast", "of": "conv/op[a=1]", "n": 5, "n_cases": 1}
    around = {"baseline": sides[0], "candidate": sides[1], **numbers}
    findings = [Finding(one, f"because <{one}>", **around) for one in verdicts]
    made = [
        Judged(
            Claim(f"c{i}", f"sentence <{i}>", "s", "f", Kind.UP_TO, high=0.3),
            one.verdict,
            "r",
            findings=(one,),
        )
        for i, one in enumerate(findings)
    ]
    fact = Judged(Claim("f", "a fact", "s", "f", Kind.FACT), Verdict.SUPPORTED, "r", findings=(findings[0],))
    unmeasured = Judged(Claim("u", "no one measured", "s", "f", Kind.ABOUT), Verdict.NOT_MEASURED, "r")
    return Verdicts((*made, fact, unmeasured), ("demo",))


def test_claims_are_in_the_answer_by_verdict_and_in_a_section_each(results):
    comparison, data = asked.compared(["old", "new"], "demo", results, None)
    found = verdicts_of(Verdict.REFUTED, Verdict.SUPPORTED, Verdict.REFUTED)
    subject = report.Subject(comparison, data, report.Campaign(data, found))
    text = writer.page(subject.title, report.sections(subject))
    said = words(text)
    names = "1 supported (“sentence <1>”), 2 refuted (“sentence <0>”; “sentence <2>”)"
    assert f"Of 3 published claims about these sides: {names}." in said
    assert "measured of these sides. 2 claims are facts" in said
    assert text.count('<span class="mark refuted">refuted</span>') == 2
    assert "because <supported>; where it was looked up." in said
    assert "no one measured" not in said


def test_a_report_shows_the_claims_about_its_own_sides_and_counts_the_others(results):
    """A claim with findings between several sides is judged by those between these."""
    comparison, data = asked.compared(["old", "new"], "demo", results, None)
    (own, *_), (other, *_) = (
        verdicts_of(verdict, sides=sides).claims
        for verdict, sides in ((Verdict.SUPPORTED, ("old", "new")), (Verdict.REFUTED, ("way=a", "way=b")))
    )
    both = dataclasses.replace(own, verdict=Verdict.MIXED, findings=(*own.findings, *other.findings))

    def said(*claims: Judged) -> str:
        campaign = report.Campaign(data, Verdicts(claims, ("demo",)))
        return words(writer.page("t", report.sections(report.Subject(comparison, data, campaign))))

    text = said(both, other)
    assert "The published claim “sentence <0>” is supported on these sides. None of the 2" in text
    assert "1 more claim is judged on other sides of this campaign" in text
    kept = dataclasses.replace(own.findings[0], driver_kept=True)
    driven = dataclasses.replace(own, findings=(kept,))
    assert "is supported on these sides: by the toolkit alone, the driver was not exchanged." in said(driven)
    assert "2 supported (“sentence <0>”; “sentence <0>”); all by the toolkit alone" in said(driven, driven)
    assert "; 1 of them by the toolkit alone" in said(own, driven)
    assert "because <supported>" in text
    assert "because <refuted>" not in text
    text = said(other)
    assert "The published claim" not in text
    assert "No published claim that this campaign measured is about these sides. 1 more claim is" in text


def test_a_claim_of_several_findings_is_told_once_and_each_row_says_of_which_stack():
    (own, *_) = verdicts_of(Verdict.REFUTED).claims
    found = tuple(
        dataclasses.replace(own.findings[0], baseline=stack, candidate=stack, group="n=1")
        for stack in ("old", "new")
    )
    both = Verdicts((dataclasses.replace(own, findings=found),), ("demo",))
    rows = claims.section(both, "", ("old", "new")).blocks[1].rows
    assert [" | ".join(map(page.letters, row[:2])) for row in rows] == [
        "c0: sentence <0> | up to 30 % less time, old, n=1",
        "c0 | up to 30 % less time, new, n=1",
    ]


def test_where_no_claim_can_be_judged_the_report_says_why(results, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/claims.toml").write_text("[[claim]]\nidd = 3\n")
    subject = asking.reported(["old", "new"], "demo", results, None)
    (section,) = [one for one in report.sections(subject) if one.title == "Claims"]
    assert "No claim is judged: " in page.letters(section.blocks[0])
    assert "claims.toml" in page.letters(section.blocks[0])
    assert "published claim" not in " ".join(answer.sentences(subject.comparison, report.sentences(subject)))


def test_the_index_names_the_claims_and_what_of_the_driver_is_open():
    made = verdicts_of(Verdict.REFUTED, Verdict.SUPPORTED, Verdict.INCONCLUSIVE)
    kept = dataclasses.replace(made.claims[0].findings[0], driver_kept=True)
    driven = dataclasses.replace(made.claims[0], findings=(kept,))
    section = claimed.section(dataclasses.replace(made, claims=(driven, *made.claims[1:])))
    text = writer.render("index.html.j2", title="x", claims=section, lead="", reports=[], failed=[])
    said, alone = words(text), "by the toolkit alone, the driver was not exchanged"
    assert "3 of 5 claims were measured: 1 supported, 1 refuted, 1 inconclusive; the others are facts" in said
    assert "Supported: “sentence <1>”." in said
    assert f"Refuted: “sentence <0>” ({alone})." in said
    assert "Of 1 claim the effect would live in the driver" in said
    rows = [" | ".join(map(page.letters, row)) for row in section.blocks[1].rows]
    number = "up to 30 % less time | 1.18x [1.05, 1.32] as fast"
    assert rows[0] == f"sentence <1> (c1) | {number} | supported"
    assert rows[1] == f"sentence <0> (c0) | {number} | refuted: {alone}"
    assert rows[2].endswith("| inconclusive")


def test_an_index_without_measured_claims_says_so_in_a_line():
    measured = verdicts_of(Verdict.SUPPORTED)
    none = dataclasses.replace(measured, claims=measured.claims[1:])
    assert claimed.section(none).blocks == ("No published claim was measured in these results.",)
    assert claimed.section(None, "it is wrong").blocks == ("No claim is judged: it is wrong.",)


def test_of_many_findings_a_row_shows_the_most_precise_of_each_verdict():
    (one,) = verdicts_of(Verdict.REFUTED).claims[:1]
    widths = {"a": 0.4, "b": 0.1, "c": 0.2}
    found = [
        dataclasses.replace(one.findings[0], campaign=name, low=0.0, high=width, shown=f"number {name}")
        for name, width in widths.items()
    ]
    open_ = dataclasses.replace(found[0], verdict=Verdict.INCONCLUSIVE)
    judged = dataclasses.replace(one, findings=(*found, open_))
    ((_, _, measured, _),) = claimed.section(Verdicts((judged,), ("demo",))).blocks[1].rows
    assert measured == "number b (b); number c (c); 2 more"

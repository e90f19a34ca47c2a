"""A report says everything that was found, left out and loaded, and shows text as it is."""

import ast
import dataclasses
import html
import re
from pathlib import Path

import pytest
import synthetic
from markdown_it import MarkdownIt

from bench_lib.comparing import compare, sides, store
from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.comparing.store import Data
from bench_lib.comparing.verdicts import effect_text
from bench_lib.errors import UsageError
from bench_lib.model import Flag, Status
from bench_lib.pages import page, report
from bench_lib.pages.page import Bullets, Code, Section, Table
from bench_lib.pages.report import Subject
from bench_lib.sections import answer, losses, metrics

ROOT = Path(__file__).parents[1]
HOSTILE = "<script>alert(1)</script>|`x` **b** [a](http://e.example) &lt; $y$ @who #1 ![i](j)\n# no\n| a |"


def rendered(markdown: str) -> str:
    """The HTML that a reader of GitHub's Markdown shows (tables, raw HTML passed on)."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown)


def visible(markdown: str) -> str:
    """The text a reader sees."""
    return html.unescape(re.sub(r"<[^>]*>", "", rendered(markdown)))


def section(markdown: str, title: str) -> str:
    return next(part for part in markdown.split("\n## ") if part.startswith(f"{title}\n"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`demo`: one case of `new` is 20 % faster, one 10 % slower, the others and the canaries same."""
    path = tmp_path_factory.mktemp("report")
    measured = [*synthetic.canaries(), *synthetic.cases(4)]
    measured[2] = synthetic.replace(measured[2], scale={"new": 0.8}, quantities={"peak_nbytes": 1e9})
    measured[3] = synthetic.replace(measured[3], scale={"new": 1.1})
    stacks = {"old": 1.0, "new": 1.0}
    synthetic.write_campaign(path, "demo", stacks, rounds=6, measured=measured, samples=8)
    return path


def sides_of(results: Path, campaign: str, a: str = "old", b: str = "new") -> tuple[Comparison, Data]:
    one, other = (sides.resolve(name, campaign, results) for name in (a, b))
    return compare.compare(one, other), sides.joined(one, other)


@pytest.fixture(scope="module")
def written(results: Path) -> Path:
    return report.write(Subject(*sides_of(results, "demo")), results / "out")


def test_the_folder_holds_the_report_and_every_chart_in_it(written):
    text = written.read_text()
    linked = set(re.findall(r"\(([\w-]+\.(?:png|svg))\)", text))
    assert linked == {"forest.png", "forest.svg", "run-order.png", "run-order.svg"}
    assert {path.name for path in written.parent.iterdir()} == {*linked, "report.md"}


def test_the_sections_come_in_order(written):
    titles = re.findall(r"^## (.*)$", written.read_text(), flags=re.M)
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


def test_the_answer_is_three_sentences(results, written):
    comparison, _ = sides_of(results, "demo")
    by_case = {row.case_id: row for row in comparison.cases}
    gain, loss = (by_case[f"launch/op[metric=submit,size={size}]"] for size in (1, 2))
    assert (gain.change, loss.change) == (Change.FASTER, Change.SLOWER)
    text = visible(section(written.read_text(), "The answer"))
    assert "What changes from old to new?" in text
    assert "Baseline old (cudart 11.8), candidate new (cudart 12.4)." in text
    assert "Should we upgrade? 1 of 4 cases got faster, 1 slower by more than their margin, and " in text
    assert "the biggest gain is launch op submit (size 1) with" in text
    assert f"ratio {gain.ratio:.3f} [{gain.low:.3f}, {gain.high:.3f}], and the biggest loss is" in text
    assert "launch op submit (size 2) with" in text
    assert "None of the 2 canaries moved. What differs: cudart 11.8 -> 12.4." in text
    assert "12 runs; NVIDIA H200; 2023-11-14 22:" in text


def test_every_case_has_its_numbers_reason_and_next_step(results, written):
    comparison, _ = sides_of(results, "demo")
    text = visible(section(written.read_text(), "Cases"))
    for row in comparison.cases:
        assert row.case_id in text
        assert f"{row.ratio:.3f} [{row.low:.3f}, {row.high:.3f}]" in text
        assert f"{1 / row.ratio:.3f}x" in text
        assert row.reason in text
        assert row.next_step in text
    assert "peak_nbytes 953.7 MiB 953.7 MiB" in " ".join(
        visible(section(written.read_text(), "Memory")).split()
    )


def test_the_appendix_holds_both_identities(written):
    table = section(written.read_text(), "Appendix: identities")
    assert "|  | old | new |" in table
    assert "| `cudart.version` | `11.8` | `12.4` |" in table
    assert "| `gpu.name` | `NVIDIA H200` | `NVIDIA H200` |" in table
    assert "| `context.wait` | `spin` | `spin` |" in table


def test_each_metric_in_it_is_defined_once(written):
    text = section(written.read_text(), "How to read this")
    assert re.findall(r"^- `(\w+)`: (.*)$", text, flags=re.M) == [
        ("peak_nbytes", metrics.QUANTITIES["peak_nbytes"]),
        ("submit", metrics.METRICS["submit"]),
        ("time", metrics.METRICS["time"]),
    ]


def metrics_of(path: Path) -> set[str]:
    """The values of the parameter `metric` in a benchmark file."""
    tree = ast.parse(path.read_text())
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) == 2 and ast.unparse(node.args[0]) == "'metric'":
            values = node.args[1]
            values = constants[values.id] if isinstance(values, ast.Name) else values
            found |= set(ast.literal_eval(values))
    return found


@pytest.mark.parametrize(
    "family", ["launch", "ladder", "canary", "amp_conv", "cudnn_selection", "unified_memory"]
)
def test_every_metric_of_a_benchmark_file_is_defined(family):
    found = metrics_of(ROOT / "benchmarks" / f"bench_{family}.py")
    assert found or family == "canary"
    assert found <= set(metrics.METRICS)


def test_every_family_that_ships_says_what_it_asks():
    families = {path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py")}
    assert families <= set(metrics.FAMILIES)


def test_a_contrast_tells_nothing_of_families_without_its_parameter(tmp_path):
    (case,) = synthetic.cases(1)
    for number in range(3):
        measured = [
            synthetic.measurement(
                synthetic.SyntheticCase(synthetic.Case("conv", "op", {"mode": mode})), [2e-4] * 5
            )
            for mode in ("off", "on")
        ]
        measured.append(synthetic.measurement(case, [1e-4] * 20, flags=[Flag.PREEMPTED, *[""] * 19]))
        info = synthetic.run_info("demo", "here", run_id=f"r{number}")
        synthetic.write_run(tmp_path, info, synthetic.identity(synthetic.Machine()), measured)
    side = sides.resolve(None, "demo", tmp_path)
    made = report.sections(Subject(compare.contrast(side, "mode", "off", "on"), side.data))
    text = visible(page.markdown("t", made))
    assert "flagged" not in section(page.markdown("t", made), "The answer")
    assert case.case.case_id not in text


def test_what_ended_otherwise_is_not_told_again_as_left_out():
    entries = [
        ("a", "old: skipped: no two runtimes (3 runs)"),
        ("b", "new: not measured"),
        ("c", "x: crashed: -11"),
    ]
    assert losses.left_out(entries) == {"new: not measured": ["b"]}


def test_a_difference_that_no_digit_can_show_is_none():
    row = CaseChange("a", "f", "o", {}, "time", Change.UNCLEAR, "")
    ratios = {1.000002: "under 0.01 % more time", 0.999999: "under 0.01 % less time", 1.0: "0 % more time"}
    assert {ratio: effect_text(dataclasses.replace(row, ratio=ratio)) for ratio in ratios} == ratios


def test_warnings_that_differ_in_their_numbers_are_one():
    left = [
        f"it left {gib} GiB of {what} memory"
        for gib, what in ((0.6, "device"), (1.7, "device"), (2.0, "host"))
    ]
    assert [losses.alike(left[:2]), losses.alike(left[2:]), losses.alike(["none"])] == [
        "it left 0.6 to 1.7 GiB of device memory",
        "it left 2.0 GiB of host memory",
        "none",
    ]


def test_nothing_in_the_results_becomes_markup(results, written):
    comparison, data = sides_of(results, "demo")
    row = dataclasses.replace(
        comparison.cases[0], case_id=HOSTILE, reason=HOSTILE, next_step=HOSTILE, metric=HOSTILE
    )
    hostile = dataclasses.replace(
        comparison,
        baseline=HOSTILE,
        candidate=HOSTILE,
        campaign=HOSTILE,
        attribution=HOSTILE,
        differences=(dataclasses.replace(comparison.differences[0], component=HOSTILE, baseline=HOSTILE),),
        cases=(row, *comparison.cases[1:]),
        canaries=(row,),
        quantities=(dataclasses.replace(row, unit=HOSTILE),),
        left_out=((HOSTILE, HOSTILE),),
        notes=(HOSTILE, "1. one", "- two", "+ three", "=== four"),
    )
    runs = data.runs.assign(arm=HOSTILE, gpu_name=HOSTILE, suite_version=HOSTILE)
    runs["stack_identity"] = [{HOSTILE: HOSTILE}] * len(runs)
    cases = data.cases.assign(arm=HOSTILE, status="failed", reason=HOSTILE, n_flagged=1)
    cases["warnings"] = [[HOSTILE]] * len(cases)
    made = report.sections(Subject(hostile, dataclasses.replace(data, runs=runs, cases=cases)))
    text = page.markdown(f"{HOSTILE} against", made)
    output = rendered(text)
    plain = rendered(written.read_text())
    tags = set(re.findall(r"</?([a-z0-9]+)", output))
    assert tags <= set(re.findall(r"</?([a-z0-9]+)", plain)) | {"td", "li", "ul"}
    assert set(re.findall(r'(?:href|src)="([^"]*)"', output)) <= {
        "forest.png", "forest.svg", "run-order.png", "run-order.svg"
    }  # fmt: skip
    assert "<strong>" not in output
    assert len(re.findall("<h1>", output)) == 1
    assert (
        visible(text).count("<script>alert(1)</script>|`x` **b** [a](http://e.example) &lt; $y$ @who #1") > 20
    )


def test_every_row_of_a_table_has_the_cells_of_its_head():
    rows = tuple((HOSTILE, Code(HOSTILE), Code("`|`")) for _ in range(3))
    text = page.markdown("t", [Section("s", (Table(("a|b", "c", HOSTILE), rows),))])
    assert rendered(text).count("<th>") == 3
    assert rendered(text).count("<td>") == 9
    assert visible(text).count("`|`") == 3


@pytest.mark.parametrize("text", ["1. one", "2) two", "- a", "+ a", "* a", "> a", "# a", "===", "    code"])
def test_a_paragraph_is_a_paragraph_whatever_it_begins_with(text):
    for block in (text, Bullets((text,))):
        output = rendered(page.markdown("t", [Section("s", (block,))]))
        assert not re.search("<(ol|blockquote|pre|hr|h3)", output)
        assert text.strip() in html.unescape(output)


@pytest.mark.parametrize("text", ["`", "``", "a`b", "`a`", " ", "", "a\\|b", "\x00\x1b[1m"])
def test_a_name_is_shown_letter_for_letter(text):
    output = visible(page.markdown("t", [Section("s", (("<", Code(text), ">"),))]))
    shown = re.sub(r"[\x00\x1b]", "\N{REPLACEMENT CHARACTER}", text)
    assert f"<{shown.strip()}>" in output.replace("< ", "<").replace(" >", ">")


def test_everything_lost_is_named_with_its_reason(tmp_path):
    first, second, third, fourth, fifth = synthetic.cases(5)
    for number in range(3):
        for arm in ("old", "new"):
            new = arm == "new"
            measured = [
                synthetic.measurement(first, [1e-4] * 5),
                synthetic.measurement(second, [1e-4] * 20, flags=[Flag.PREEMPTED, *[""] * 19]),
                synthetic.measurement(
                    third, [1e-4] * 5, status=Status.CRASHED if new else Status.OK, reason="exit code -11"
                ),
                synthetic.measurement(fourth, [], status=Status.SKIPPED, reason="no <two> runtimes"),
            ]
            if new:
                measured.append(synthetic.measurement(fifth, [1e-4] * 5))
            info = synthetic.run_info("lost", arm, round=f"r{number}", run_id=f"{arm}-{number}")
            last = number == 2
            synthetic.write_run(
                tmp_path,
                info,
                synthetic.identity(synthetic.Machine()),
                measured,
                complete=not last,
                finish=not last,
            )
    (tmp_path / "lost" / "cases" / "broken.parquet").write_bytes(b"PAR1 not")
    comparison, data = sides_of(tmp_path, "lost")
    out = tmp_path / "deep" / "out"
    written = report.write(Subject(comparison, data), out).read_text()
    text = visible(section(written, "Left out, failed, skipped, flagged"))
    assert "broken.parquet" in text
    assert fifth.case.case_id in text
    assert re.search(rf"{re.escape(third.case.case_id)}\s+new\s+crashed\s+exit code -11\s+3\s", text)
    assert re.search(
        rf"no <two> runtimes\s+new and old\s+skipped\s+1\s+{re.escape(fourth.case.case_id)}", text
    )
    assert re.search(r"old-2\s+old", text)
    assert re.search(rf"{re.escape(second.case.case_id)}\s+old\s+3\s+60", text)


def test_when_canaries_move_the_answer_says_so_first(tmp_path):
    moved = [synthetic.replace(canary, scale={"new": 1.2}) for canary in synthetic.canaries()]
    measured = [*moved, *synthetic.cases(1)]
    synthetic.write_campaign(tmp_path, "moved", {"old": 1.0, "new": 1.0}, rounds=5, measured=measured)
    text = visible(page.markdown("t", [answer.answer(*sides_of(tmp_path, "moved"))]))
    assert "The canaries moved, so the machine itself changed" in text
    assert "THE MACHINE CHANGED between the sides" in text
    assert "It is shown to differ by less than its margin." in text


def test_only_losses(tmp_path):
    measured = [synthetic.replace(case, scale={"new": 1.5}) for case in synthetic.cases(2)]
    synthetic.write_campaign(tmp_path, "worse", {"old": 1.0, "new": 1.0}, rounds=5, measured=measured)
    text = visible(page.markdown("t", [answer.answer(*sides_of(tmp_path, "worse"))]))
    assert "Of these no case is shown to be faster by more than its margin, and the biggest loss is" in text
    assert "No canary was measured on both sides" in text


def test_a_contrast_is_reported_with_the_same_sections(tmp_path, results):
    side = sides.resolve("old", "demo", results)
    made = compare.contrast(side, "size", "4", "8")
    text = report.write(Subject(made, side.data), tmp_path).read_text()
    assert text.startswith("# size 8 against 4, one H200\n")
    assert "Baseline `size=4`, candidate `size=8`." in text
    assert "Both sides were measured inside each run" in section(text, "The answer")
    assert "`launch/op[metric=submit]`" in section(text, "Cases")
    assert "|  | old |" in section(text, "Appendix: identities")


def test_two_sides_that_share_no_case_still_give_a_report(tmp_path):
    for arm, family in (("old", "launch"), ("new", "other")):
        measured = synthetic.cases(1, family)
        synthetic.write_campaign(tmp_path, arm, {arm: 1.0}, rounds=1, measured=measured, null=False)
    comparison, data = sides_of(tmp_path, None, "old/old", "new/new")
    text = report.write(Subject(comparison, data), tmp_path / "out").read_text()
    assert "No case was measured on both sides, so 0 cases were compared." in text
    assert "launch/op[metric=submit,size=1]" in section(text, "Left out, failed, skipped, flagged")
    assert not (tmp_path / "out" / "run-order.png").exists()


def test_launch_cost_is_shown_where_runtimes_were_measured(tmp_path):
    case = synthetic.Case("launch", "empty", {"api": "cudart", "metric": "submit"})
    measured = [synthetic.SyntheticCase(case, 3e-6, 0.05)]
    stacks = {"cudart-11.8": 1.0, "cudart-12.4": 1.0}
    synthetic.write_campaign(tmp_path, "runtimes", stacks, rounds=3, measured=measured, samples=5)
    text = report.write(Subject(*sides_of(tmp_path, "runtimes", *stacks)), tmp_path / "out").read_text()
    assert "(launch-by-runtime.png)" in section(text, "Launch cost by CUDA runtime")
    assert (tmp_path / "out" / "launch-by-runtime.svg").stat().st_size > 1000


def test_a_report_is_a_folder(tmp_path, results):
    (tmp_path / "report").write_text("mine")
    with pytest.raises(UsageError, match="is a file, and a report is one HTML file or a folder"):
        report.write(Subject(*sides_of(results, "demo")), tmp_path / "report")
    assert (tmp_path / "report").read_text() == "mine"
    assert store.load(results, ["demo"]).skipped == ()

import csv
import dataclasses
import io
import json
import math

import pytest
from rich.console import Console

from bench_lib import screen, units
from bench_lib.comparing.changes import CaseChange, Change, Comparison, Difference
from bench_lib.formats import openmetrics
from bench_lib.html import writer
from bench_lib.pages import render, terminal
from bench_lib.pages.page import Section, Table
from bench_lib.sections import cases

HOSTILE = "bell\x07[red]|`x`_<b>\x1b[31m\nnext"


def row(case_id="launch/op[size=1]", change=Change.FASTER, ratio=0.9, **fields):
    known = {
        "family": case_id.partition("/")[0],
        "op": "op",
        "params": {"size": 1},
        "metric": "time",
        "reason": "10 % less time, beyond the margin of 2 %",
        "next_step": "none: settled",
        "n": 10,
        "baseline": 3.1e-6,
        "candidate": 3.1e-6 * ratio,
        "low": ratio - 0.01,
        "high": ratio + 0.01,
        "log_ratios": (math.log(ratio),) * 10,
    }
    return CaseChange(case_id=case_id, change=change, ratio=ratio, **{**known, **fields})


def empty_row(case_id="launch/other", **fields):
    names = ("ratio", "baseline", "candidate", "low", "high")
    nothing = {**dict.fromkeys(names), "n": 0, "log_ratios": (), "reason": "device cuda against cpu"}
    return dataclasses.replace(row(case_id, Change.NOT_COMPARABLE), **nothing, **fields)


def comparison(**fields):
    known = {
        "baseline": "old",
        "candidate": "new",
        "campaign": "demo",
        "interleaved": True,
        "pairing": "rounds",
        "differences": (
            Difference("stack", "cudart", "11.8", "12.4"),
            Difference("machine", "kernel", "6.8.0", "6.9.0"),
        ),
        "attribution": "cudart 11.8 -> 12.4; also different: kernel",
        "canaries": (row("canary/spin", Change.SAME, 1.001),),
        "canaries_moved": False,
        "cases": (row(), row("launch/slow", Change.SLOWER, 1.25), empty_row()),
        "quantities": (row(unit="peak_nbytes", baseline=1e9, candidate=9e8),),
        "left_out": (("launch/a", "new: failed: boom"), ("launch/b", "new: failed: boom")),
    }
    return Comparison(**{**known, **fields})


def shown(given, width=200):
    out = io.StringIO()
    render.text(given, Console(file=out, width=width))
    return out.getvalue()


def test_the_table_opens_with_what_differs_and_ends_with_the_counts():
    lines = [line.strip() for line in shown(comparison()).splitlines()]
    assert lines[0] == "old -> new (campaign demo): ratio = candidate / baseline"
    two = shown(comparison(campaign="before / after")).splitlines()[0]
    assert two.strip() == "old -> new (campaigns before and after): ratio = candidate / baseline"
    assert lines[1] == "what differs: cudart 11.8 -> 12.4; also different: kernel"
    assert lines[2] == "machine: kernel 6.8.0 -> 6.9.0"
    order = [lines.index(name) for name in ("Canaries", "Cases", "Quantities", "left out")]
    assert order == sorted(order)
    *_, counts, answer = lines
    assert counts == "3 cases: 1 faster, 1 slower, 0 same, 0 unclear, 1 not comparable; 2 left out"
    said = "Should we upgrade? 1 of 2 cases got faster, 1 slower by more than their margin, "
    assert answer.startswith(said)
    assert shown(comparison(next_step="none: settled")).splitlines()[-1] == "next: none: settled"


def test_quantities_that_did_not_move_give_a_line_and_no_empty_table():
    still = row(unit="peak_nbytes", change=Change.SAME)
    lines = shown(comparison(quantities=(still, still))).splitlines()
    at = lines.index("Quantities: 2 that did not move or are unclear: --format md, csv or json")
    assert not lines[at - 1].strip()
    assert "Quantities" not in lines


def test_a_name_left_out_for_two_reasons_counts_once():
    given = comparison(left_out=(("launch/a", "one"), ("launch/a", "two")))
    assert "; 1 left out\n" in shown(given)


def test_the_cells_of_a_case():
    text = shown(comparison())
    fast = next(line for line in text.splitlines() if line.startswith("launch/op[size=1] "))
    for cell in ("3.1 µs", "2.79 µs", "0.900", "0.890 … 0.910", "1.111x", "faster", "10"):
        assert cell in fast


def test_a_speed_up_below_one_is_shown_as_it_is():
    slow = next(line for line in shown(comparison()).splitlines() if line.startswith("launch/slow"))
    assert "1.250" in slow
    assert "0.800x" in slow


def test_what_was_left_out_is_grouped_by_reason():
    assert "\n  2 (launch/a, launch/b): new: failed: boom\n" in shown(comparison())
    many = [f"launch/{op}[size={n}]" for op in "abcde" for n in range(6)]
    given = comparison(left_out=tuple((name, "skipped") for name in many))
    assert "\n  30 (launch/a, launch/b, launch/c and 2 more): skipped\n" in shown(given)
    written = render.markdown(given).replace("\\", "")
    assert f"\n- {', '.join(many)}: skipped\n" in written  # all of them
    one = comparison(left_out=((many[0], "skipped"),))
    assert f"\n  {many[0]}: skipped\n" in shown(one)


def test_a_moved_canary_comes_first():
    note = "THE MACHINE CHANGED between the sides: ..."
    lines = shown(comparison(canaries_moved=True, notes=(note, "and another"))).splitlines()
    assert lines[1].strip() == note
    assert any(line.strip() == "and another" for line in lines[2:])


def test_a_narrow_terminal_keeps_every_word():
    given = comparison(cases=(row(change=Change.UNCLEAR, next_step="about 7 more rounds should settle it"),))
    text = shown(given, width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    words = set(text.split())
    assert {"unclear", "0.900", "0.890", "settle", "7"} <= words
    assert "speed-up" not in words


def test_nothing_compared_is_still_a_page():
    nothing = comparison(canaries=(), cases=(), quantities=(), differences=(), left_out=())
    for text in (shown(nothing), render.markdown(nothing)):
        assert "0 cases: 0 faster" in text
    assert len(render.csv(nothing).splitlines()) == 1


def test_names_never_steer_the_terminal():
    out = io.StringIO()
    hostile = comparison(cases=(row(case_id=HOSTILE, reason=HOSTILE),), left_out=((HOSTILE, HOSTILE),))
    render.text(hostile, Console(file=out, width=300, force_terminal=True, color_system=None))
    assert "\x07" not in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()
    assert "[red]|`x`_<b>" in out.getvalue()


def test_json_is_strict_and_whole():
    given = comparison(cases=(row(sd=float("nan"), high=float("inf")), empty_row()))

    def refuse(name):
        raise AssertionError(name)

    read = json.loads(render.json(given), parse_constant=refuse)
    assert read["attribution"] == given.attribution
    assert [one["change"] for one in read["cases"]] == ["faster", "not comparable"]
    assert read["cases"][0]["speed_up"] == pytest.approx(1 / 0.9)
    assert (read["cases"][0]["sd"], read["cases"][0]["high"]) == (None, None)
    assert read["cases"][1]["speed_up"] is None
    assert read["counts"]["faster"] == 1
    assert read["left_out"] == [["launch/a", "new: failed: boom"], ["launch/b", "new: failed: boom"]]
    assert {field.name for field in dataclasses.fields(Comparison)} <= set(read)


def test_a_quantity_is_lower_or_higher_in_every_form():
    error = row("amp/step", Change.SLOWER, 1.5, unit="gradient_relative_error")
    given = comparison(quantities=(error,))
    of_csv = list(csv.DictReader(io.StringIO(render.csv(given))))
    assert [line["change"] for line in of_csv if line["kind"] == "quantities"] == ["higher"]
    assert [one["change"] for one in json.loads(render.json(given))["quantities"]] == ["higher"]
    assert "| higher |" in render.markdown(given)
    gauges = [line for line in openmetrics.text({"": given}).splitlines() if 'kind="quantity"' in line]
    assert [line for line in gauges if 'change="higher"' in line and line.endswith(" 1.0")]
    assert not [line for line in gauges if 'change="slower"' in line]
    of_html = writer.page("t", [cases.quantities(given.quantities)])
    assert ">higher<" in of_html


@pytest.mark.parametrize(("columns", "width"), [("80", 80), ("120", 120), ("", 180), ("wide", 180)])
def test_every_command_is_as_wide_as_columns_says(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    assert screen.console().width == width
    assert screen.console(stderr=True).width == width


def test_tables_of_a_pipe_keep_to_the_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    render.text(comparison())
    terminal.show("claims", [Section("Cases", (Table(("a", "b"), (("word " * 40, "x"),)),))])
    lines = capsys.readouterr().out.splitlines()
    assert 70 < max(map(len, lines)) <= 80


def test_csv_has_one_header_and_a_line_a_row():
    given = comparison(cases=(row(reason='a "quoted", long\nreason'), empty_row()))
    text = render.csv(given)
    assert text.count("case_id") == 1
    lines = list(csv.DictReader(io.StringIO(text)))
    kinds = [line["kind"] for line in lines]
    assert kinds == ["canaries", "cases", "cases", "quantities", "left_out", "left_out"]
    assert lines[1]["reason"] == 'a "quoted", long\nreason'
    assert float(lines[1]["ratio"]) == 0.9
    assert json.loads(lines[1]["params"]) == {"size": 1}
    assert (lines[2]["ratio"], lines[2]["change"]) == ("", "not comparable")
    assert (lines[4]["case_id"], lines[4]["reason"]) == ("launch/a", "new: failed: boom")


def test_markdown_escapes_what_would_be_markup():
    given = comparison(cases=(row(case_id=HOSTILE, reason="a | b"),), campaign="<script>")
    text = render.markdown(given)
    assert text.startswith("# old -> new (campaign &lt;script>)")
    table = [line for line in text.splitlines() if line.startswith("|") and "bell" in line]
    assert len(table) == 1
    cells = table[0].replace(r"\|", "").split("|")
    assert len(cells) == len(render.csv(given).splitlines()[0].split(",")[:10]) + 2
    assert r"bell \[red\]\|\`x\`\_&lt;b>" in table[0]
    assert "\x1b" not in text


def test_markdown_says_the_same_as_the_table():
    text = render.markdown(comparison())
    for said in (
        "what differs: cudart 11.8",
        "## Canaries",
        "## Cases",
        "## Quantities",
        "0.800x",
        "1 faster",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ns"), (3.1e-9, "3.1 ns"), (3.1018e-6, "3.102 µs"), (0.25, "250 ms"), (61.5, "61.5 s")],
)
def test_times_as_text(seconds, text):
    assert units.seconds_text(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.25, "0.25"), (123456.0, "123,456"), (1.5e9, "1,500,000,000")])
def test_quantities_as_text(value, text):
    assert units.quantity_text(value) == text

"""A claims file is read strictly: what is wrong is one sentence that names the file and the entry."""

import re
from pathlib import Path

import pytest

from bench_lib.claims import reading
from bench_lib.claims.bounds import bound_text, tolerance_text
from bench_lib.claims.words import Contrast, Effect, Kind, Scope
from bench_lib.errors import UsageError

ROOT = Path(__file__).parents[1]
ENTRY = """
[[claim]]
id = "mine"
claim = "launches take at least 10 % less time"
source = "a slide"
kind = "at least"
value = 0.10
cases = [{ family = "launch", metric = "submit" }]
baseline = { cudart = "12.4" }
candidate = { cudart = "13.0" }
"""
FACT = '[[claim]]\nid = "mine"\nclaim = "a"\nsource = "b"\nkind = "fact"\n'


def read(folder, text):
    path = folder / "claims.toml"
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    return reading.read(path)


def documented(number: int = 0) -> str:
    """An entry that docs/claims.md shows."""
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "claims.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    return blocks[number]


def test_a_claim_of_your_own_is_ten_lines(tmp_path):
    assert len(documented().splitlines()) == 10
    (claim,) = read(tmp_path, documented()).claims
    assert (claim.id, claim.kind, claim.effect, claim.low, claim.high) == (
        *("our-upgrade", Kind.AT_LEAST, Effect.LESS),
        *(0.10, None),
    )
    assert claim.cases == (Scope("launch", "*", {"metric": ("submit",)}),)
    assert (claim.baseline, claim.candidate) == ({"cudart": "12.4"}, {"cudart": "13.0"})
    assert (claim.needs, claim.ranks, claim.on_gpu) == ("1 GPU", 1, True)


def test_a_file_with_the_mark_that_some_editors_put_first_is_read(tmp_path):
    (claim,) = read(tmp_path, b"\xef\xbb\xbf" + ENTRY.replace("\n", "\r\n").encode()).claims
    assert claim.id == "mine"


TIME = ENTRY.partition("baseline")[0].replace("0.10", "1e-6") + 'effect = "value"\n'


def test_a_target_for_a_time_is_a_cost_as_it_is_documented(tmp_path):
    (claim,) = read(tmp_path, documented(1)).claims
    assert (claim.kind, claim.effect, claim.high, claim.cost) == (Kind.UP_TO, Effect.VALUE, 1e-6, True)
    assert bound_text(claim) + tolerance_text(claim) == "at most 1 µs (± 2 %)"


def test_a_claim_about_times_of_a_cpu_as_it_is_documented(tmp_path):
    assert len(documented(2).splitlines()) == 10
    (claim,) = read(tmp_path, documented(2)).claims
    assert (claim.kind, claim.effect, claim.on_gpu) == (Kind.EXISTS, Effect.MORE, False)
    assert claim.contrasts == (Contrast("n", "64", "128"),)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        (TIME.replace("at least", "at most"), True),
        (TIME.replace("at least", "up to"), True),
        (TIME.replace("at least", "about") + 'unit = "compile_seconds"', True),
        (TIME, False),
        (TIME.replace("at least", "up to") + "cost = false", False),
        (TIME.replace("at least", "up to") + 'unit = "peak_share"', False),
        (TIME.replace("at least", "at most") + 'unit = "peak_nbytes"', True),
        (ENTRY.replace("at least", "up to"), False),
        (ENTRY.replace("at least", "at most"), True),
    ],
)
def test_smaller_is_better_of_a_time_and_of_at_most(tmp_path, text, cost):
    (claim,) = read(tmp_path, text).claims
    assert claim.cost is cost


@pytest.mark.parametrize(
    ("value", "effect", "told"),
    [
        ("0.10", "less", "at least 10 % less time (± 2 %)"),
        ("0.0", "more", "at most 2 % less time"),
        ("0.0", "less", "at most 2 % more time"),
        ("-0.01", "more", "at most 1 % less time (± 2 %)"),
    ],
)
def test_a_bound_is_said_as_people_do(tmp_path, value, effect, told):
    (claim,) = read(tmp_path, ENTRY.replace("0.10", value) + f'effect = "{effect}"').claims
    assert bound_text(claim) + tolerance_text(claim) == told


def test_a_copy_of_the_published_claims_is_no_clash(tmp_path):
    text = (ROOT / "benchmarks" / "claims.toml").read_text()
    assert len(read(tmp_path, text).claims) > 100


def test_values_are_globs_as_cases_write_them(tmp_path):
    cases = '[{ family = "f", op = "conv*", nbytes = [64, 1024], fast = true, share = 0.5 }]'
    text = ENTRY.replace('[{ family = "launch", metric = "submit" }]', cases)
    (claim,) = read(tmp_path, text).claims
    params = {"nbytes": ("64", "1024"), "fast": ("true",), "share": ("0.5",)}
    assert claim.cases == (Scope("f", "conv*", params),)


def test_a_source_is_named_by_its_key_and_a_contrast_by_its_values(tmp_path):
    text = '[sources.s]\ntitle = "The Title"\n' + ENTRY.replace('"a slide"', '"s"')
    text = text.replace('candidate = { cudart = "13.0" }', 'contrast = "execution=eager:compiled"')
    (claim,) = read(tmp_path, text.replace('baseline = { cudart = "12.4" }\n', "")).claims
    assert claim.source == "The Title"
    assert claim.contrasts == (Contrast("execution", "eager", "compiled"),)


WRONG = [
    (ENTRY.replace("value", "valeu"), "claim 'mine' has the unknown key 'valeu'; did you mean 'value'?"),
    ("clam = 1", "has the unknown key 'clam'; did you mean 'claim'?"),
    (ENTRY.replace('"at least"', '"atleast"'), "expected one of 'up to', 'at least', 'about', 'range'"),
    (ENTRY.replace('"at least"', '"atleast"'), "did you mean 'at least'?"),
    (ENTRY.replace("value = 0.10\n", ""), "lacks 'value', a share such as 0.30 for 30 %"),
    (ENTRY.replace("0.10", '"ten"'), "has value = 'ten', expected a number"),
    (ENTRY.replace("0.10", "30"), "has 30 less, expected a share below 1: 0.30 is 30 %"),
    (ENTRY.replace("mine", "amp-speedup-multiple"), "has the id of another claim in "),
    (ENTRY.replace("0.10", "nan"), "has value = nan, expected a number"),
    (ENTRY.replace("0.10", "inf"), "has value = inf, expected a number"),
    (ENTRY.replace("0.10", "9" * 400), "expected a number"),
    (ENTRY.replace("0.10", "true"), "has value = True, expected a number"),
    (ENTRY + 'inside = { cudart = "12.4" }', "has 'inside', which narrows a contrast or a value"),
    (ENTRY + "tolerance = -0.1", "has tolerance = -0.1, expected a number"),
    (ENTRY + "range = [0.1, 0.2]", "has 'range', but kind 'at least' has one number"),
    (ENTRY.replace("at least", "range").replace("value = 0.10", "range = [0.2, 0.1]"), "two shares in order"),
    (ENTRY.replace("at least", "exists"), "has 'value', but kind 'exists' has no number"),
    (ENTRY.replace("id = ", "name = "), "claim number 1 has the id None"),
    (ENTRY.replace('"mine"', "7"), "claim number 1 has the id 7"),
    (ENTRY + ENTRY, "two claims have the id 'mine'"),
    (ENTRY.replace('claim = "launches', 'figure = "launches'), "claim 'mine' lacks 'claim'"),
    (ENTRY.replace('cases = [{ family = "launch", metric = "submit" }]', ""), "selects no cases"),
    (ENTRY.replace('family = "launch"', "family = 7"), "selects cases with family 7"),
    (ENTRY.replace('"submit"', "{}"), "selects cases by 'metric' = {}"),
    (ENTRY.replace('baseline = { cudart = "12.4" }\n', ""), "names one side of stacks"),
    (ENTRY.replace('{ cudart = "12.4" }', "{ cudart = 12.4 }"), "expected texts: { cudart"),
    (ENTRY.replace('{ cudart = "12.4" }', "{}"), "has an empty baseline"),
    (ENTRY + 'contrast = "execution"', "expected PARAMETER=BASELINE:CANDIDATE"),
    (ENTRY + 'contrast = "execution=eager:eager"', "expected PARAMETER=BASELINE:CANDIDATE"),
    (ENTRY + 'effect = "value"', "is about a value itself, which needs a number and no sides"),
    (ENTRY + "cost = true", "is a cost of kind 'at least'"),
    (ENTRY.replace("at least", "at most") + "cost = false", "has kind = 'at most' and cost = false"),
    (ENTRY + 'needs = "three GPUs"', "expected one of 'no GPU', '1 GPU'"),
    (ENTRY + 'check = { look = "version", of = "a", is = "b" }', "only a claim of kind 'fact' has"),
    (re.sub("(baseline|candidate).*\n", "", ENTRY), "has no sides"),
    (FACT, "is a fact without a check, a record or a note"),
    (FACT + 'check = { of = "a" }', "looks at '', expected one of version, installed, file, stored"),
    (FACT + 'check = { look = "version", of = "a" }', "has a check 'version' that lacks 'is'"),
    (FACT + 'check = { look = "file", package = "p", path = "*", contains = "(" }', "is no pattern"),
    (
        FACT + 'check = { look = "stored", family = "f", named = "n", contains = "c", o = "x" }',
        "with 'o'",
    ),
    (
        FACT + 'record = "r"\nrecord_says = "perhaps"',
        "one of 'supported', 'refuted', 'mixed', 'open'",
    ),
    (FACT + 'record = "r"\ncontrast = "a=b:c"', "a fact compares nothing"),
    ("claim = 3", "'claim' is not a list of claims"),
    ('sources = "x"', "a source is a table with its title"),
    ("planned = 3", "has planned = 3"),
    ("= = =", "is not valid TOML"),
    (b"\xff\xfe\x00", "is not valid TOML"),
    ("x = " + "[" * 5000, "is not valid TOML"),
]


@pytest.mark.parametrize(("text", "told"), WRONG, ids=[told[:50] for _, told in WRONG])
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, text, told):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)
    assert str(tmp_path / "claims.toml") in str(caught.value)


@pytest.mark.parametrize(("path", "told"), [("absent.toml", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_named(tmp_path, path, told):
    with pytest.raises(UsageError, match=told):
        reading.read(tmp_path / path)


def test_the_file_of_the_current_folder_comes_first(tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "claims.toml").write_text(ENTRY)
    monkeypatch.chdir(tmp_path)
    assert [claim.id for claim in reading.read().claims] == ["mine"]

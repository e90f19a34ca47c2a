"""An edited benchmark file: told apart by what it does, refused in its campaign, and said by a comparison."""

import pytest
import synthetic
from plugin_runs import Runs
from synthetic import Machine, SyntheticCase

from bench_lib.comparing import compare, sides
from bench_lib.comparing.contrast import contrast
from bench_lib.errors import UsageError
from bench_lib.journaling import held
from bench_lib.layout import CampaignFolder
from bench_lib.model import Case, Status
from bench_lib.pages import render
from bench_lib.stacking import families, family_code

FILE = '''"""What it is for."""
import pytest

FAMILY = "made"


@pytest.mark.parametrize("n", [1, 2])
def bench_it(bench, n: int, *, deep=None):
    """What it measures."""
    name = f"{n!r:>{8}} of {'ö'}" "\\n"  # why
    bench(lambda: [*range(n), {**{}, "a": 1.5}, name[1:], 2j, b"x", ...], timing="host")
'''
DIGEST = "e7a0703aa5bc"  # in every Python: the stacks of a campaign have their own
OTHER = FILE.replace("range(n)", "range(2 * n)")
SAME = (
    FILE.replace("  # why", ""),
    FILE.replace("What it is for", "What it is"),
    FILE.replace("What it measures", "What"),
    FILE.replace('"made"', "'made'").replace("n: int, *, deep=None", "n: (int), *, deep=None,"),
)
EDITED = (
    OTHER,
    FILE.replace("[1, 2]", "[1, 3]"),
    FILE.replace("1.5", "1"),
    FILE.replace("deep=None", "deep"),
    FILE.replace(" of ", ""),
    FILE.replace('"host"', '"batch"'),
)
SAYS = (
    "the benchmark file of made differs between the runs: what is compared is partly the code that measures"
)
REFUSED = "measured made with other code in the benchmark file, and what is compared would partly be the code"


def digest_of(tmp_path, text):
    (tmp_path / "bench_made.py").write_text(text)
    return family_code.digest(tmp_path / "bench_made.py")


def test_what_a_file_does_decides_and_not_how_it_is_written(tmp_path):
    own = digest_of(tmp_path, FILE)
    assert own == DIGEST
    assert {digest_of(tmp_path, text) for text in SAME} == {own}
    others = {digest_of(tmp_path, text) for text in EDITED}
    assert len(others) == len(EDITED)
    assert own not in others


@pytest.mark.filterwarnings("error")
def test_what_is_no_python_here_has_no_code(tmp_path):
    path = tmp_path / "bench_made.py"
    for text in ("def f(:\n", "x = '\0'\n", "# coding: nonesuch\n"):
        assert digest_of(tmp_path, text) == ""
        assert family_code.of_files({"made": [path]}) == {}
    assert digest_of(tmp_path, 'x = "\\d"\n')  # Python warns of it, to whoever imports the file
    assert family_code.digest(tmp_path / "nonesuch.py") == ""


def test_a_family_of_several_files_is_all_of_them(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "bench_a.py").write_text("FAMILY = 'made'\n")
    (tmp_path / "below/bench_b.py").write_text("FAMILY = 'made'\nx = 1\n")
    (tmp_path / "bench_c.py").write_text("x = 2\n")
    files = families.files([tmp_path])
    assert {family: {path.name for path in paths} for family, paths in files.items()} == {
        "made": {"bench_a.py", "bench_b.py"},
        "c": {"bench_c.py"},
    }
    assert families.files([tmp_path], ["c"]) == {"c": {tmp_path / "bench_c.py"}}
    code = family_code.of_files(files)
    settings = family_code.stored(code)
    assert settings.keys() == {"benchmark.made", "benchmark.c"}
    assert len(settings["benchmark.made"]) == 12 + 1 + 12
    assert family_code.of_settings({**settings, "module_loading": "lazy"}) == code


# --- a campaign -------------------------------------------------------------------------------------


def one_run(results, code, campaign="c", status=Status.OK, arm="here", round="", n=(1,), **more):  # noqa: A002
    """A run that measured the family `made` with a file of this text, None: before digests were stored."""
    (results / f"{campaign}.py").write_text(code or "")
    settings = {} if code is None else {"benchmark.made": family_code.digest(results / f"{campaign}.py")}
    cases = [SyntheticCase(Case("made", "it", {"n": value}), 1e-4) for value in n]
    made = [synthetic.measurement(case, [1e-4] * 5, status=status, reason="") for case in cases]
    info = synthetic.run_info(campaign, arm, round=round, device="cpu")
    synthetic.write_run(results, info, synthetic.identity(Machine(), **settings), made, **more)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "bench_made.py").write_text(FILE)
    return families.files([tmp_path])


def test_a_campaign_of_another_file_is_refused(tmp_path, files):
    folder = CampaignFolder(tmp_path, "c")
    one_run(tmp_path, FILE)
    one_run(tmp_path, SAME[0])
    one_run(tmp_path, None)
    held.require_same_code(folder, files, planned=False)
    one_run(tmp_path, OTHER, status=Status.FAILED)  # what has no times may be mended
    held.require_same_code(folder, files, planned=False)
    one_run(tmp_path, OTHER, finish=False, complete=False)  # of a run that was killed
    for planned in (False, True):
        with pytest.raises(UsageError, match=f"^campaign 'c' in .* {REFUSED}.* another campaign with"):
            held.require_same_code(folder, files, planned)
    held.require_same_code(folder, {}, planned=True)  # a run of other families


def test_quick_looks_in_local_are_told_of_and_not_refused(tmp_path, files):
    folder = CampaignFolder(tmp_path, "local")
    one_run(tmp_path, FILE, "local")
    assert held.other_code(folder, files) == ""
    one_run(tmp_path, OTHER, "local")
    held.require_same_code(folder, files, planned=False)
    held.require_same_code(folder, files, planned=True)
    assert held.other_code(folder, files) == (
        "local holds runs that measured made with other code in the benchmark file; to compare, name your "
        "own with --campaign"
    )
    one_run(tmp_path, OTHER, "local", round="round-1")
    held.require_same_code(folder, files, planned=False)
    with pytest.raises(UsageError, match=REFUSED):
        held.require_same_code(folder, files, planned=True)


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(pytester, monkeypatch)


def test_plain_pytest_keeps_the_code_and_refuses_another(runs: Runs):
    words = ("--device=cpu", "--campaign=before")
    runs.write(FILE, head="")
    runs.write(FILE.replace('"made"', '"beside"').replace("_it", "_that"), "bench_beside", head="")
    runs.pytest(*words, "-k", "bench_it").assert_outcomes(passed=2)
    runs.write("# more\n" + FILE, head="")
    runs.pytest(*words).assert_outcomes(passed=4)
    first, second = sorted((dict(run["settings"]) for run in runs.table("runs", "before")), key=len)
    assert first["benchmark.made"] == second["benchmark.made"] == DIGEST
    assert "benchmark.beside" not in first  # no case of it was selected
    assert "benchmark.beside" in second

    runs.write(OTHER, head="")
    there = runs.files()
    done = runs.pytest(*words)
    assert done.ret == 4
    assert next(line for line in done.errlines if line).startswith("ERROR: campaign 'before' in results ")
    assert REFUSED in done.stderr.str()
    assert runs.files() == there
    runs.pytest(*words, "--family=beside").assert_outcomes(passed=2)
    runs.pytest("--device=cpu", "--campaign=after").assert_outcomes(passed=4)
    runs.write(FILE, head="")  # the edit undone
    runs.pytest(*words).assert_outcomes(passed=4)

    a, b = sides.pair("before", "after", None, runs.path / "results")
    assert SAYS in compare.compare(a, b).notes


def test_a_family_of_two_files_is_one_code_whatever_is_selected(runs: Runs):
    """After a crash a new process measures the rest, and that may lie in one of the files alone."""
    words = ("--device=cpu", "--campaign=before")
    runs.write(FILE, head="")
    runs.write(FILE.replace("_it", "_that"), "bench_more", head="")
    for name in ("bench_it", "bench_that"):
        runs.pytest(*words, "-k", name).assert_outcomes(passed=2)
    assert len({dict(run["settings"])["benchmark.made"] for run in runs.table("runs", "before")}) == 1


def test_quick_looks_at_a_file_that_is_being_written(runs: Runs):
    said = "cuda-gains: local holds runs that measured made with other code in the benchmark file; *"
    runs.write(FILE, head="")
    runs.pytest("--device=cpu").stdout.no_fnmatch_line(said)
    runs.write(OTHER, head="")
    done = runs.pytest("--device=cpu")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines([said])


# --- a comparison -----------------------------------------------------------------------------------


def compared(results, baseline, candidate):
    for number in range(3):
        one_run(results, baseline, "before", arm="old", round=f"before-{number}")
        one_run(results, candidate, "after", arm="new", round=f"after-{number}")
    return compare.compare(*sides.pair("before", "after", None, results))


def test_another_file_on_the_other_side_is_said(tmp_path):
    comparison = compared(tmp_path, FILE, OTHER)
    assert comparison.notes[-1] == SAYS
    (found,) = comparison.differences
    assert (found.axis, found.component, found.baseline) == ("settings", "benchmark.made", DIGEST)
    assert comparison.attribution.endswith("; also different: benchmark.made")
    assert SAYS in render.markdown(comparison)


@pytest.mark.parametrize("candidate", [SAME[1], None])
def test_the_same_file_or_one_of_which_nothing_is_known_is_none(tmp_path, candidate):
    for one, other in ((FILE, candidate), (candidate, FILE)):
        folder = tmp_path / str(one == FILE)
        folder.mkdir()
        comparison = compared(folder, one, other)
        assert comparison.differences == ()
        assert "benchmark file" not in render.markdown(comparison)


def test_several_files_inside_one_side_are_said_by_a_contrast(tmp_path):
    one_run(tmp_path, FILE, n=(1, 2))
    side = sides.whole_stack(None, "c", tmp_path)
    assert SAYS not in contrast(side, "n", "1", "2").notes
    one_run(tmp_path, OTHER, n=(1, 2))
    side = sides.whole_stack(None, "c", tmp_path)
    assert SAYS in contrast(side, "n", "1", "2").notes

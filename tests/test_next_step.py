"""What a run says to type next, and why nothing was measured."""

from pathlib import Path

import pytest

from bench_lib import next_step
from bench_lib.model import Status, nothing_measured, why_nothing

FAMILIES = Path(__file__).parents[1] / "docs/families"


def test_several_stacks_are_compared_where_they_lie():
    said = next_step.line(["a", "b"], "mine", "my results", [])
    assert said == "next: cuda-gains compare a b --campaign mine --results 'my results'"


def test_one_stack_has_a_contrast_where_both_of_its_values_were_measured():
    later = "after the upgrade this command with --campaign c-after, then cuda-gains compare c c-after"
    measured = [("cudnn_selection", {"benchmark": "off"}), ("launch", {"benchmark": "on"})]
    assert next_step.line(["here"], "c", "results", measured) == f"next: {later}"
    measured.append(("cudnn_selection", {"benchmark": "on"}))
    contrast = "cuda-gains compare --contrast benchmark=off:on here --campaign c"
    assert next_step.line(["here"], "c", "results", measured) == f"next: {contrast}  # or {later}"


def test_before_is_compared_with_after_as_the_readme_does():
    readme = (FAMILIES.parents[1] / "README.md").read_text()
    said = next_step.line(["here"], "before", "results", [])
    assert said.startswith("next: after the upgrade this command with --campaign after, then ")
    assert f"\n{said.rpartition('then ')[2]}\n" in readme
    assert next_step.line(["cu124"], "before-1", "r", []).endswith("before-1/cu124 after-1/cu124 --results r")


def test_too_few_runs_need_more_before_anything_is_compared():
    measured = [("cudnn_selection", {"benchmark": value}) for value in ("off", "on")]
    assert next_step.line(["here"], "c", "results", measured, more="do it") == (
        "next: do it  # for verdicts; after the upgrade the same with --campaign c-after, then "
        "cuda-gains compare c c-after"
    )
    said = next_step.line(["a", "b"], "c", "results", [], more="do it")
    assert said == "next: do it  # then cuda-gains compare a b --campaign c"


@pytest.mark.parametrize(
    ("earlier", "later"), [("before", "after"), ("before-2", "after-2"), ("c", "c-after")]
)
def test_after_the_upgrade_the_two_are_compared(tmp_path, earlier, later):
    assert "after the upgrade" in next_step.line(["here"], later, str(tmp_path), [])
    (tmp_path / earlier / "runs").mkdir(parents=True)
    compared = f"cuda-gains compare {earlier} {later} --results {tmp_path}"
    assert next_step.line(["here"], later, str(tmp_path), []) == f"next: {compared}"
    assert next_step.line(["here"], later, str(tmp_path), [], "do it") == f"next: do it  # then {compared}"


def test_what_to_type_is_found_by_the_shell(tmp_path, monkeypatch):
    for name in ("my env", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cuda-gains").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(tmp_path / "my env/python"))
    monkeypatch.setattr("sys.argv", ["/usr/bin/pytest"])
    monkeypatch.setenv("PATH", str(tmp_path / "my env"))
    assert next_step.typed("cuda-gains compare a b") == "cuda-gains compare a b"
    for path in ("", str(tmp_path / "other")):  # `make bench` activates nothing; another one is not this one
        monkeypatch.setenv("PATH", path)
        assert next_step.typed("cuda-gains compare a b") == "'my env/cuda-gains' compare a b"
        for started in ("./my env/cuda-gains", str(tmp_path / "my env/cuda-gains")):
            monkeypatch.setattr("sys.argv", [started, "run"])
            assert next_step.typed("cuda-gains compare a b") == f"'{started}' compare a b"
        monkeypatch.setattr("sys.argv", ["/usr/bin/pytest"])
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))  # nothing beside it: as in a made-up one
    assert next_step.typed("cuda-gains compare a b") == "cuda-gains compare a b"


@pytest.mark.parametrize("family", next_step.CONTRASTS)
def test_each_contrast_is_the_one_of_its_familys_page(family):
    name, baseline, candidate = next_step.CONTRASTS[family]
    assert f"--contrast {name}={baseline}:{candidate}" in (FAMILIES / f"{family}.md").read_text()


def test_what_can_be_installed_is_named_before_a_missing_gpu():
    numba = "numba is not installed and the native timing loops need it; `pip install -e '.[measure]'`"
    ends = {(Status.SKIPPED, "no GPU: none here"): 900, (Status.SKIPPED, numba): 1}
    assert why_nothing(ends) == numba
    assert why_nothing({**ends, (Status.OK, ""): 1}) == ""
    assert why_nothing(
        {(Status.SKIPPED, "no GPU: none here"): 2, (Status.NOT_APPLICABLE, "no torch"): 1}
    ) == ("no GPU: none here")


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ({(Status.SKIPPED, "a"): 2, (Status.NOT_APPLICABLE, "a"): 1}, "3 cases, 0 measured: a"),
        ({(Status.SKIPPED, "a"): 2, (Status.FAILED, "b"): 1}, "3 cases, 0 measured, most often: a"),
        ({(Status.SKIPPED, "a"): 1, (Status.FAILED, ""): 1}, "2 cases, 0 measured, among them: a"),
        (
            {(Status.SKIPPED, "a"): 9, (Status.SKIPPED, "pip install x"): 1},
            "10 cases, 0 measured, among them: pip",
        ),
    ],
)
def test_most_often_is_said_of_what_was_most_often(ends, told):
    assert nothing_measured(ends).startswith(f"nothing was measured: {told}")
    assert nothing_measured({**ends, (Status.OK, ""): 1}) == ""

"""Whatever a user mistypes is answered by one sentence with the nearest name, and exit code 2."""

import sys
from pathlib import Path

import pytest
from synthetic import SyntheticCase, write_campaign

from bench_lib.cli import main
from bench_lib.model import Case


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    case = SyntheticCase(Case("launch", "empty", {"runtime": "11.8"}))
    write_campaign(folder, "before", {"old": 1.0, "new": 1.0}, rounds=3, measured=[case])
    (folder / "a_file").write_text("")
    (folder / "empty").mkdir()
    (folder / "run.json").write_text("")
    (folder / "half").mkdir()
    for table in ("runs", "cases", "samples"):
        (folder / "half" / table).mkdir()
        (folder / "half" / table / "x.parquet").write_bytes(b"")
    return folder


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> str:
    """What the command says to stderr when it ends with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["cuda-gains", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert ended.value.code == 2, output
    assert "Traceback" not in output.err
    return " ".join(output.err.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("compare old nwe --campaign before", "no stack or arm 'nwe' in campaign 'before'; there: new, "),
        ("compare old nwe --campaign before", "did you mean 'new'?"),
        ("compare old new --campaign befor", "did you mean 'before'?"),
        ("compare befor/old before/new", "did you mean 'before'?"),
        ("compare old old --campaign before", "'old' and 'old' name the same runs; name two stacks"),
        ("compare old new", "name one that holds old and new: --campaign"),
        ("compare old new --campaign empty", "no campaign 'empty'"),
        ("compare old new --campaign half", "holds no run that can be read"),
        ("compare old new --campaign a_file", "no campaign 'a_file'"),
        ("compare run.json run.json", "run.json"),
        ("compare nowhere.json old --campaign before", "nowhere.json"),
        ("compare --contrast runtme=11.8:12.4 --campaign before old", "did you mean 'runtime'?"),
        ("compare --contrast runtime=11.8:12.4 --campaign before old", "no value of runtime '12.4'"),
        ("compare --contrast runtime=11.8:11.8 --campaign before old", "is on both sides"),
        ("compare old new --campaign before --format jnit", "no format 'jnit'; there: junit, table"),
        ("compare old new --campaign before --format jnit", "did you mean 'junit'?"),
        ("compare old new --campaign before --fail-on slowr", "did you mean 'slower'?"),
        ("calibrate --campaign before --format jsn", "did you mean 'json'?"),
        ("claims --campaign before --format tabel", "did you mean 'table'?"),
        ("compare old new --campaing before", "No such option: --campaing"),
        ("compare", "needs two sides, 0 given"),
        ("compair old new", "No such command 'compair'"),
        ("calibrate --campaign empty", "no campaign 'empty'"),
        ("merge befor", "befor"),
        ("merge --campaign befor", "befor"),
        ("merge", "no campaign is named; name one: cuda-gains merge NAME"),
        ("merge ../before", "characters that a folder name should not have"),
        ("report old new --campaign before -o {results}/a_file", "a_file"),
        ("report old new --campaign before -o upgrade.pdf", "upgrade.pdf ends in .pdf as a file does, and"),
        ("report --all -o report.html", "report.html ends in .html as a file does, and all reports together"),
        ("report --all -o a_file", "a_file is a file, and all reports together are a folder"),
        ("chart lunch-by-runtime --campaign before", "did you mean 'launch-by-runtime'?"),
        (
            "chart migration --campaign before -o x.png",
            "x.png ends in .png as a file does, and charts go into",
        ),
    ],
)
def test_reading(
    results: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(results)
    given = [word.format(results=results) for word in words.split()]
    options = [] if words in ("compair old new",) else ["--results", results]
    assert sentence in said(capsys, monkeypatch, *given, *options)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--stack thre", "no stack 'thre'"),
        ("--stack there --stack there", "named twice"),
        ("--stack there --rounds 0", "--rounds"),
        ("--stack there --rounds many", "Invalid value for '--rounds'"),
        ("--stack there --device tpu", "tpu"),
        ("--stack there --campaign .", "folder name"),
        ("--stack there --benchmarks nowhere", "there is no folder nowhere"),
        ("--stack there --results a_file", "a_file"),
        ("", "--stack"),
    ],
)
def test_measuring(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    sentence: str,
) -> None:
    (tmp_path / "stacks.toml").write_text('[there]\nkind = "here"\n')
    (tmp_path / "a_file").write_text("")
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setenv("CUDA_GAINS_STACKS", str(tmp_path / "stacks.toml"))
    monkeypatch.chdir(tmp_path)
    given = ["--rounds", "1", *words.split()] if "--rounds" not in words else words.split()
    assert sentence in said(capsys, monkeypatch, "run", *given)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"[there", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"[" * 10_000, "is not valid TOML"),
        (b"there = 1", "is not a stack"),
        (b'[there]\nkind = "heer"', "has kind 'heer', expected one of"),
        (b'[there]\nkind = "here"\nlibary = "x"', "has the unknown key 'libary'"),
        (b'["../there"]\nkind = "here"', "characters that a folder name should not have"),
        (b"", "no stack 'there'"),
        (None, "cannot be read"),
    ],
)
def test_the_stacks_file(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
    sentence: str,
) -> None:
    path = tmp_path / "stacks.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    monkeypatch.setenv("CUDA_GAINS_STACKS", str(path))
    told = said(capsys, monkeypatch, "stacks", "show", "there")
    assert sentence in told
    assert content == b"" or "stacks.toml" in told


@pytest.mark.parametrize(
    "words",
    [
        "compare before after",
        "compare before/here after/here",
        "compare --contrast runtime=11.8:12.4",
        "calibrate",
        "chart migration --campaign before",
        "report before after",
        "claims --campaign before",
    ],
)
def test_the_wrong_folder_is_told_as_such(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    missing = f"cuda-gains: there is no folder results in {tmp_path}; go to where you measured (the clone), "
    assert said(capsys, monkeypatch, *words.split()) == f"{missing}or name it with --results"
    elsewhere = said(capsys, monkeypatch, *words.split(), "--results", tmp_path / "no")
    assert elsewhere.startswith(
        f"cuda-gains: there is no folder {tmp_path / 'no'}; go to where you measured "
    )


def test_all_claims_on_nothing_are_told_with_what_is_missing(tmp_path, monkeypatch, capsys):
    """The claims themselves are an answer: only --strict fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cuda-gains", "claims"])
    monkeypatch.setattr(sys, "stderr", sys.stdout)  # as on a terminal: before pages of what is not measured
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    output = capsys.readouterr().out
    assert " claims judged on no campaign" in output
    assert output.startswith(f"cuda-gains: there is no folder results in {tmp_path}; go to where you ")

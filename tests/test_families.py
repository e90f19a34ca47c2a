"""Families read from the text of benchmark files, and files that need not be collected."""

import pytest

from bench_lib.errors import UsageError
from bench_lib.stacking import families


@pytest.fixture
def folder(tmp_path):
    families.declared.cache_clear()
    (tmp_path / "bench_a.py").write_text('"""One."""\nFAMILY = "a"\nraise SystemExit("imported")\n')
    (tmp_path / "bench_b.py").write_text("FAMILY = 'b'\n")
    (tmp_path / "bench_none.py").write_text("x = 1\n")
    return tmp_path


def test_declared(folder):
    assert families.declared(folder) == {folder / "bench_a.py": "a", folder / "bench_b.py": "b"}


@pytest.mark.parametrize(
    ("asked", "left_out"),
    [((), set()), (("a",), {"bench_b.py"}), (("a", "b"), set()), (("a", "nonesuch"), set())],
)
def test_a_file_is_left_out_only_when_all_that_is_asked_for_is_there(folder, asked, left_out):
    assert {path.name for path in folder.iterdir() if families.is_other(path, asked)} == left_out


def test_an_unknown_family_names_the_nearest(folder):
    families.check(folder, ("a", "none", "b"))  # a file that names none is called after its file
    (folder / "below").mkdir()
    (folder / "below/test_c.py").write_text("FAMILY = 'canary'\n")
    families.check(folder, ("canary",))
    families.check(folder / "bench_a.py", ("a",))
    with pytest.raises(UsageError, match=r"no family 'canery' in .*; did you mean 'canary'\? Known are a, b"):
        families.check(folder, ("a", "canery"))
    with pytest.raises(UsageError, match=r"no family 'b' in .*bench_a\.py; known are a$"):
        families.check(folder / "bench_a.py", ("b",))


def test_a_family_that_only_an_import_tells_is_not_judged(folder):
    (folder / "bench_none.py").write_text("FAMILY = made_up()\n")
    families.check(folder, ("nonesuch",))


@pytest.mark.parametrize(
    "text",
    ["FAMILY, MARGIN = 'sums', 0.05", "FAMILY, MARGIN, _X = 'sums', 0.05, 1", 'FAMILY: str = "sums"  # own'],
)
def test_a_family_is_read_beside_others_and_with_a_type(folder, text):
    (folder / "bench_none.py").write_text(f"{text}\n")
    assert families.declared(folder)[folder / "bench_none.py"] == "sums"
    with pytest.raises(UsageError, match=r"no family 'sum' in .*; did you mean 'sums'\?"):
        families.check(folder, ("sum",))


@pytest.mark.parametrize(
    "text",
    ['FAMILY = "a" + "b"', "FAMILY = 'a'.upper()", "MARGIN, FAMILY = 0.05, 'a'", "FAMILY, _X = both()"],
)
def test_a_family_that_is_computed_is_not_half_read(folder, text):
    (folder / "bench_a.py").write_text(f"{text}\n")
    assert families.declared(folder) == {folder / "bench_b.py": "b"}
    assert set(families.named(folder).values()) == {"b", "none"}


def test_what_a_folder_lacks_is_taken_from_the_suite(folder, tmp_path_factory):
    own = tmp_path_factory.mktemp("own")
    assert families.from_suite(own, ("b",), [folder]) == ()  # no benchmark file at all
    (own / "bench_a.py").write_text("FAMILY = 'a'\n")
    assert families.from_suite(own, (), [folder]) == ()
    more = families.from_suite(own, ("a", "b", "nonesuch"), [folder, folder])
    assert more == (folder / "bench_b.py",)
    families.check(own, ("a", "b"), [folder])
    with pytest.raises(UsageError, match=r"no family 'nonesuch' in .* or the suite; known are a, b$"):
        families.check(own, ("a", "b", "nonesuch"), [folder])

"""A function named almost as a case is told of; helpers and what pytest collects are not."""

from plugin_runs import Runs

BODY = """
def bench_a(bench):
    bench.record(Series((1.0,)))

def {name}({parameters}):
    pass
"""


def told(runs: Runs, name: str, parameters: str = "bench", *options: str) -> list[str]:
    runs.write(BODY.format(name=name, parameters=parameters))
    done = runs.pytest(*options)
    assert done.ret == 0
    return [line for line in done.outlines if "is no case" in line]


def test_a_near_name_is_told_beside_what_was_collected(runs: Runs) -> None:
    for name in ("bnech_b", "benchmark_b", "Bench_b", "bench"):
        (line,) = told(runs, name)
        first = name.partition("_")[0]
        assert line == (
            f"cuda-gains: bench_made.py::{name} is no case: its name begins with '{first}', expected "
            "'bench_'; rename it, or begin it with '_' if it is a helper"
        )
    assert told(runs, "bnech_b", "bench", "-q")


def test_helpers_and_functions_without_the_fixture_are_not(runs: Runs) -> None:
    assert not told(runs, "_bench_b")
    assert not told(runs, "record")
    assert not told(runs, "bnech_b", "n")


def test_a_file_without_any_case_says_why(runs: Runs) -> None:
    runs.write("\ndef bnech_a(bench):\n    pass\n")
    done = runs.pytest()
    assert done.ret == 5
    done.stdout.fnmatch_lines(["cuda-gains: bench_made.py::bnech_a is no case: *"])
    done = runs.pytest("-o", "python_functions=bnech bench_*")  # as somebody else may name theirs
    assert done.ret != 5
    assert "is no case" not in done.stdout.str()

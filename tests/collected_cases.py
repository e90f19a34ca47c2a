"""A pytest plugin: the cases that were collected, as JSON into the file that $COLLECTED_CASES names."""

import json
import os
from pathlib import Path

import pytest

from bench_lib.running import selection


def pytest_collection_finish(session: pytest.Session) -> None:
    cases = [selection.case_of(item) for item in session.items if selection.is_case(item)]
    found = sorted({(case.family, case.op, case.params_json) for case in cases})
    Path(os.environ["COLLECTED_CASES"]).write_text(json.dumps(found))

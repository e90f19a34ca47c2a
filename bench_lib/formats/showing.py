"""A comparison or a bridge in, printed in the form that was asked for."""

import sys
from collections.abc import Mapping

from bench_lib.comparing.bridge import Bridge
from bench_lib.comparing.changes import Comparison
from bench_lib.formats import junit, openmetrics
from bench_lib.pages import bridge_page, render


def show(found: Comparison | Bridge, form: str) -> None:
    """Print it as `table`, `json`, `csv`, `md`, `openmetrics` or `junit`."""
    if form in ("openmetrics", "junit"):
        write = openmetrics.text if form == "openmetrics" else junit.text
        sys.stdout.write(write(_steps(found)))
    elif isinstance(found, Bridge):
        bridge_page.show(found, form)
    elif form == "table":
        render.text(found)
    else:
        forms = {"json": render.json, "csv": render.csv, "md": render.markdown}
        sys.stdout.write(forms[form](found))


def _steps(found: Comparison | Bridge) -> Mapping[str, Comparison]:
    """The comparisons by what tells them apart: nothing for one, the steps and the whole of a bridge."""
    if isinstance(found, Comparison):
        return {"": found}
    steps = {f"step {number}": step for number, step in enumerate(found.steps, start=1)}
    return {**steps, "whole": found.whole} | ({"apart": found.apart} if found.apart else {})

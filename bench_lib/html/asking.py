"""What a command line asked for in, the subject of a report out."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from bench_lib.claims import judged
from bench_lib.claims.judged import Verdicts
from bench_lib.claims.measured import Arms
from bench_lib.comparing import sides
from bench_lib.comparing.store import Results, opened
from bench_lib.errors import UsageError
from bench_lib.pages import asked
from bench_lib.pages.report import Campaign, Subject


class Known:
    """What reports of one folder share: its campaigns read and compared once, each with its claims."""

    def __init__(self, results: Results) -> None:
        self.arms = Arms(results)
        self.campaigns: dict[str, Campaign] = {}

    def claims(self, campaigns: Sequence[str] | None = None) -> tuple[Verdicts | None, str]:
        """The claims judged on campaigns (all by default); or none, and why: a claims file that is wrong."""
        try:
            return judged.verdicts(self.arms, campaigns), ""
        except UsageError as error:
            return None, str(error).rstrip(".")


def reported(
    names: Sequence[str],
    campaign: str | None,
    results: Path | Results,
    contrast: str | None,
    check: str | None = None,
    known: Known | None = None,
    question: str = "",
) -> Subject:
    """Two sides, a contrast or a bridge compared, with all of its campaign and the claims judged on it.

    `question`: what the report answers, in words of its own.
    `known` keeps the campaigns of `results` for the next report. Raises UsageError as `asked.compared` and
    `asked.bridged` do.
    """
    results = opened(results)
    if len(names) > 2 and contrast is None:
        bridge, data = asked.bridged(names, campaign, results, check)
        comparison = bridge.whole
    else:
        bridge = None
        comparison, data = asked.compared(names, campaign, results, contrast)
    of_a_file = any(name.endswith(".json") for name in names)
    command = _command(names, campaign, contrast, check)
    if of_a_file or comparison.campaign not in sides.campaigns(results.folder):
        return Subject(comparison, data, bridge=bridge, question=question, command=command)
    known, name = Known(results) if known is None else known, comparison.campaign
    if name not in known.campaigns:
        known.campaigns[name] = Campaign(results.campaign(name), *known.claims([name]))
    return Subject(comparison, data, known.campaigns[name], bridge, question, command)


def _command(names: Sequence[str], campaign: str | None, contrast: str | None, check: str | None) -> str:
    """What makes this report, where the results lie in the folder that is looked into by default."""
    options = (("--campaign", campaign), ("--contrast", contrast), ("--check", check))
    words = [*names, *(word for name, value in options if value for word in (name, value))]
    return shlex.join(["cuda-gains", "report", *words])

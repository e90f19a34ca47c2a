"""Verdicts in, sections of text and tables out, and the same as JSON."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from bench_lib.claims.bounds import bound_text, tolerance_text
from bench_lib.claims.judged import Verdicts
from bench_lib.claims.words import Finding, Judged, Kind, Verdict
from bench_lib.faults import seals
from bench_lib.pages import terminal
from bench_lib.pages.page import Bullets, Code, Inline, Mark, Section, Table, left_out, letters
from bench_lib.units import names_text

BY_THE_TOOLKIT = "by the toolkit alone, the driver was not exchanged"
_NAMES, _QUOTED = 5, 4
_HEAD = ("claim", "claimed", "verdict", "measured [95 % interval]", "cases", "n", "why")
_RECORD_HEAD = ("claim", "claimed", "verdict", "why")
_ABSENT_HEAD = ("claim", "claimed", "what it would take")


def title(found: Verdicts) -> str:
    """What was judged on what, in a line."""
    number = "1 claim" if len(found.claims) == 1 else f"{len(found.claims)} claims"
    return f"{number} judged on {', '.join(found.campaigns) or 'no campaign'}"


def quoted(claims: Sequence[Judged], after: Callable[[Judged], str] = lambda _: "") -> str:
    """The first claims in quotes, each with what is said `after` it."""
    return names_text([f"“{one.claim.text.rstrip('.')}”{after(one)}" for one in claims], _QUOTED, "; ")


def counts_text(found: Verdicts) -> str:
    """Claims by verdict, as one line."""
    return ", ".join(f"{n} {verdict}" for verdict, n in found.counts().items())


def verdict_text(one: Judged | Finding) -> str:
    """The verdict, with `, and more` where more than claimed was found."""
    return f"{plain_text(one)}, and more" if one.and_more else plain_text(one)


def plain_text(one: Judged | Finding) -> str:
    """The verdict; `not measured in full` where some of the cases gave a number and others failed."""
    found = one.findings if isinstance(one, Judged) else (one,)
    in_part = one.verdict is Verdict.NOT_MEASURED and any(each.value is not None for each in found)
    return f"{one.verdict} in full" if in_part else str(one.verdict)


def verdict_cell(one: Judged | Finding) -> Inline:
    """The verdict as a table shows it: where no driver was exchanged and it could lie there, that too."""
    mark = Mark(verdict_text(one), one.verdict)
    told = one.driver_kept and one.verdict is not Verdict.NOT_MEASURED
    return (mark, f": {BY_THE_TOOLKIT}") if told else mark


def measured(found: Verdicts) -> list[Judged]:
    """The claims of which something was measured; those that are looked up are facts."""
    return [one for one in found.claims if _has_told(one) and one.claim.kind is not Kind.FACT]


def claimed(one: Judged) -> str:
    """What is claimed in words, and how far off still counts."""
    return bound_text(one.claim) + tolerance_text(one.claim)


def place(finding: Finding) -> str:
    """Where a finding was made: the campaign, and what `inside` says."""
    return ", ".join(part for part in (finding.campaign, inside(finding)) if part)


def inside(finding: Finding) -> str:
    """Where in its campaign a finding was made: the stack of a value, which has no sides; the group."""
    stack = finding.baseline if finding.baseline == finding.candidate else ""
    return ", ".join(part for part in (stack, finding.group) if part)


def sections(found: Verdicts) -> list[Section]:
    """In short; measured, and what stands behind it; looked up; not measured; left out."""
    ours = measured(found)
    facts = [one for one in found.claims if one.findings and one.claim.kind is Kind.FACT]
    absent = [one for one in found.claims if not _has_told(one)]
    made = [Section("In short", (Bullets(tuple(_short(ours, facts, absent))),))]
    if ours:
        table = Table(_HEAD, tuple(row for one in ours for row in _rows(one)))
        made += [Section("Measured", (table,)), *map(_behind, ours)]
    if facts:
        made.append(Section("Looked up", (Table(_RECORD_HEAD, tuple(map(_fact, facts))),)))
    if absent:
        made.append(Section("Not measured", (Table(_ABSENT_HEAD, tuple(map(_absent, absent))),)))
    return made + left_out("Left out", found.left_out)


def _has_told(one: Judged) -> bool:
    """Whether anything was found of a claim; a finding of which every case failed is not."""
    return any(each.verdict is not Verdict.NOT_MEASURED or each.value is not None for each in one.findings)


def _short(measured: Sequence[Judged], facts: Sequence[Judged], absent: Sequence[Judged]) -> Iterable[str]:
    for name, own in (("measured", measured), ("looked up", facts)):
        told = tally(own)
        yield f"{len(own)} {name}" + (f": {told}" if told else "")
    yield f"{len(absent)} not measured"


def tally(own: Sequence[Judged]) -> str:
    """How many have each verdict: `1 supported, 2 refuted`."""
    ordered = sorted(own, key=lambda one: list(Verdict).index(one.verdict))
    return ", ".join(f"{n} {text}" for text, n in Counter(map(plain_text, ordered)).items())


def show(found: Verdicts, form: str) -> None:
    """Print them as `table`, `json` or `md`."""
    terminal.show_as(form, title(found), sections(found), lambda: json(found))


def json(found: Verdicts) -> str:
    """All claims, findings and counts as strict JSON."""
    document = dataclasses.asdict(found) | {"counts": found.counts()}
    for one, judged in zip(document["claims"], found.claims, strict=True):
        one["claim"]["bound"] = bound_text(judged.claim)
        for finding, known in zip(one["findings"], judged.findings, strict=True):
            finding["where"] = known.where
    return seals.document(document)


def _rows(one: Judged) -> Iterable[tuple[Inline, ...]]:
    """The claim's own row; where it has several findings, one more for each."""
    head = one.claim.id, claimed(one), verdict_cell(one)
    if len(one.findings) == 1:
        yield (*head, *_numbers(one.findings[0]), one.reason)
        return
    yield (*head, "", "", "", one.reason)
    for finding in one.findings:
        verdict = Mark(verdict_text(finding), finding.verdict) if one.driver_kept else verdict_cell(finding)
        yield ("", place(finding), verdict, *_numbers(finding), finding.reason)


def _numbers(finding: Finding) -> tuple[str, str, str]:
    cases = str(finding.n_cases) + (f" (+{finding.left_out} too few)" if finding.left_out else "")
    return finding.shown, cases, str(finding.n)


def _behind(one: Judged) -> Section:
    """What no verdict goes without: sentence, sides, machine, confounders, what would settle it."""
    lines: list[Inline] = [f"{one.claim.text} ({one.claim.source}: {one.claim.figure or 'no figure'})"]
    where = dict.fromkeys(f"{each.campaign}: {each.stacks}; {each.where}" for each in one.findings)
    lines += where
    for finding in one.findings:
        name = f"{place(finding)}: " if len(one.findings) > 1 else ""
        of = (f"{name}the value is that of ", Code(finding.of)) if finding.n_cases > 1 else None
        lines += [of] if of else []
        lines += [f"{name}{detail}" for detail in finding.details]
    lines += dict.fromkeys(note for finding in one.findings for note in finding.confounders)
    elsewhere = one.claim.lives_in not in ("", "driver")  # of a driver the findings tell it
    lines += [f"where it would be decided: {one.claim.lives_in}"] if elsewhere else []
    lines += [one.claim.note] if one.claim.note else []
    lines += [f"to settle it: {one.takes}"] if one.takes else []
    lines += [f"public record: {one.claim.record}"] if one.claim.record else []
    return Section(f"{one.claim.id}: {letters(verdict_cell(one))}", (Bullets(tuple(lines)),))


def _fact(one: Judged) -> tuple[Inline, ...]:
    return (one.claim.id, one.claim.text, str(one.verdict), one.reason)


def _absent(one: Judged) -> tuple[Inline, ...]:
    bound = bound_text(one.claim)
    says = f"{one.claim.text} ({bound})" if bound else one.claim.text
    takes = f"{one.reason}: {one.takes}" if one.findings else one.takes or one.reason
    return (one.claim.id, says, takes)


def objection(found: Verdicts, own_file: bool) -> str:
    """What --strict objects to, in words; "" where nothing.

    A claim is refuted, nothing was judged at all, or a claim of a file that was named is not measured.
    """
    refuted, absent = (
        [one.claim.id for one in found.claims if one.verdict is verdict]
        for verdict in (Verdict.REFUTED, Verdict.NOT_MEASURED)
    )
    if refuted:
        return f"refuted: {names_text(refuted, _NAMES)}"
    if len(absent) == len(found.claims):
        return "no claim was judged"
    return f"not measured: {names_text(absent, _NAMES)}" if absent and own_file else ""

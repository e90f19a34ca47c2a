"""A campaign: rounds of stacks, one process a stack and round; the same command goes on with it.

This process only starts others and reads their journals: it never touches CUDA. A finished round
is one file, rounds/<round>.json, written once every arm has all its cases.
"""

import json
import signal
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from bench_lib import next_step
from bench_lib.campaigns import campaign_containers, merge, process_end, schedule, watch
from bench_lib.campaigns.campaign_cooling import Cooling
from bench_lib.campaigns.campaign_rounds import (
    Stopped,
    expected,
    finished_rounds,
    machine,
    next_index,
    records,
    rounds_text,
)
from bench_lib.campaigns.campaign_sharing import Sharing
from bench_lib.campaigns.doubted import doubted
from bench_lib.campaigns.plan import Plan, write_json
from bench_lib.campaigns.process_end import ProcessEnd
from bench_lib.campaigns.progress import Progress
from bench_lib.errors import DataError, Refused, UsageError
from bench_lib.faults.secrets import hide_in, secrets
from bench_lib.journaling import held, journal
from bench_lib.journaling.journal_rows import Row
from bench_lib.journaling.readable import rows
from bench_lib.layout import CampaignFolder
from bench_lib.model import BAD, FEWEST, Status, nothing_measured
from bench_lib.processes.ended import how_it_ended
from bench_lib.stacking import families, stacks, stock

__all__ = ["Plan", "finished_rounds", "run"]

_MAX_DEATHS = 3  # of processes that finished no case, in one round and arm
_INTERRUPT_SECONDS = 30.0  # for a measuring process to write its files after Ctrl-C

_NOTHING = "these rounds hold no times: mend that, and measure into another --campaign"


@dataclass(frozen=True)
class _Round:
    id: str
    number: int  # from 1, counting finished rounds
    index: int  # from 0, in the campaign's order of rounds
    seed: int  # of the case order
    started_at: float


@dataclass
class _Campaign:
    """The state of one `run`."""

    plan: Plan
    progress: Progress
    sharing: Sharing
    cooling: Cooling
    scratch: Path
    bad: dict[str, int] = field(default_factory=dict)  # what failed -> how often
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)  # status and reason -> cases

    @property
    def folder(self) -> CampaignFolder:
        return self.plan.folder


def run(plan: Plan, console: Console) -> int:
    """Measure until the folder holds `plan.rounds` finished rounds; the exit code.

    0; 1 a case failed (it is recorded, the others ran), nothing was measured or processes kept dying; 2
    interrupted, or no case is selected; 4 measuring was refused. Raises UsageError when the plan is wrong
    or differs from the stored one, Unavailable when a stack cannot be had.
    """
    sharing = Sharing(plan, lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True))
    cooling = Cooling(plan.folder, plan.cool_down_c, plan.cool_down_seconds)
    _have_libraries(plan, console)
    with plan.folder.lock(), watch.ends_as_interrupts():
        seed = sharing.settle()
        merge.finish_dead(plan.folder, console.print)
        finished = records(plan.folder)
        missing = plan.rounds - len(finished)
        if said := expected(finished, missing):
            console.print(said, markup=False, highlight=False, soft_wrap=True)
        with (
            Progress(console, max(missing, 0) * len(plan.arms)) as progress,
            tempfile.TemporaryDirectory(prefix="cuda-gains-") as scratch,
        ):
            campaign = _Campaign(plan, progress, sharing, cooling, Path(scratch))
            _note_earlier(campaign)
            return _measure_rounds(campaign, seed)


def _note_earlier(campaign: _Campaign) -> None:
    """How cases ended in the rounds that are finished already: the same command says it again."""
    runs = {run for record in records(campaign.folder) for run in record["runs"]}
    names = ["run_id", "arm", "case_id", "status", "reason"]
    seen: set[tuple[str, str]] = set()  # a merge that was stopped leaves a row in two files
    for case in rows(campaign.folder.parquet_files("cases"), names) if runs else []:
        key = (case["run_id"], case["case_id"])
        if case["run_id"] in runs and key not in seen:
            seen.add(key)
            _note_end(campaign, case["arm"], case)


def _have_libraries(plan: Plan, console: Console) -> None:
    """Fetch what the stacks need, unless a folder of wheels says that there is no index."""
    stock.require_wheels(plan.entries(), plan.wheels)
    for entry in plan.entries():
        stock.have(entry, plan.wheels, console.print, plan.stacks_file)
    campaign_containers.require_gpus(plan)


def _measure_rounds(campaign: _Campaign, seed: int) -> int:
    plan, say, code = campaign.plan, campaign.progress.say, 0
    try:
        while (finished := _finished(campaign)) < plan.rounds:
            index = next_index(records(campaign.folder))
            case_seed = schedule.case_seed(seed, index)
            this = _Round(uuid.uuid4().hex, finished + 1, index, case_seed, time.time())
            _measure_round(campaign, this, schedule.order(list(plan.arms), seed, index))
    except KeyboardInterrupt:
        say(f"interrupted; go on with: {next_step.typed(plan.command)}")
        code = 2
    except (Refused, UsageError, Stopped) as error:
        say(str(error))
        code = 4 if isinstance(error, Refused) else 2 if isinstance(error, UsageError) else 1
    for what, times in campaign.bad.items():
        say(f"{what}{f' ({times} times)' if times > 1 else ''}")
    put = campaign.sharing.end()
    say(rounds_text(campaign.folder, plan.rounds, campaign.sharing.where))
    if nothing := nothing_measured(campaign.ends):
        say(f"{nothing}; {_NOTHING}")
    elif not code:
        say(_next(campaign))
    return code or (1 if campaign.bad or nothing or not put else 0)


def _next(campaign: _Campaign) -> str:
    """What to type now."""
    plan, finished = campaign.plan, records(campaign.folder)
    runs = {run for record in finished for run in record["runs"]}  # others lie beside them in `local`
    cases = rows(campaign.folder.parquet_files("cases"), ["run_id", "family", "params", "status"])
    ok = [case for case in cases if case["status"] == Status.OK and case["run_id"] in runs]
    measured = [(case["family"], json.loads(case["params"])) for case in ok]
    more = "" if len(finished) >= FEWEST else next_step.typed(replace(plan, rounds=FEWEST).command)
    return next_step.line(plan.stacks, plan.campaign, str(plan.address), measured, more)


def _finished(campaign: _Campaign) -> int:
    """How many rounds are finished; before another one, those that others have measured meanwhile too."""
    if (finished := len(finished_rounds(campaign.folder))) >= campaign.plan.rounds:
        return finished
    campaign.sharing.refresh()
    return len(finished_rounds(campaign.folder))


def _measure_round(campaign: _Campaign, this: _Round, order: Sequence[str]) -> None:
    runs = [
        run_id for position, arm in enumerate(order) for run_id in _measure_arm(campaign, this, arm, position)
    ]
    record = {"round": this.id, "index": this.index, "order": list(order), "case_seed": this.seed}
    record |= {"runs": runs, **machine(campaign.folder, this.id, runs), **campaign.cooling.of_round()}
    record |= {"started_at": this.started_at, "ended_at": time.time()}
    write_json(campaign.folder.path / "rounds" / f"{this.id}.json", record)
    campaign.sharing.put()


def _measure_arm(campaign: _Campaign, this: _Round, arm: str, position: int) -> list[str]:
    """All cases of an arm, in as many processes as it takes; the ids of their runs."""
    campaign.progress.begin(f"round {this.number} of {campaign.plan.rounds}, {arm}")
    runs: list[str] = []
    done: set[str] = set()  # node ids
    before = campaign.ends.copy()
    deaths = 0
    while True:
        process = _measure_process(campaign, this, arm, position, done)
        runs += [process.run_id] if process.cases else []
        new = {case["nodeid"] for case in process.cases} - done
        done |= new
        for case in process.cases:
            _note_end(campaign, arm, case)
        if process.exit_code == process_end.REFUSED:
            raise Refused(f"measuring was refused:\n{watch.last_lines(process.log)}")
        if process.exit_code == process_end.NOTHING_SELECTED and not done:
            raise UsageError(f"no case is selected for {arm}:\n{watch.last_lines(process.log)}")
        if process.exit_code == process_end.NOT_COLLECTED and not process.cases:
            raise UsageError(f"the cases of {arm} were not collected:\n{watch.last_lines(process.log)}")
        if process.exit_code in (*process_end.ENDED, process_end.NOTHING_SELECTED):
            break
        deaths = 0 if new else deaths + 1
        if deaths == _MAX_DEATHS:
            raise Stopped(f"{arm}: {deaths} processes died without a case:\n{watch.last_lines(process.log)}")
    campaign.progress.end(len(done), campaign.ends - before, doubted(campaign.folder, runs))
    return runs


def _note_end(campaign: _Campaign, arm: str, case: Row) -> None:
    campaign.ends[case["status"], case["reason"] or ""] += 1
    if case["status"] in BAD:
        what = f"{case['status']}: {case['case_id']} in {arm}: {case['reason']}"
        campaign.bad[what] = campaign.bad.get(what, 0) + 1


def _measure_process(
    campaign: _Campaign, this: _Round, arm: str, position: int, done: set[str]
) -> ProcessEnd:
    """Run one process to its end, whatever that is; its journal is Parquet afterwards."""
    plan, folder, run_id = campaign.plan, campaign.folder, uuid.uuid4().hex
    held.require_same_code(folder, families.files(plan.places, plan.families), planned=True)
    log = folder.path / "logs" / f"{run_id}.log"
    task = {"run_id": run_id, "round": this.id, "arm": arm, "position": position, "seed": this.seed}
    task |= {"skip": sorted(done), "quantities": campaign.cooling.wait(run_id, campaign.progress)}
    write_json(campaign.scratch / "task.json", task)
    entry = stacks.stack(plan.arms[arm], plan.stacks_file)
    started = campaign_containers.process(plan, entry, run_id, campaign.scratch / "task.json")
    child = watch.start(started.command, started.variables, log)
    watchdog = watch.Watchdog(folder.journal(run_id), plan.watchdog_seconds, plan.idle_seconds, log)
    try:
        hung = watch.wait(child, watchdog, lambda n: campaign.progress.cases(len(done) + n))
    except BaseException:  # Ctrl-C before all: the process writes what it has, then ends
        try:
            campaign.progress.say("ending, which keeps what was measured; Ctrl-C again ends at once")
        finally:  # nobody may be there to hear it
            watch.stop(child, signal.SIGINT, _INTERRUPT_SECONDS)
            _keep(campaign, run_id, None, "")
        raise
    finally:
        started.end()
        hide_in(log, secrets(started.variables))
    status = Status.HUNG if hung else Status.CRASHED
    middle = " in the middle of its cases" if child.returncode >= 0 else ""
    _keep(campaign, run_id, status, hung or f"the process {how_it_ended(child.returncode)}{middle}")
    process = process_end.read(folder, run_id, child.returncode, log)
    if process.exit_code == 0:
        log.unlink()
    campaign.sharing.put()
    return process


def _keep(campaign: _Campaign, run_id: str, status: Status | None, reason: str) -> None:
    """Turn the journal of an ended process into Parquet, unless the process did so itself.

    A case it died in gets `status`; without one (Ctrl-C) that case counts as not begun.
    """
    folder, say = campaign.folder, campaign.progress.say
    path = folder.journal(run_id)
    if not path.exists():
        return
    try:
        if status is not None and b"\n" in path.read_bytes():
            journal.append_status(path, status, reason)
        merge.keep(path, folder)
    except DataError as error:  # it stays, and the cases in it are measured again
        say(f"left where it is: {error}")

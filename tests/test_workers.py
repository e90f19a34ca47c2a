"""Processes that time or profile convolutions, on the CPU: answers, limits, deaths, and no mixing."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest

from bench_lib.convolution.conv_worker import Chosen, First, Key, Steady, Walk, timing_worker
from bench_lib.convolution.kernel_names import Ran, profiling_worker
from bench_lib.convolution.precision import Precision
from bench_lib.convolution.shapes import WALK
from bench_lib.convolution.tuned_workers import TunedWorkers, payback_batches
from bench_lib.convolution.tuning import Tuning
from bench_lib.errors import CaseTimeout, CudaError, CudaGainsError, NotApplicable, UsageError, WrongResult
from bench_lib.model import Policy, Series
from bench_lib.processes.worker import Worker, begin_server
from bench_lib.running.outcomes import given

torch = pytest.importorskip("torch")

KEY = Key("5x5-3-13-112", 1, Precision.FP32, "nchw", "forward", "cpu")
SHORT = Policy(
    "short", samples=3, budget_seconds=1.0, min_samples=2, warmup_seconds=0.0, max_warmup_seconds=0.05
)
SECONDS = 60.0


def made_to_order(greeting):
    """A handler that does what it is told; made in the worker."""

    def handle(request):
        what, value = request
        if what == "raise":
            raise value
        if what == "cuda":
            raise CudaError("cuLaunchKernel", value, "CUDA_ERROR")
        if what == "sleep":
            time.sleep(value)
        if what == "die":
            os.kill(os.getpid(), value)
        return greeting, os.getpid(), value

    return handle


def broken():
    raise NotApplicable("this stack holds nothing")


@pytest.fixture
def worker():
    made = Worker(made_to_order, "hello")
    yield made
    made.close()


def test_one_process_answers_all_requests(worker):
    first, second = worker.ask(("say", 1), SECONDS), worker.ask(("say", 2), SECONDS)
    assert first[0] == "hello"
    assert first[1] == second[1] != os.getpid()
    assert (first[2], second[2]) == (1, 2)


def test_a_request_over_its_limit_is_a_timeout_and_the_next_gets_a_fresh_process(worker):
    pid = worker.ask(("say", 0), SECONDS)[1]
    begin = time.perf_counter()
    with pytest.raises(CaseTimeout, match=r"passed its budget of 0\.3 s"):
        worker.ask(("sleep", 60), 0.3)
    assert time.perf_counter() - begin < 50  # it would sleep for 60
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert worker.ask(("say", 0), SECONDS)[1] != pid


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_death_is_told_and_the_next_gets_a_fresh_process(worker, number):
    with pytest.raises(CudaGainsError, match=f"ended with -{int(number)} without an answer"):
        worker.ask(("die", number), SECONDS)
    assert worker.ask(("say", 3), SECONDS)[2] == 3


@pytest.mark.parametrize("error", [WrongResult("off"), NotApplicable("never"), UsageError("how")])
def test_errors_of_ours_keep_their_kind(worker, error):
    with pytest.raises(type(error), match=str(error)):
        worker.ask(("raise", error), SECONDS)


def test_a_wrong_result_leaves_the_process_and_a_failure_does_not(worker):
    pid = worker.ask(("say", 0), SECONDS)[1]
    with pytest.raises(WrongResult):
        worker.ask(("raise", WrongResult("off")), SECONDS)
    assert worker.ask(("say", 0), SECONDS)[1] == pid
    with pytest.raises(CudaGainsError, match="ZeroDivisionError: by nought"):
        worker.ask(("raise", ZeroDivisionError("by nought")), SECONDS)
    assert worker.ask(("say", 0), SECONDS)[1] != pid


def test_a_cuda_error_of_a_worker_does_not_condemn_the_session(worker):
    with pytest.raises(CudaGainsError, match="cuLaunchKernel failed with CUDA error 700") as caught:
        worker.ask(("cuda", 700), SECONDS)
    assert not isinstance(caught.value, CudaError)
    with pytest.raises(MemoryError):
        worker.ask(("cuda", CudaError.OUT_OF_MEMORY), SECONDS)


def test_a_handler_that_cannot_be_made_says_why():
    with pytest.raises(NotApplicable, match="this stack holds nothing"):
        Worker(broken).ask("anything", SECONDS)


def slow_to_make():
    begin = time.monotonic()
    time.sleep(1)
    made = begin, time.monotonic()
    return lambda request: made


def dying_while_made():
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_come_up_side_by_side():
    workers = [Worker(slow_to_make) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.up()
        worker.up()
    spans = [worker.ask("when were you made?", SECONDS) for worker in workers]
    assert max(begin for begin, _ in spans) < min(end for _, end in spans)
    for worker in workers:
        worker.close()


def environment():
    return os.environ.get


def test_a_worker_has_the_environment_of_now_though_its_server_began_before(monkeypatch):
    begin_server()
    monkeypatch.setenv("SAID_AFTERWARDS", "yes")
    told = Worker(environment)
    assert told.ask("SAID_AFTERWARDS", SECONDS) == "yes"
    told.close()


def test_one_that_dies_while_it_is_made_says_so():
    with pytest.raises(CudaGainsError, match="ended with -9 without an answer"):
        Worker(dying_while_made).ask("anything", SECONDS)


@pytest.fixture(scope="module")
def tuned():
    made = TunedWorkers("cpu", SHORT)
    yield made
    made.close()


def test_steady_state_comes_checked_with_its_facts(tuned):
    chosen, series = tuned.steady(Tuning.ON, KEY, SECONDS)
    assert chosen.seconds > 0
    assert 2 <= len(series.seconds) <= 3
    assert series.work.flop == 2 * 13 * 3 * 25 * 112 * 112
    assert 0 < series.quantities["relative_error"] < 1e-4
    assert series.facts["precision.convolution"] == "ieee"
    assert series.facts["checksum"]


def test_processes_are_prepared_for_what_will_be_asked():
    def children():
        return {child.pid for child in multiprocessing.active_children()}

    before = children()
    tuned = TunedWorkers("cpu", SHORT)
    tuned.prepare([Tuning.OFF, Tuning.ON], profiling=1)
    prepared = children() - before
    assert len(prepared) == 4
    tuned.kernels(Tuning.ON, KEY, 1, SECONDS)
    tuned.steady(Tuning.OFF, KEY, SECONDS)
    assert children() - before == prepared
    tuned.close()


def both_at_once(folder, number):
    """A handler that waits until its like works as well: whether it came; made in the worker."""

    def handle(_request):
        (folder / str(number)).touch()
        end = time.monotonic() + SECONDS / 2
        while len(list(folder.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        return number, len(list(folder.iterdir()))

    return handle


def test_what_was_sent_to_several_is_worked_on_side_by_side_and_they_end_so(tmp_path):
    workers = [Worker(both_at_once, tmp_path, n) for n in range(2)]
    for worker in workers:
        worker.send("now")
    assert [worker.answer(SECONDS) for worker in workers] == [(0, 2), (1, 2)]
    for worker in workers:
        worker.end()
    for worker in workers:
        worker.close()
    assert workers[0].ask("now", SECONDS) == (0, 2)  # a fresh process
    workers[0].close()


class Told:
    """A worker that notes what is done with it, and answers what it was told."""

    def __init__(self, name, answer, log):
        self.name, self.told, self.log = name, answer, log

    def up(self):
        self.log.append(f"up {self.name}")

    def send(self, key):
        self.log.append(f"send {self.name}")

    def answer(self, seconds):
        self.log.append(f"answer {self.name}")
        return given(self.told)

    def ask(self, key, seconds):
        self.send(key)
        return self.answer(seconds)


def asked_for_kernels(monkeypatch, tuning, *answers):
    log = []
    told = [Told(name, answer, log) for name, answer in zip("ab", answers, strict=True)]
    tuned = TunedWorkers("cpu", SHORT)
    monkeypatch.setattr(tuned, "_worker", lambda _make, _tuning, number: told[number])
    try:
        return log, tuned.kernels(tuning, KEY, 2, SECONDS)
    except CudaGainsError as error:
        return log, error


SIDE_BY_SIDE = ["up a", "up b", "send a", "send b", "answer a", "answer b"]


@pytest.mark.parametrize("tuning", [Tuning.OFF, Tuning.DETERMINISTIC])
def test_two_that_try_nothing_are_asked_for_kernels_side_by_side(monkeypatch, tuning):
    one, other = Ran(("one",), ()), Ran(("another",), ())
    log, facts = asked_for_kernels(monkeypatch, tuning, one, other)
    assert log == SIDE_BY_SIDE
    assert (facts["kernels"], facts["kernels.repeat"]) == ("one", "another")


@pytest.mark.parametrize("tuning", [Tuning.ON, Tuning.EXHAUSTIVE])
def test_two_that_choose_by_times_have_the_gpu_one_after_the_other(monkeypatch, tuning):
    one = Ran(("one",), ())
    log, facts = asked_for_kernels(monkeypatch, tuning, one, one)
    assert log == ["send a", "answer a", "send b", "answer b"]
    assert facts["kernels.repeat"] == "same"


def test_one_that_fails_leaves_no_answer_of_the_other_behind(monkeypatch):
    log, error = asked_for_kernels(monkeypatch, Tuning.OFF, CudaGainsError("it failed"), Ran(("one",), ()))
    assert log == SIDE_BY_SIDE
    assert str(error) == "it failed"


def test_a_question_is_asked_once(tuned):
    assert tuned.steady(Tuning.ON, KEY, SECONDS) is tuned.steady(Tuning.ON, KEY, SECONDS)
    assert tuned.steady(Tuning.OFF, KEY, SECONDS) is not tuned.steady(Tuning.ON, KEY, SECONDS)


def test_so_is_one_that_fails(tuned):
    slow = Key("11x11-64-64-28", 64, Precision.FP32, "nchw", "training", "cpu")
    for seconds in (0.2, SECONDS):  # the second time it is known, and no second minute is lost
        with pytest.raises(CaseTimeout, match=r"budget of 0\.2 s"):
            tuned.steady(Tuning.ON, slow, seconds)
    assert tuned.steady(Tuning.ON, replace(KEY, batch=2), SECONDS)


def test_the_first_call_and_the_walk_have_processes_of_their_own(tuned):
    assert tuned.first(Tuning.ON, KEY, SECONDS).seconds > 0
    keys = [replace(KEY, shape=name) for name in list(WALK)[:3]]
    first, later = tuned.walk(Tuning.ON, keys, SECONDS)
    assert first.seconds > 0
    assert len(later.seconds) >= 2


def test_the_same_setting_asked_in_two_processes_runs_the_same(tuned):
    facts = tuned.kernels(Tuning.OFF, replace(KEY, direction="training"), 2, SECONDS)
    assert facts["kernels.repeat"] == "same"
    assert "aten::mkldnn_convolution" in facts["operators"]
    assert "aten::convolution_backward" in facts["operators"]
    assert facts["kernels"] == "unknown: the profiler saw none"  # the CPU has no kernels


@pytest.mark.parametrize("request_", [First(KEY), Steady(KEY, SHORT), Walk((KEY,), SHORT)])
def test_a_timing_process_never_profiles(monkeypatch, request_):
    def refuse(*_args, **_options):
        raise AssertionError("profiled")

    monkeypatch.setattr(torch.profiler, "profile", refuse)
    monkeypatch.setattr(torch.autograd.profiler, "profile", refuse)
    assert timing_worker(Tuning.OFF, "cpu")(request_)
    with pytest.raises(AssertionError, match="profiled"):  # the process that is asked for names does
        profiling_worker(Tuning.OFF, "cpu")(KEY)


def test_a_profiling_worker_has_convolved_before_it_is_asked(monkeypatch):
    convolved, conv2d = [], torch.nn.functional.conv2d
    monkeypatch.setattr(torch.nn.functional, "conv2d", lambda *of: convolved.append(of) or conv2d(*of))
    profiling_worker(Tuning.OFF, "cpu")
    ((x, w),) = convolved
    assert (x.shape, x.device.type) == (w.shape, w.device.type) == ((1, 1, 3, 3), "cpu")


def test_facts_of_kernels_are_names_in_order():
    facts = Ran(("sm90_xmma_fprop", "nchwToNhwc"), ("aten::cudnn_convolution",)).facts()
    assert facts == {"kernels": "sm90_xmma_fprop; nchwToNhwc", "operators": "aten::cudnn_convolution"}


def answer(first: float, later: float) -> tuple[Chosen, Series]:
    return Chosen(first), Series((later, later, 9.0))


@pytest.mark.parametrize(
    ("off", "on", "batches"),
    [
        (answer(1.0, 0.8), answer(3.0, 0.4), 20.0),  # 2 s more at first, 0.1 s less for each of 4 batches
        (answer(1.0, 0.8), answer(0.9, 0.4), 0.0),
        (answer(1.0, 0.8), answer(3.0, 0.8), None),
        (answer(1.0, 0.8), answer(3.0, 0.9), None),
    ],
)
def test_payback(off, on, batches):
    assert payback_batches(off, on, 4) == (batches if batches is None else pytest.approx(batches))

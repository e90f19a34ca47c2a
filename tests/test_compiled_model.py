"""torch.compile's silent ways out are errors; dynamo is the real one, on models of one layer."""

import contextlib
import warnings

import pytest

from bench_lib.compiling.compiled_model import (
    EXECUTIONS,
    Counts,
    check_compiled,
    compiled,
    count,
    forget,
    no_recompiles,
)
from bench_lib.errors import CudaGainsError, NotApplicable

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def fresh():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
        forget(torch)


def traced(model, **options):
    """Compiled as the suite does it, but by the backend that runs the graph as it is."""
    return torch.compile(model, fullgraph=True, dynamic=False, backend="eager", **options)


class Talkative(torch.nn.Module):
    def forward(self, x):
        print("a graph cannot do this")
        return x + 1


def test_eager_is_the_model_itself_and_so_is_its_null():
    model = torch.nn.Linear(2, 2)
    assert compiled(torch, model, "eager", "cpu") is model
    assert compiled(torch, model, "eager#2", "cpu") is model


def test_executions_become_the_modes_of_torch(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda model, **options: asked.append(options))
    for execution in EXECUTIONS:
        compiled(torch, None, execution, "cuda")
    assert [one["mode"] for one in asked] == ["default", "reduce-overhead", "max-autotune"]
    assert all(one["fullgraph"] is True and one["dynamic"] is False for one in asked)


def test_cuda_graphs_are_no_case_of_the_cpu():
    with pytest.raises(NotApplicable, match="CUDA graphs"):
        compiled(torch, torch.nn.Linear(2, 2), "compiled-reduce-overhead", "cpu")


def test_a_graph_break_is_an_error():
    model = compiled(torch, Talkative(), "compiled", "cpu")
    with pytest.raises(RuntimeError, match="print"):
        model(torch.ones(2))


def test_a_recompilation_is_an_error_and_says_why():
    model = traced(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4))
    with no_recompiles(torch):
        model(torch.ones(2, 4))
    with (
        pytest.raises(CudaGainsError, match=r"compiled again.*size mismatch") as caught,
        no_recompiles(torch),
    ):
        model(torch.ones(3, 4))
    assert "\n" not in str(caught.value)


def test_switching_the_mode_of_a_compiled_module_is_a_recompilation():
    """The trap that made a gain of 1.44x look like 1.04x: it cannot pass unseen."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
    model = traced(module.train())
    model(torch.ones(2, 4))
    module.eval()
    with pytest.raises(CudaGainsError, match="compiled again"), no_recompiles(torch):
        model(torch.ones(2, 4))


def test_other_errors_pass_unchanged():
    with pytest.raises(RuntimeError, match=r"^something else$"), no_recompiles(torch):
        raise RuntimeError("something else")


def test_without_a_stance_dynamo_itself_is_told(monkeypatch):
    """torch before 2.6 has no set_stance."""
    monkeypatch.delattr(torch.compiler, "set_stance")
    model = traced(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4))
    with pytest.raises(CudaGainsError, match="compiled again"), no_recompiles(torch):
        model(torch.ones(3, 4))


def test_a_torch_that_cannot_refuse_is_counted(monkeypatch):
    monkeypatch.setattr("bench_lib.compiling.compiled_model._stance", lambda torch: contextlib.nullcontext())
    graphs = iter([3, 4])
    monkeypatch.setattr("bench_lib.compiling.compiled_model.count", lambda torch: Counts(graphs=next(graphs)))
    with pytest.raises(CudaGainsError, match="1 more graphs"), no_recompiles(torch):
        pass


def test_forgetting_makes_room_for_another_batch():
    module = torch.nn.Linear(4, 4)
    traced(module)(torch.ones(2, 4))
    forget(torch)
    traced(module)(torch.ones(3, 4))


def test_what_was_done_in_between_is_counted():
    before = Counts(graphs=1, cache_hits=2, cache_misses=3, cudagraph_skips=4)
    assert Counts(2, 4, 6, 8).since(before) == Counts(1, 2, 3, 4)
    assert count(torch).since(count(torch)) == Counts()


def test_one_graph_is_what_a_compiled_arm_is():
    check_compiled(Counts(graphs=1), "compiled")
    check_compiled(Counts(), "eager")
    with pytest.raises(CudaGainsError, match=r"0 graphs.*TORCH_COMPILE_DISABLE"):
        check_compiled(Counts(), "compiled")
    with pytest.raises(CudaGainsError, match="2 graphs"):
        check_compiled(Counts(graphs=2), "compiled")


def test_skipped_cuda_graphs_are_an_error_where_they_are_the_point():
    check_compiled(Counts(graphs=1, cudagraph_skips=1), "compiled")
    with pytest.raises(CudaGainsError, match="skipped its CUDA graphs 1 times"):
        check_compiled(Counts(graphs=1, cudagraph_skips=1), "compiled-reduce-overhead")

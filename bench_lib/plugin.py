"""The pytest plugin: the options, the markers and the fixtures. The hooks are in `bench_lib.running.hooks`.

It is loaded in every pytest of the environment (entry point `pytest11`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.layout import LOCAL
from bench_lib.running import selection
from bench_lib.running.choice import NAME
from bench_lib.running.hooks import Hooks
from bench_lib.running.misnamed import Misnamed
from bench_lib.running.target import AUTO, CPU, CUDA
from bench_lib.stacking import families

if TYPE_CHECKING:
    from bench_lib.device.gpu import Gpu
    from bench_lib.model import Policy
    from bench_lib.ranks.world import World
    from bench_lib.running.bench import Bench
    from bench_lib.stacking.stacks import StackEntry


pytest_plugins = ["bench_lib.running.fixtures"]  # what the cases of any folder can ask for


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in one group of `pytest --help`."""
    group = parser.getgroup(NAME, "cuda-gains: what a CUDA upgrade did, measured")
    add = group.addoption
    devices = (AUTO, CUDA, CPU)
    add("--device", choices=devices, default=AUTO, help="What to measure; auto: a GPU if there is one.")
    add("--require-gpu", action="store_true", help="Refuse to measure without a GPU (exit code 4).")
    add(
        "--family",
        action="append",
        metavar="NAME",
        help="Only this family; repeat it for more. mps runs only so.",
    )
    add("--quick", action="store_true", help="15 samples a case, core cases only.")
    add("--full", action="store_true", help="Also the grids that families leave out.")
    add("--campaign", metavar="NAME", default=LOCAL, help="The run's campaign (default: %(default)s).")
    add("--stack", metavar="NAME", default="here", help="The stack to measure (default: %(default)s).")
    results = "All campaigns: a folder, or a place as s3://bucket/prefix (default: results of the project)."
    add("--results", metavar="DIR|URL", help=results)
    add("--wheels", metavar="DIR", type=Path, help="Wheels of runtimes, for a machine without an index.")
    soak = "Also soaks: the same work for so many minutes, to see what grows."
    add("--soak", metavar="MINUTES", type=float, default=0.0, help=soak)
    ranks = "Ranks of a collective, one a GPU; all: every GPU, two ranks on the CPU (default: %(default)s)."
    add("--ranks", metavar="N|all", default="all", help=ranks)
    nccl = "A libnccl by path: allreduce calls the first one, nccl_ladder all; repeat it for more."
    add("--nccl", metavar="NAME=PATH", action="append", default=[], help=nccl)
    nvtx = "An NVTX range around every case, for Nsight Systems; measuring under a profiler is then allowed."
    add("--nvtx", action="store_true", help=nvtx)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers, and make the state of this session."""
    for line in selection.MARKERS:
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(Hooks(config), NAME)
    config.pluginmanager.register(Misnamed())
    _collect_ours(config)


def _collect_ours(config: pytest.Config) -> None:
    """Have pytest look for cases as the suite names them, where a project's own settings do not say so.

    Only where --family asks for some, or the command line names a folder or a file that holds some:
    `bench_*.py` of others stay theirs.
    """
    places = (Path(str(argument).partition("::")[0]) for argument in config.args)
    if config.getoption("family") or any(families.has_cases(place) for place in places):
        config.addinivalue_line("python_files", "bench_*.py")
        config.addinivalue_line("python_functions", "bench_*")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of families that are not asked for: collecting them costs a second."""
    asked = tuple(config.getoption("family") or ())
    return (bool(asked) and families.is_other(collection_path, asked)) or None


def _hooks(request: pytest.FixtureRequest) -> Hooks:
    hooks = request.config.pluginmanager.get_plugin(NAME)
    assert isinstance(hooks, Hooks)
    return hooks


@pytest.fixture
def cuda_gains_case(request: pytest.FixtureRequest) -> "Bench":
    """What `bench` is made of; its name is how the plugin knows its own cases."""
    return _hooks(request).run.bench()


@pytest.fixture
def bench(cuda_gains_case: "Bench", benchmark: Any) -> Iterator["Bench"]:
    """Measure one case: `bench(fn)`, `bench.native(loop)` or `bench.record(series)`, once."""
    yield cuda_gains_case
    if not cuda_gains_case.shown:
        from bench_lib.running import bench_json

        bench_json.replay_nothing(benchmark)


@pytest.fixture(scope="session")
def cuda_gains_gpu(request: pytest.FixtureRequest) -> "Gpu":
    """What `gpu` is; its name is how the plugin knows which cases need one."""
    return _hooks(request).target.gpu()


@pytest.fixture(scope="session")
def gpu(cuda_gains_gpu: "Gpu") -> "Gpu":
    """The GPU that is measured, opened when it is first asked for; without one, skipped."""
    return cuda_gains_gpu


@pytest.fixture(scope="session")
def on_gpu(request: pytest.FixtureRequest) -> bool:
    """Whether this run measures a GPU (`bench.device` is cuda)."""
    return _hooks(request).target.device == CUDA


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> "StackEntry":
    """The stack that is measured."""
    return _hooks(request).run.stack


@pytest.fixture(scope="session")
def world(request: pytest.FixtureRequest) -> "World":
    """The ranks of this run: how many (--ranks), and where; under torchrun the world it made."""
    return _hooks(request).world


@pytest.fixture(scope="session")
def wheels(request: pytest.FixtureRequest) -> Path | None:
    """The folder of --wheels."""
    return _hooks(request).options.wheels


@pytest.fixture(scope="session")
def campaign_folder(request: pytest.FixtureRequest) -> Path:
    """The folder of the campaign, for what its runs share."""
    return _hooks(request).options.folder.path


@pytest.fixture(scope="session")
def bench_policy(request: pytest.FixtureRequest) -> "Policy":
    """How often and how long the cases of this run are measured."""
    return _hooks(request).options.policy


@pytest.fixture(scope="session")
def soak_minutes(request: pytest.FixtureRequest) -> float:
    """How long each soak takes: --soak."""
    return _hooks(request).options.soak_minutes


@pytest.fixture(scope="session")
def order_seed(request: pytest.FixtureRequest) -> int:
    """The seed for orders drawn inside a case: the same for all arms of a round."""
    return _hooks(request).run.order_seed

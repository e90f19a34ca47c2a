"""Fixtures for all tests: pytester, and a pretended CUDA that new processes run on."""

import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `from fake_cuda import ...`, whatever the import mode

import fake_cuda as fake
import torture
from plugin_runs import Runs


def pytest_configure(config: pytest.Config) -> None:
    """The `pytester` fixture (naming it in pytest_plugins here would break `pytest .`); warnings are errors.

    In tests only: a deprecation in a user's torch must not fail a benchmark.
    """
    config.addinivalue_line("filterwarnings", "error")
    # A pytest that a test runs is its own, and benchmarks refuse to run as a part of a parallel one.
    # A parallel run also says how wide its terminal is; what is printed here goes to none.
    for name in ("PYTEST_XDIST_WORKER", "COLUMNS", "LINES"):
        os.environ.pop(name, None)
    # As in an active environment: what a run says to type next begins with `cuda-gains`.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    # Started in the background of a script, tests that press Ctrl-C would start processes that ignore it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.import_plugin("pytester")
    config.pluginmanager.register(torture.Torture(), "torture")


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Pytest runs in a folder of their own, and their results."""
    return Runs(pytester, monkeypatch)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch's two threads that wait for each other by spinning are twenty times slower on a busy machine."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def fake_cuda_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the compiled libcuda and libcudarts."""
    if fake.compiler() is None:
        pytest.skip("no C compiler: the pretended CUDA cannot be built")
    built = tmp_path_factory.mktemp("fake_cuda")
    fake.build_driver(built)
    return built


@pytest.fixture
def fake_cuda(fake_cuda_built: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a process with one pretended GPU; add FAKE_CUDA_* for faults.

    LD_LIBRARY_PATH counts when a process starts, so use it with `subprocess.run(..., env=...)`, or
    set it with monkeypatch and call `pytester.runpytest_subprocess`.
    """
    (tmp_path / "locks").mkdir()
    return {**os.environ, **fake.environment(fake_cuda_built, tmp_path)}


@pytest.fixture(scope="session")
def fake_wheels(fake_cuda_built: Path) -> Path:
    """A folder with the wheels of the pretended runtimes 11.8, 12.4 and 13.0, for --wheels."""
    return fake.write_wheels(fake_cuda_built, fake_cuda_built / "wheels")


@pytest.fixture
def on_fake_gpu(fake_cuda: dict[str, str]) -> Callable[..., Any]:
    """Run a function in a new process on the pretended GPU: on_fake_gpu(function, *args, NAME="env").

    The function's source is sent, so it imports what it needs itself; arguments and result are
    plain values. An exception in it fails the test with its traceback.
    """

    def run(function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
        source = textwrap.dedent(inspect.getsource(function))
        call = f"import json\nprint(json.dumps({function.__name__}(*{arguments!r})))"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", f"{source}\n{call}"],
            env={**fake_cuda, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    return run

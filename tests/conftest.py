"""Fixtures for all tests: pytester, and a pretended CUDA that new processes run on."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `from fake_cuda import ...`, whatever the import mode

import fake_cuda as fake


def pytest_configure(config: pytest.Config) -> None:
    """The `pytester` fixture; naming it in pytest_plugins here would break `pytest .`."""
    config.pluginmanager.import_plugin("pytester")


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

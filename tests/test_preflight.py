"""What is wrong with a stack before its first case: each sentence from a planted fault."""

from pathlib import Path

import pytest

from bench_lib.device.gpu import Detected
from bench_lib.errors import UsageError
from bench_lib.running import preflight
from bench_lib.stacking.stacks import HERE, StackEntry

H200 = Detected(True, uuid="GPU-1", name="NVIDIA H200", compute_capability="9.0", driver_version="13.0")
B200 = Detected(True, uuid="GPU-1", name="NVIDIA B200", compute_capability="10.0", driver_version="13.0")
V100 = Detected(True, uuid="GPU-1", name="Tesla V100", compute_capability="7.0", driver_version="13.0")
NONE = Detected(False, "no GPU")


def cuda_stack(cuda: str, folder: Path | None = None, **declared: str) -> StackEntry:
    """A packed stack of PyTorch and one CUDA."""
    return StackEntry("made", "path", declared={"torch": "2.6.0", "cudart": cuda, **declared}, folder=folder)


def installed(site: Path, *wheels: str) -> Path:
    for wheel in wheels:
        name, _, version = wheel.partition("==")
        (site / f"{name.replace('-', '_')}-{version}.dist-info").mkdir(parents=True)
    return site


@pytest.mark.parametrize(
    ("wheels", "majors"),
    [
        (["nvidia-cublas-cu11==11.11.3.6", "nvidia-cudnn-cu11==9.1.0.70"], ""),
        (["nvidia-cudnn-cu11==9.1.0.70", "nvidia-cudnn-cu12==9.1.0.70"], "11 and 12"),
        (["nvidia-cublas==13.0.0.19", "nvidia-cudnn-cu13==9.13.0.50", "nvidia-ml-py==12.0"], ""),
        (["nvidia-cublas==13.0.0.19", "nvidia-nccl-cu12==2.27.5"], "12 and 13"),
        (["nvidia-nccl-cu12==2.27.5", "nvidia-cublas==0.0.1.dev5"], ""),  # a placeholder of old
        ([], ""),
    ],
)
def test_wheels_of_several_cuda_majors(tmp_path: Path, wheels: list[str], majors: str) -> None:
    said = preflight.mixed_wheels([installed(tmp_path / "site", *wheels), tmp_path / "not-there"])
    assert (f"holds wheels of CUDA {majors} (" in said) if majors else not said
    for wheel in wheels if majors else ():
        assert wheel.replace("==", " ") in said


def test_majors_in_folders_of_their_own_do_not_mix(tmp_path: Path) -> None:
    """A packed stack lies beside the packages of the machine's Python."""
    one = installed(tmp_path / "one", "nvidia-cudnn-cu11==9.1.0.70")
    other = installed(tmp_path / "other", "nvidia-cudnn-cu13==9.13.0.50")
    assert preflight.mixed_wheels([one, other]) == ""


def test_a_search_path_that_shadows_a_wheel(tmp_path: Path) -> None:
    wheel, other = tmp_path / "nvidia/cudnn/lib/libcudnn.so.9", tmp_path / "cuda/lib64/libcudnn.so.9"
    for path in (wheel, other):
        path.parent.mkdir(parents=True)
        path.write_text("")
    (other.parent / "libcuda.so.1").write_text("")
    (wheel.parent / "libcuda.so.1").write_text("")  # not a library of the toolkit
    said = preflight.shadowing(f"/not/there::{other.parent}", wheel.parent.iterdir())
    assert said.startswith(f"LD_LIBRARY_PATH holds {other}, which can be loaded in place of {wheel}; take")
    assert preflight.shadowing(str(wheel.parent), wheel.parent.iterdir()) == ""
    link = tmp_path / "link"
    link.symlink_to(wheel.parent)
    assert preflight.shadowing(str(link), wheel.parent.iterdir()) == ""  # the same files by another way
    assert preflight.shadowing("", wheel.parent.iterdir()) == ""


@pytest.mark.parametrize(
    ("cuda", "driver_cuda", "driver", "old", "older"),
    [
        ("11.8", "13.0", "580.65", "", ""),
        ("11.8", "10.2", "440.33", "needs driver 450.80 or newer", ""),
        ("11.8", "11.4", "470.57", "", "CUDA 11.8 came with (520.61)"),
        ("12.4", "11.8", "520.61", "needs driver 525.60 or newer", ""),
        ("12.4", "12.2", "535.104", "", "CUDA 12.4 came with (550.54)"),
        ("12.4", "12.4", "550.54", "", ""),
        ("13.0", "12.9", "575.57", "needs driver 580 or newer", ""),
        ("13.0", "13.0", "580.65", "", ""),
        ("13.5", "13.0", "580.65", "", "CUDA 13.5 came with"),
    ],
)
def test_a_driver_too_old_for_the_runtime(
    cuda: str, driver_cuda: str, driver: str, old: str, older: str
) -> None:
    said = preflight.driver_too_old(cuda, driver_cuda, driver)
    assert (old in said and f"{driver} (CUDA {driver_cuda})" in said) if old else not said
    said = preflight.driver_older(cuda, driver_cuda, driver)
    assert (older in said) if older else not said


@pytest.mark.parametrize(
    ("cuda", "capability", "said"),
    [
        ("11.8", "10.0", "too new for the kernels of CUDA 11.8, which knows GPUs up to 9.x"),
        ("12.4", "12.0", "too new for the kernels of CUDA 12.4"),
        ("12.8", "12.0", ""),
        (
            "13.0",
            "7.0",
            "too old for the kernels of CUDA 13.0, which begin at 7.5; choose a stack of CUDA 12",
        ),
        ("13.0", "7.5", ""),
        ("12.6", "7.0", ""),
        ("11.7", "8.9", ""),
        ("11.7", "9.0", "too new for the kernels of CUDA 11.7, which knows GPUs up to 8.x"),
        ("11.8", "9.0", ""),
    ],
)
def test_a_gpu_too_new_or_too_old_for_the_kernels(cuda: str, capability: str, said: str) -> None:
    found = preflight.gpu_unknown(cuda, capability, "the GPU")
    assert (said in found) if said else not found


def test_findings_of_a_whole_stack(tmp_path: Path) -> None:
    def sentences(entry: StackEntry, gpu: Detected) -> list[tuple[str, bool]]:
        return [(f.sentence.partition(" is ")[0], f.fatal) for f in preflight.findings(entry, gpu, {})]

    assert sentences(cuda_stack("11.8", tmp_path), H200) == []
    assert sentences(cuda_stack("11.8", tmp_path), B200) == [("NVIDIA B200 (compute capability 10.0)", True)]
    assert sentences(cuda_stack("13.0", tmp_path), V100) == [("Tesla V100 (compute capability 7.0)", True)]
    runtime = StackEntry("cudart-11.8", "cudart", ("x==1",), {"cudart": "11.8"})
    assert sentences(runtime, B200) == []  # a runtime alone brings no kernels
    (old,) = preflight.findings(cuda_stack("14.0", tmp_path), H200, {})
    assert old.fatal
    assert "too old for CUDA 14.0" in old.sentence
    (older,) = preflight.findings(cuda_stack("13.5", tmp_path), H200, {})
    assert not older.fatal
    assert sentences(cuda_stack("14.0", tmp_path), NONE) == []  # nothing to compare with


def test_this_python_as_it_is_is_told_and_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = installed(tmp_path, "nvidia-cudnn-cu11==9.1.0.70", "nvidia-cudnn-cu12==9.1.0.70")
    monkeypatch.setattr("sys.path", [str(site)])
    (found,) = preflight.findings(HERE, NONE, {})
    assert not found.fatal
    (found,) = preflight.findings(cuda_stack("12.4", site), NONE, {})
    assert found.fatal


def test_what_cuda_this_python_has_is_what_its_torch_is_built_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise RuntimeError('it must not be imported')")
    (tmp_path / "torch/version.py").write_text("cuda: Optional[str] = '11.8'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    assert preflight.cuda_of(HERE) == "11.8"
    assert [f.sentence[:11] for f in preflight.findings(HERE, B200, {}) if "kernels" in f.sentence] == [
        "NVIDIA B200"
    ]


def test_what_is_measured_without_a_gpu() -> None:
    runtime, native = (StackEntry(kind, kind, declared={"cudart": "12.4"}) for kind in ("cudart", "native"))
    swap = StackEntry("swap", "swap", declared={"cudnn": "9.13.0"}, base=HERE, library="cudnn")
    numpy = StackEntry("numpy", "venv", declared={"numpy": "2.2.6"})
    skips = "no GPU: no GPU; this campaign measures the CPU and skips what needs a GPU"
    assert preflight.without_gpu([HERE, swap], NONE, False) == skips
    assert preflight.without_gpu([HERE, swap, numpy], NONE, True) == ""
    bare = f"{skips}; of cudart, native, CUDA libraries alone, that is at most canary"
    assert preflight.without_gpu([HERE, runtime, native], NONE, True) == bare
    assert preflight.without_gpu([runtime], H200, False) == ""


def test_a_stack_that_only_a_gpu_can_run_is_refused_without_one() -> None:
    runtime = StackEntry("cudart", "cudart", declared={"cudart": "12.4"})
    shipped = {"launch", "tma", "canary"}
    said = r"there is no GPU \(no GPU\), and of cudart, CUDA libraries alone, nothing is .* --family canary"
    with pytest.raises(UsageError, match=said):
        preflight.refuse_nothing([runtime], NONE, {"launch", "tma"}, shipped)
    for entries, detected, measured in (
        ([runtime], H200, {"launch"}),
        ([runtime, HERE], NONE, {"launch"}),
        ([runtime], NONE, {"launch", "canary"}),
        ([runtime], NONE, {"launch", "somebodys"}),
        ([runtime], NONE, set()),
    ):
        preflight.refuse_nothing(entries, detected, measured, shipped)

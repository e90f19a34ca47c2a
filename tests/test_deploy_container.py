"""The images of deploy/container: linted, alike, made of what stacks.toml pins, and closed to the outside."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from bench_lib.stacking import stacks

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "container"
ENTRIES = stacks.load_stacks(ROOT / "benchmarks" / "stacks.toml")
IMAGES = {name: entry for name, entry in ENTRIES.items() if entry.image is not None}
NAMES = [name.removesuffix("-image") for name in IMAGES]
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())


def lines(name: str) -> list[str]:
    """The instructions of a Dockerfile, each in one line."""
    text = (FOLDER / f"{name}.Dockerfile").read_text().replace("\\\n", " ")
    return [re.sub(r"\s+", " ", line) for line in text.splitlines() if line and not line.startswith("#")]


def last_stage(name: str) -> list[str]:
    found = lines(name)
    return found[max(at for at, line in enumerate(found) if line.startswith("FROM ")) :]


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint; it comes with the extra dev")
    files = sorted(map(str, FOLDER.glob("*.Dockerfile")))
    assert len(files) == len(NAMES)
    done = subprocess.run([hadolint, "--no-color", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_each_image_is_a_stack_and_promises_what_its_pins_do() -> None:
    assert NAMES == ["cu118", "cu124"]
    for name in NAMES:
        entry, pinned = IMAGES[f"{name}-image"], ENTRIES[name]
        assert entry.declared == pinned.declared
        assert entry.image is not None
        assert entry.image.name == f"cuda-gains:{name}"
        assert (entry.image.dockerfile, entry.image.context) == (FOLDER / f"{name}.Dockerfile", ROOT)


@pytest.mark.parametrize("name", NAMES)
def test_the_base_is_the_runtime_of_the_cuda_that_the_stack_declares(name: str) -> None:
    (base,) = {line.split()[1] for line in lines(name) if line.startswith("FROM ") and "nvidia" in line}
    version, kind = re.fullmatch(r"nvidia/cuda:(\d+\.\d+)\.\d+-(\w+)-ubuntu22\.04", base).groups()
    assert (version, kind) == (ENTRIES[name].declared["cudart"], "runtime")


@pytest.mark.parametrize("name", NAMES)
def test_its_packages_are_the_pins_of_the_stack(name: str) -> None:
    """Asked as the build asks: with nothing installed."""
    (line,) = [line for line in lines(name) if "bench_lib.containers.pins" in line]
    module, stack = re.search(r"python -m (\S+) (\S+) > /tmp/pins.txt", line).groups()
    command = [sys.executable, "-S", "-m", module, stack]
    said = subprocess.run(command, cwd=ROOT, env={}, capture_output=True, text=True, check=True).stdout
    entry = ENTRIES[name]
    index = [f"--extra-index-url {entry.extra_index}"] if entry.extra_index else []
    assert said.splitlines() == [*index, *entry.requirements]
    extras = re.search(r'-r /tmp/pins\.txt -e "\.\[(.*)\]"', line)[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= project["optional-dependencies"].keys()
    (python,) = {word for line in lines(name) for word in re.findall(r"python(3\.\d+) ", line)}
    assert project["requires-python"] == f">={python}"


def test_the_files_differ_in_the_stack_and_its_cuda_alone() -> None:
    one, other = ((FOLDER / f"{name}.Dockerfile").read_text() for name in NAMES)
    assert one != other
    version = r"cuda:[\d.]+"
    assert re.sub(version, "", one).replace("cu118", "cu124") == re.sub(version, "", other)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_as_nobody_in_particular_and_keeps_results_outside(name: str) -> None:
    stage = last_stage(name)
    (user,) = [line.split()[1] for line in stage if line.startswith("USER ")]
    assert int(user) > 0
    (results,) = [line.split()[1] for line in stage if line.startswith("VOLUME ")]
    (folder,) = [line.split()[1] for line in stage if line.startswith("WORKDIR ")]
    assert results == f"{folder}/results"
    for service in COMPOSE["services"].values():
        assert service["volumes"] == [f"../../results:{results}"]
    assert any(re.search(r"^ENV .*\bLD_LIBRARY_PATH=( |$)", line) for line in stage)  # of the base
    assert not any(word in line for line in stage for word in ("EXPOSE", "sshd", "openssh", "sudo"))


@pytest.mark.parametrize("name", NAMES)
def test_jupyter_listens_on_the_loopback_and_asks_for_a_token(name: str) -> None:
    (line,) = [line for line in last_stage(name) if line.startswith("CMD ")]
    words = json.loads(line.removeprefix("CMD "))
    assert words[:2] == ["jupyter", "lab"]
    assert "--ip=127.0.0.1" in words
    assert not any("token" in word.lower() or "password" in word.lower() for word in words)
    service = COMPOSE["services"]["jupyter"]
    assert service["network_mode"] == "host"  # else its loopback is the container's own
    assert service["environment"] == ["JUPYTER_TOKEN"]  # a name; without one Jupyter makes a token up
    assert not any("ports" in one or "privileged" in one for one in COMPOSE["services"].values())


def test_the_services_are_the_images() -> None:
    for service in COMPOSE["services"].values():
        (entry,) = [one for one in IMAGES.values() if one.image.name == service["image"]]
        build = service["build"]
        assert (FOLDER / build["context"]).resolve() == entry.image.context
        assert entry.image.context / build["dockerfile"] == entry.image.dockerfile
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert {COMPOSE["services"][name]["image"] for name in NAMES} == {e.image.name for e in IMAGES.values()}


def test_what_is_sent_to_a_build_is_there_and_holds_no_results() -> None:
    first, *rest = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] != "#"]
    assert first == "*"
    let_in = [line[1:] for line in rest if line.startswith("!")]
    assert all((ROOT / name).exists() for name in let_in)
    assert {"pyproject.toml", "README.md", "LICENSE", "bench_lib", "benchmarks", "notebooks"} == set(let_in)


def test_the_commands_of_the_readme_name_what_there_is() -> None:
    text = (FOLDER / "README.md").read_text()
    assert set(re.findall(r"-f (deploy/\S+Dockerfile)", text)) == {
        f"deploy/container/{name}.Dockerfile" for name in NAMES
    }
    assert set(re.findall(r"(?:--stack|compare|create) (\S+-image)", text)) <= set(IMAGES)
    for place in re.findall(r"\]\((\S+?)\)", text):
        assert (FOLDER / place).exists(), place

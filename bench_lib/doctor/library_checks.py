"""Are the libraries that the stack loads its own, whole, and of one CUDA?"""

from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from bench_lib.doctor.finding import Check, Finding, State, absent, fail, of_sentence, ok, warn
from bench_lib.doctor.snapshot import Library, Snapshot

_OF_THE_TOOLKIT = ("cudart", "cublas", "cublaslt", "nvrtc")  # whose major is that of CUDA


def torch_libraries(s: Snapshot) -> Finding:
    """Are the cudart, cuBLAS and NVRTC that were loaded of the stack's CUDA major, and one of each?"""
    loaded = [(c, one) for c in _OF_THE_TOOLKIT for one in s.torch.libraries.get(c, ()) if not _private(one)]
    if not loaded or not s.cuda:
        return absent("none was loaded")
    major = s.cuda.split(".")[0]
    for component, one in loaded:
        if one.version and one.version.split(".")[0] != major:
            mend = "make the environment anew with the wheels of one CUDA, and empty LD_LIBRARY_PATH"
            return fail(f"{component} {one.version} from {one.path}", f"{component} of CUDA {major}", mend)
    for component in _OF_THE_TOOLKIT:
        paths = [one.path for name, one in loaded if name == component]
        if len(paths) > 1:
            mend = "remove the one that is not the stack's"
            return warn(f"{component} is loaded {len(paths)} times: {', '.join(paths)}", "one", mend)
    return ok(", ".join(f"{component} {one.version}" for component, one in loaded))


def _private(library: Library) -> bool:
    """A copy that another package brought for itself (torchvision.libs)."""
    return Path(library.path).parent.name.endswith(".libs")


def library_places(s: Snapshot) -> Finding:
    """Was a library loaded from elsewhere though the stack has it too: which file shadows which?"""
    if not s.torch.libraries:
        return absent("none was loaded")
    for component, one in _all(s):
        inside = any(Path(one.path).is_relative_to(place) for place in (s.python.prefix or "/", *s.sites))
        own = [d for d in s.python.distributions if d.name.startswith(f"nvidia-{component}-cu")]
        if not inside and own:
            shadowed = f"{own[0].name} {own[0].version} in {own[0].folder}"
            mend = f"take {Path(one.path).parent} out of LD_LIBRARY_PATH"
            return warn(f"{one.path} was loaded, which shadows {shadowed}", "the stack's own", mend)
    folders = dict.fromkeys(str(Path(one.path).parent) for _, one in _all(s))
    return ok(", ".join(folders))


def _all(s: Snapshot) -> Iterator[tuple[str, Library]]:
    for component, listed in s.torch.libraries.items():
        for one in listed:
            if not _private(one):
                yield component, one


def cudnn_nccl(s: Snapshot) -> Finding:
    """Are the cuDNN and NCCL that were loaded those that torch requires, and built for its CUDA major?"""
    loaded = {c: one for c in ("cudnn", "nccl") for one in s.torch.libraries.get(c, ())[:1] if one.version}
    if not loaded:
        return absent("none was loaded")
    for component, one in loaded.items():
        named = [d for d in s.python.distributions if d.name.startswith(f"nvidia-{component}-cu")]
        own = [d for d in named if Path(one.path).is_relative_to(d.folder)]
        if own and not any(d.version == one.version or d.version.startswith(f"{one.version}.") for d in own):
            mend = "install the version that torch requires, and look at search-path"
            return warn(f"{component} {one.version} from {one.path}", f"{own[0].name} {own[0].version}", mend)
    for component, cuda in s.torch.built.items():
        major, of = s.cuda.split(".")[0], loaded.get(component)
        if of and major and cuda.split(".")[0] != major:
            found = f"{component} {of.version} from {of.path}, built for CUDA {cuda}"
            return fail(found, f"one for CUDA {major}", "install the one that torch requires")
    nccl = loaded.get("nccl")
    if nccl and s.torch.nccl and s.torch.nccl != nccl.version:
        mend = "install the NCCL that this torch requires, on every rank"
        return warn(
            f"NCCL {nccl.version} from {nccl.path}", f"{s.torch.nccl}, which torch was compiled with", mend
        )
    built = {name: f" for CUDA {cuda}" for name, cuda in s.torch.built.items()}
    return ok(", ".join(f"{name} {one.version}{built.get(name, '')}" for name, one in loaded.items()))


def torch_parts(s: Snapshot) -> Finding:
    """Can the parts of torch that are loaded only when needed (NVRTC, linear algebra) be loaded?"""
    if not s.torch.version or not s.torch.cuda:
        return absent("no torch for CUDA was imported")
    # Without a driver libcuda is missing, which is no fault of torch.
    broken = [said for said in s.torch.unresolved if s.driver.library or "libcuda.so" not in said]
    if broken:
        mend = "install the missing nvidia-* package in the version that torch requires"
        return fail(broken[0], "every part to load", mend)
    return ok("they load")


def promises(s: Snapshot) -> Finding:
    """Is what was loaded what the stack declares in stacks.toml?"""
    if s.torch.broken:
        return of_sentence(State.FAIL, s.torch.broken)
    if s.stack == "here":
        return absent("this Python as it is declares nothing")
    return absent("it did not load") if s.torch.error or s.torch.child.problem else ok("it is")


def mixed_wheels(s: Snapshot) -> Finding:
    """Do wheels of several CUDA majors (nvidia-*-cu11, -cu12, -cu13) overwrite each other?"""
    return (
        of_sentence(State.FAIL, s.mixed_wheels) if s.mixed_wheels else ok("wheels of at most one CUDA major")
    )


def search_path(s: Snapshot) -> Finding:
    """Does LD_LIBRARY_PATH hold a library that the stack brings itself?"""
    if s.shadowing:
        return of_sentence(State.WARN, s.shadowing)
    return ok(
        "LD_LIBRARY_PATH shadows nothing"
        if s.variables.get("LD_LIBRARY_PATH")
        else "LD_LIBRARY_PATH is empty"
    )


def conda(s: Snapshot) -> Finding:
    """Did conda and pip both bring CUDA libraries into this Python?"""
    if not s.python.conda:
        return absent("no CUDA packages of conda")
    pip = [d for d in s.python.distributions if d.name.startswith("nvidia-") and d.installer == "pip"]
    pip = [d for d in pip if d.name != "nvidia-ml-py"]
    if pip:
        mend = "make an environment with one of the two; pip's torch needs none of conda's CUDA"
        return warn(
            f"conda's {s.python.conda[0]} beside pip's {pip[0].name} {pip[0].version}", "one source", mend
        )
    return ok(", ".join(s.python.conda))


def duplicates(s: Snapshot) -> Finding:
    """Is a package installed twice, so that one copy shadows the other?"""
    for first in s.python.distributions:
        others = [
            d for d in s.versions(first.name) if d.folder != first.folder and d.version != first.version
        ]
        if others:
            shadowed = f"{others[0].version} in {others[0].folder}"
            found = f"{first.name} {first.version} in {first.folder} shadows {shadowed}"
            return warn(found, "one copy", f"`pip uninstall {first.name}` where it does not belong")
    return ok("each package once") if s.python.distributions else absent("nothing is installed")


def torch_needs(s: Snapshot) -> Finding:
    """Are the libraries installed that torch requires, in the versions it requires?"""
    torch = s.versions("torch")
    if not torch:
        return absent("torch is not installed by pip or conda")
    for need in map(_requirement, torch[0].requires):
        there = s.versions(need.name) if need else []
        if need is None or not need.name.startswith(("nvidia-", "triton", "cuda-")):
            continue
        if not there:
            lacks = warn if s.torch.version else fail  # conda and apt bring libraries under other names
            return lacks(f"{need.name} is not installed", _plain(need), f"`pip install '{_plain(need)}'`")
        if not need.specifier.contains(there[0].version, prereleases=True):
            mend = f"`pip install '{_plain(need)}'`"
            return warn(
                f"{need.name} {there[0].version}",
                f"{_plain(need)}, which torch {torch[0].version} requires",
                mend,
            )
    return ok(f"all that torch {torch[0].version} requires")


def _requirement(text: str) -> Requirement | None:
    """A requirement that holds here, else None."""
    try:
        found = Requirement(text)
    except InvalidRequirement:
        return None
    return found if found.marker is None or found.marker.evaluate({"extra": ""}) else None


def _plain(need: Requirement) -> str:
    return f"{need.name}{need.specifier}"


def torchvision(s: Snapshot) -> Finding:
    """Is torchvision the partner of this torch, in version and CUDA?"""
    found, torch = s.versions("torchvision"), s.versions("torch")
    if not found or not torch:
        return absent("torchvision is not installed; ResNet-50 cases are skipped" if torch else "no torch")
    need = next((n for n in map(_requirement, found[0].requires) if n and n.name == "torch"), None)
    pair = f"torchvision {found[0].version} and torch {torch[0].version}"
    if need and not need.specifier.contains(torch[0].version, prereleases=True):
        return fail(
            pair, f"torch{need.specifier}", f"`pip install 'torch{need.specifier}'`, or its own torchvision"
        )
    builds = [version.partition("+")[2] for version in (found[0].version, torch[0].version)]
    if all(builds) and builds[0] != builds[1]:
        mend = "install both from one index"
        return fail(f"{pair}: builds for different CUDA versions", "one CUDA", mend)
    return ok(pair)


# fmt: off
CHECKS = tuple(map(Check, (
    torch_libraries, library_places, cudnn_nccl, torch_parts, torch_needs, torchvision, promises,
    mixed_wheels, search_path, conda, duplicates
)))
# fmt: on

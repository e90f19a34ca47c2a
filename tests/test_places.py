"""Results elsewhere, in memory and in a folder that plays the other side: fetched, put, merged, refused."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from synthetic import cases, write_campaign

from bench_lib.campaigns import merge
from bench_lib.campaigns.campaign_rounds import next_index
from bench_lib.campaigns.campaign_sharing import Sharing
from bench_lib.campaigns.plan import Plan
from bench_lib.comparing import store
from bench_lib.errors import Unreachable, UsageError
from bench_lib.layout import TABLES, CampaignFolder
from bench_lib.pages import asked
from bench_lib.places import address, mirror, reading, writing
from bench_lib.places.address import Address
from bench_lib.places.mirror import Mirror
from bench_lib.places.place import Place

SMALL: dict[str, Any] = {"measured": cases(1), "samples": 2}
SECRET = "wJalrXUtnFEMI"


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place that is not there yet."""
    yield "memory://bucket/team" if request.param == "memory" else f"file://{tmp_path}/share/team"
    fsspec.filesystem("memory").rm("/", recursive=True)


def machine(tmp_path: Path, name: str, url: str) -> Address:
    """The place, as a machine sees it: with a folder of its own."""
    return Address(tmp_path / name, url)


def names(url: str, campaign: str = "c") -> dict[str, list[str]]:
    """What lies elsewhere: table -> names of files."""
    filesystem, root = fsspec.core.url_to_fs(url)
    found: dict[str, list[str]] = {}
    for path in filesystem.find(f"{root}/{campaign}"):
        *_, table, name = path.split("/")
        found.setdefault(table, []).append(name)
    return found


def measured(where: Address, rounds: int = 2, **given: Any) -> list[str]:
    return write_campaign(where.folder, "c", {"a": 1.0, "b": 1.0}, rounds=rounds, **SMALL, **given)


def runs(where: Address) -> set[str]:
    return set(store.load(where.folder, ["c"]).runs["run_id"])


# --- addresses


def test_a_folder_is_itself() -> None:
    assert address.parse("results") == Address(Path("results"))
    assert str(address.parse("a/b")) == "a/b"


def test_places_have_folders_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = address.parse("s3://bucket/team/")
    assert first.url == "s3://bucket/team"
    assert first.folder.parent == tmp_path / "cuda-gains" / "results"
    assert first.folder.name.startswith("s3-bucket-team-")
    others = [address.parse(text).folder for text in ("s3://bucket-team", "gs://bucket/team")]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    others.append(address.parse("s3://bucket/team").folder)
    assert len({first.folder, *others}) == 4


@pytest.mark.parametrize(
    "text",
    [
        f"s3://AKIA:{SECRET}@bucket/team",
        f"s3://AKIA:{SECRET}/x@bucket/team",
        f"s3://{SECRET}@bucket/team",
        f"sftp://me:{SECRET}@host/team",
        f"abfs://c@account.dfs.core.windows.net/team?sig={SECRET}",
        f"s3://bucket/team#{SECRET}",
    ],
)
def test_credentials_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="holds credentials or a query; name the place alone") as raised:
        address.parse(text)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("text", ["s3://", "s3://a b", "://x", "1s://x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no address; expected a folder, or a URL as s3://bucket/prefix"):
        address.parse(text)


def test_a_login_without_a_secret_is_an_address() -> None:
    assert address.parse("sftp://me@host/team").url == "sftp://me@host/team"
    assert address.parse("abfs://c@account.dfs.core.windows.net/x").url


@pytest.mark.parametrize(
    ("gone", "text", "more"),
    [("fsspec", "s3://bucket/x", ""), ("s3fs", "s3://bucket/x", ""), ("gcsfs", "gs://bucket/x", " gcsfs")],
)
def test_a_missing_package_is_one_sentence_with_the_extra(gone: str, text: str, more: str) -> None:
    code = (
        f"import sys; sys.modules[{gone!r}] = None; from bench_lib.cli import main\n"
        f"sys.argv = ['cuda-gains', 'compare', 'a', 'b', '--results', {text!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"cuda-gains: --results {text} needs a package that is not installed (")
    assert said.endswith(f": `pip install -e '.[remote]'{more}` in the suite's folder")


def test_an_unknown_kind_of_place_is_named() -> None:
    with pytest.raises(UsageError, match=r"--results s4://bucket/x cannot be used .*s4"):
        Place.open(address.parse("s4://bucket/x"))


def test_an_error_loses_what_a_url_in_it_may_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = Place.open(machine(tmp_path, "one", "memory://bucket/team"))
    text = f'Could not connect to "http://me:{SECRET}@host:1/b?X-Amz-Signature={SECRET}"'

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError(text)

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "ls", fail)
    with pytest.raises(Unreachable, match=r"memory://bucket/team cannot be read .*http://host:1/b") as raised:
        place.folders()
    assert SECRET not in str(raised.value)


# --- files here and elsewhere


def test_what_one_machine_puts_another_fetches_once(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    ids = measured(one)
    assert writing.put(one, "c") == 3 * len(ids) == 18
    assert writing.put(one, "c") == 0
    assert {table: len(found) for table, found in names(url).items()} == dict.fromkeys(TABLES, 6)

    Mirror(Place.open(two), "c").fetch()
    assert runs(two) == set(ids)
    fetched: list[str] = []
    get = Place.get
    monkeypatch.setattr(
        Place, "get", lambda self, names, into: fetched.extend(names) or get(self, names, into)
    )
    more = measured(one, rounds=1, seed=1)
    writing.put(one, "c")
    Mirror(Place.open(two), "c").fetch()
    assert runs(two) == {*ids, *more}
    assert sorted(fetched) == sorted(f"c/{table}/{run}.parquet" for table in TABLES for run in more)
    assert writing.put(two, "c") == 0  # what was fetched is not put again


def test_campaigns_of_like_names_stay_apart(tmp_path: Path, url: str) -> None:
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    measured(one)
    write_campaign(one.folder, "c2", {"a": 1.0}, rounds=1, **SMALL)
    assert set(writing.put_all(one)) == {"c", "c2"}
    assert Place.open(two).folders() == ["c", "c2"]
    Mirror(Place.open(two), "c").fetch()
    assert mirror.here(Place.open(two)) == ["c"]


def test_what_is_removed_elsewhere_goes_here_too_but_not_what_was_never_put(tmp_path: Path, url: str) -> None:
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    first = measured(one)
    writing.put(one, "c")
    mine = measured(two, rounds=1, seed=1)
    Mirror(Place.open(two), "c").fetch()
    gone = [f"c/{table}/{first[0]}.parquet" for table in TABLES]
    Place.open(one).remove([*gone, "c/runs/nothing.parquet"])
    Mirror(Place.open(two), "c").fetch()
    assert runs(two) == {*first[1:], *mine}
    kept = [str(path.relative_to(two.folder / ".gone")) for path in (two.folder / ".gone").rglob("*.parquet")]
    assert sorted(kept) == sorted(gone)
    assert writing.put(two, "c") == 9


def test_a_run_is_fetched_when_it_is_whole(tmp_path: Path, url: str) -> None:
    """Its row comes last, and what stands there without it is not forgotten here."""
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    run, *_ = measured(one, rounds=1)
    place, put = Place.open(one), Place.put
    half = Mirror(place, "c")

    def fails_at_runs(self: Place, files: dict[str, Path]) -> None:
        if any("/runs/" in name for name in files):
            raise Unreachable("gone")
        put(self, files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Place, "put", fails_at_runs)
        with pytest.raises(Unreachable, match=r"3 files of campaign 'c' not put: gone; kept in .*one/c"):
            writing.put(one, "c")
    Mirror(Place.open(two), "c").fetch()
    assert not CampaignFolder(two.folder, "c").exists()
    half.fetch()
    assert CampaignFolder(one.folder, "c").table("samples", run).exists()
    writing.put(one, "c")
    Mirror(Place.open(two), "c").fetch()
    assert run in runs(two)


def test_names_that_lead_elsewhere_are_not_fetched(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for name in ("runs/..parquet", "runs/a/b.parquet", "runs/.x.parquet", "notes/a.parquet", "runs/x.exe"):
        memory.pipe_file(f"/bucket/evil/c/{name}", b"x")
    one = machine(tmp_path, "one", "memory://bucket/evil")
    Mirror(Place.open(one), "c").fetch()
    assert not list(one.folder.rglob("*")) if one.folder.exists() else True
    memory.rm("/bucket", recursive=True)


def test_files_appear_elsewhere_whole(tmp_path: Path) -> None:
    """A shared folder is written under another name first; nothing of that stays."""
    one = machine(tmp_path, "one", f"file://{tmp_path}/share")
    measured(one)
    writing.put(one, "c")
    left = {path.suffix for path in (tmp_path / "share").rglob("*") if path.is_file()}
    assert left == {".parquet"}


def test_a_damaged_copy_is_fetched_again(tmp_path: Path, url: str) -> None:
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    run, *_ = measured(one)
    writing.put(one, "c")
    Mirror(Place.open(two), "c").fetch()
    copy = CampaignFolder(two.folder, "c").table("runs", run)
    copy.write_bytes(b"")
    Mirror(Place.open(two), "c").fetch()
    assert copy.read_bytes() == CampaignFolder(one.folder, "c").table("runs", run).read_bytes()


# --- reading


def test_a_reading_command_fetches_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "reader"))
    url = f"file://{tmp_path}/share"
    one = machine(tmp_path, "one", url)
    for name in ("before", "after", "other"):
        write_campaign(one.folder, name, {"here": 1.0}, rounds=1, **SMALL)
    writing.put_all(one)
    folder = reading.folder(url, ["before"], ["after", "a-stack"])
    assert sorted(path.name for path in folder.glob("[!.]*")) == ["after", "before"]
    assert folder == reading.folder(url)  # nothing is named: nothing is asked
    assert sorted(path.name for path in reading.whole(url).glob("[!.]*")) == ["after", "before", "other"]
    with pytest.raises(UsageError, match=r"no campaign 'befor' at file:.*; did you mean 'before'"):
        reading.folder(url, ["befor"])


@pytest.mark.parametrize(
    ("names", "given", "certain", "perhaps"),
    [
        (["before", "after"], {}, {"before", "after"}, set()),
        (["a", "b"], {"campaign": "c"}, {"c"}, {"a", "b"}),
        (["before/a", "b"], {"campaign": "c"}, {"before", "c"}, {"b"}),
        (["x/before.json", "after.json"], {}, set(), set()),
        ([], {"contrast": "runtime=1:2"}, set(), {"local"}),
        (["a"], {"contrast": "runtime=1:2", "campaign": "c"}, {"c"}, {"a"}),
        (["a", "b", "d"], {"campaign": "c", "check": "apart"}, {"c", "apart"}, {"a", "b", "d"}),
    ],
)
def test_which_campaigns_a_command_line_names(
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    given: dict[str, str],
    certain: set[str],
    perhaps: set[str],
) -> None:
    monkeypatch.setattr(reading, "folder", lambda *asked_for: asked_for)
    given = {"campaign": None} | given
    assert asked.folder("s3://b", names, **given) == ("s3://b", certain, perhaps)


def test_a_reading_command_says_what_is_only_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = f"file://{tmp_path}/share"
    measured(address.parse(url))
    reading.folder(url, ["c"])
    said = capsys.readouterr().err
    assert "18 files of campaign 'c' are only on this machine; put them with `cuda-gains push " in said
    writing.put(address.parse(url), "c")
    reading.folder(url, ["c"])
    assert capsys.readouterr().err == ""


# --- merging


def test_merging_elsewhere_keeps_every_run(tmp_path: Path, url: str) -> None:
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    ids = measured(one)
    writing.put(one, "c")
    merged = merge.merge_elsewhere(two, "c")
    (name,) = {path.rpartition("/")[2] for path in merged}
    assert names(url) == {table: [name] for table in TABLES}
    assert merge.merge_elsewhere(two, "c") == merged  # nothing new
    more = measured(one, rounds=1, seed=1)
    writing.put(one, "c")
    Mirror(Place.open(one), "c").fetch()
    assert runs(one) == {*ids, *more}
    merge.merge_elsewhere(one, "c")
    Mirror(Place.open(two), "c").fetch()
    assert runs(two) == {*ids, *more}
    assert {table: len(found) for table, found in names(url).items()} == dict.fromkeys(TABLES, 1)


def test_two_merges_at_once_lose_nothing(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one, with a run more, comes and goes between the first one's listing and its put."""
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    ids = measured(one)
    writing.put(one, "c")
    put = writing.put

    def late(where: Address, campaign: str) -> int:
        if where == one:
            monkeypatch.setattr(merge, "put", put)
            ids.extend(measured(two, rounds=1, seed=1))
            merge.merge_elsewhere(two, "c")
        return put(where, campaign)

    monkeypatch.setattr(merge, "put", late)
    merge.merge_elsewhere(one, "c")
    three = machine(tmp_path, "three", url)
    Mirror(Place.open(three), "c").fetch()
    assert runs(three) == set(ids)
    merge.merge_elsewhere(three, "c")
    assert {table: len(found) for table, found in names(url).items()} == dict.fromkeys(TABLES, 1)
    assert runs(three) == set(ids)


def test_a_merge_that_cannot_put_loses_nothing(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = machine(tmp_path, "one", url)
    ids = measured(one)
    writing.put(one, "c")
    before = names(url)

    def fail(self: Place, files: object) -> None:
        raise Unreachable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Place, "put", fail)
        with pytest.raises(Unreachable, match="3 files of campaign 'c' not put: gone; kept in"):
            merge.merge_elsewhere(one, "c")
    assert names(url) == before
    merge.merge_elsewhere(one, "c")
    assert {table: len(found) for table, found in names(url).items()} == dict.fromkeys(TABLES, 1)
    assert runs(one) == set(ids)


def test_an_unknown_campaign_is_not_merged(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match="there is no campaign 'c' at"):
        merge.merge_elsewhere(machine(tmp_path, "one", url), "c")


# --- the plan that machines share


def plan(where: Address, **changes: Any) -> Plan:
    given: dict[str, Any] = {
        "campaign": "c",
        "results": where.folder,
        "url": where.url,
        "stacks": ("here",),
        "rounds": 2,
        "benchmarks": Path(__file__).parents[1] / "benchmarks",
    }
    return Plan(**given | changes)


def sharing(where: Address, **changes: Any) -> Sharing:
    return Sharing(plan(where, **changes), print)


def test_an_equal_plan_is_accepted_with_the_first_ones_seed(tmp_path: Path, url: str) -> None:
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    seed = sharing(one).settle()
    assert sharing(two, rounds=1).settle() == seed
    assert sharing(two, rounds=7).settle() == seed
    assert sharing(one).settle() == seed
    assert json.loads((one.folder / "c/plan.json").read_text())["rounds"] == 7


def test_another_plan_is_refused_though_no_run_is_there_yet(tmp_path: Path, url: str) -> None:
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    sharing(one).settle()
    with pytest.raises(UsageError, match=r"begun with quick false, this command says true; repeat `"):
        sharing(two, quick=True).settle()


@pytest.mark.parametrize("alike", [True, False])
def test_the_first_of_two_plans_wins(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, alike: bool
) -> None:
    """The other machine's comes between the look and the put."""
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    create = Mirror.create_plan
    seeds: list[int] = []

    def late(self: Mirror, file: str) -> bool:
        monkeypatch.setattr(Mirror, "create_plan", create)
        seeds.append(sharing(two).settle())
        return create(self, file)

    monkeypatch.setattr(Mirror, "create_plan", late)
    if alike:
        assert [sharing(one).settle()] == seeds
    else:
        with pytest.raises(UsageError, match="begun with full false, this command says true"):
            sharing(one, full=True).settle()
    assert json.loads((two.folder / "c/plan.json").read_text())["full"] is False


def test_a_plan_by_which_nothing_was_measured_goes(tmp_path: Path, url: str) -> None:
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    first = sharing(one, families=("canary",))
    first.settle()
    assert first.end()
    sharing(two).settle()
    assert json.loads((two.folder / "c/plan.json").read_text())["families"] == []


@pytest.mark.parametrize(
    ("finished", "index"),
    [([], 0), ([{}, {}], 2), ([{"index": 0}, {"index": 0}], 1), ([{"index": 0}, {"index": 2}], 1)],
)
def test_the_next_round_is_the_first_that_nobody_has_finished(finished: list[Any], index: int) -> None:
    assert next_index(finished) == index

"""Results in a real S3 server on loopback: campaigns of two machines at once, outages, pytest itself.

A machine is a cache folder of its own. The measuring process is the stand-in of test_campaign.
"""

import io
import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import boto3
import duckdb
import fsspec
import pytest
import s3fs
import synthetic
from moto.server import ThreadedMotoServer
from plugin_runs import Runs
from rich.console import Console
from test_campaign import Kit
from test_folders import counting_opens
from typer.testing import CliRunner

from bench_lib.campaigns import campaign
from bench_lib.cli import app
from bench_lib.errors import UsageError
from bench_lib.layout import TABLES
from bench_lib.places import address
from bench_lib.places.mirror import Mirror

Cli = Callable[..., str]


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedMotoServer]:
    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def bucket(server: ThreadedMotoServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The name of a new bucket, and the environment that finds it."""
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key-of-a-test",
        "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_MAX_ATTEMPTS": "1",
        "XDG_CACHE_HOME": str(tmp_path / "machine"),
    }.items():
        monkeypatch.setenv(name, value)
    made = f"bucket-{uuid.uuid4().hex}"
    s3().create_bucket(Bucket=made)
    yield made
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    return Kit(tmp_path, monkeypatch)


@pytest.fixture
def cli() -> Cli:
    """Run a command that succeeds; what it printed."""

    def run(*arguments: object) -> str:
        done = CliRunner().invoke(app, [str(one) for one in arguments])
        assert done.exit_code == 0, f"{done.output}{done.exception!r}"
        return done.output

    return run


def s3() -> "boto3.client":
    return boto3.client("s3")


def keys(bucket: str, table: str, name: str = "c") -> list[str]:
    listed = s3().list_objects_v2(Bucket=bucket, Prefix=f"team/{name}/{table}")
    return [one["Key"] for one in listed.get("Contents", [])]


def run(kit: Kit, url: str, **changes: object) -> int:
    output = io.StringIO()
    plan = kit.plan(results=address.parse(url).folder, url=url, **changes)
    code = campaign.run(plan, Console(file=output, width=300))
    kit.said = output.getvalue()
    return code


RUN = """
import os, sys
os.environ["XDG_CACHE_HOME"] = sys.argv[1]
from pathlib import Path
from rich.console import Console
from bench_lib.campaigns.campaign import Plan, run
from bench_lib.places import address
here, where = Path(sys.argv[2]), address.parse(sys.argv[3])
plan = Plan(
    "c", where.folder, ("here", "there"), where.url, rounds=3, benchmarks=here,
    stacks_file=here / "stacks.toml", program=(sys.executable, str(here / "child.py")),
)
sys.exit(run(plan, Console(width=200)))
"""


def test_two_machines_measure_one_campaign_and_others_read_it(
    kit: Kit, bucket: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{bucket}/team"
    command = [sys.executable, "-c", RUN]
    both = [
        subprocess.Popen(
            [*command, str(kit.path / name), str(kit.path), url],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("one", "two")
    ]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert all(f"rounds are in {url}/c" in text for text in said)

    rounds = keys(bucket, "rounds")
    assert 3 <= len(rounds) <= 4  # the other's last one may have been on its way
    records = [json.loads(s3().get_object(Bucket=bucket, Key=key)["Body"].read()) for key in rounds]
    runs = {run for record in records for run in record["runs"]}
    assert len(runs) == 3 * len(rounds)
    for table in TABLES:
        assert runs <= {Path(key).stem for key in keys(bucket, table)}
    assert keys(bucket, "plan.json")
    assert not keys(bucket, "journal")
    assert not keys(bucket, "logs")

    read = ("--campaign", "c", "--results", url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(kit.path / "reader"))
    assert "here" in cli("compare", "here", "there", *read)
    assert "made/" in cli("calibrate", *read)
    cli("report", "here", "there", *read, "-o", kit.path / "report")
    assert any((kit.path / "report").iterdir())
    before = len(keys(bucket, "runs"))
    assert f"{url}/c/runs/merged-" in cli("merge", "c", "--results", url)
    assert [len(keys(bucket, table)) for table in TABLES] == [1, 1, 1]
    for reader in ("reader", "another"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(kit.path / reader))
        assert "here" in cli("compare", "here", "there", *read)

    with duckdb.connect() as connection:  # as docs/results-elsewhere.md says
        connection.register_filesystem(fsspec.filesystem("s3"))
        query = f"SELECT count(DISTINCT run_id) FROM '{url}/c/runs/*.parquet'"
        assert connection.sql(query).fetchall() == [(before,)]
    assert run(kit, url, rounds=3) == 0  # on a machine that never measured: there is nothing to do
    files = [path for path in kit.path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"secret-of-a-test" in path.read_bytes()]


def test_reading_fetches_each_file_once_and_opens_it_once(bucket: str, cli: Cli, tmp_path: Path) -> None:
    synthetic.write_campaign(tmp_path, "c", {"a": 1.0, "b": 1.0}, rounds=3, null=False)
    files = sorted((tmp_path / "c").rglob("*.parquet"))
    for path in files:
        s3().upload_file(str(path), bucket, f"team/{path.relative_to(tmp_path)}")
    fetched, real = Counter[str](), s3fs.S3FileSystem._get_file

    async def counted(self: s3fs.S3FileSystem, rpath: str, *more: object, **options: object) -> None:
        fetched[rpath] += 1
        await real(self, rpath, *more, **options)

    with mock.patch.object(s3fs.S3FileSystem, "_get_file", counted):
        for _ in range(2):  # the second time everything is here
            with counting_opens() as opened:
                cli("compare", "a", "b", "--campaign", "c", "--results", f"s3://{bucket}/team")
            assert len(opened) == len(files)
            assert set(opened.values()) == {1}
    assert len(fetched) == len(files)
    assert set(fetched.values()) == {1}


def test_a_server_that_goes_away_costs_nothing(
    kit: Kit, bucket: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{bucket}/team"
    push, endpoint = Mirror.push, os.environ["AWS_ENDPOINT_URL"]

    def last(self: Mirror) -> int:
        """The first put that holds something is the last one that reaches the server."""
        count = push(self)
        if count:
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            self.place = type(self.place).open(self.place.address)
            monkeypatch.setattr(Mirror, "push", push)
        return count

    folder = address.parse(url).folder
    monkeypatch.setattr(Mirror, "push", last)
    one = {"stacks": ("here",), "null": False}
    assert run(kit, url, rounds=2, **one) == 1
    assert len(list((folder / "c" / "rounds").iterdir())) == 2
    assert len(keys_at(endpoint, bucket)) == 3
    tell = f"kept in {folder / 'c'}, put them with `cuda-gains push --results {url}`"
    assert tell in kit.said
    assert kit.said.count("measuring goes on, and it is asked again before the next round") == 2
    assert f"2 of 2 rounds are in {folder / 'c'}" in kit.said
    assert "Traceback" not in kit.said

    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    measured = len(kit.pids.read_text().split())
    assert f"files put to {url}" in cli("push", "--results", url)
    assert [len(keys(bucket, table)) for table in (*TABLES, "rounds")] == [2, 2, 2, 2]
    assert run(kit, url, rounds=2, **one) == 0
    assert len(kit.pids.read_text().split()) == measured


def keys_at(endpoint: str, bucket: str) -> list[str]:
    listed = boto3.client("s3", endpoint_url=endpoint).list_objects_v2(Bucket=bucket)
    return [one["Key"] for one in listed.get("Contents", []) if one["Key"].endswith(".parquet")]


def test_a_bucket_that_is_not_there_is_known_before_the_first_case(kit: Kit, bucket: str) -> None:
    with pytest.raises(UsageError, match="there is no 'no-bucket' for --results s3://no-bucket/team;"):
        run(kit, "s3://no-bucket/team")
    assert not kit.pids.exists()
    done = CliRunner().invoke(app, ["compare", "a", "b", "--results", "s3://no-bucket/team"])
    assert "there is no 'no-bucket'" in str(done.exception)
    assert "no-bucket" not in [one["Name"] for one in s3().list_buckets()["Buckets"]]


ONE_CASE = "def bench_one(bench):\n    bench.record(Series((1.0, 2.0)))\n"


def test_pytest_puts_its_run(runs: Runs, bucket: str) -> None:
    runs.write(ONE_CASE + "    import sys\n    assert 'fsspec' not in sys.modules\n")
    url = f"s3://{bucket}/team"
    done = runs.pytest(f"--results={url}", "--benchmark-json=run.json", "--device=cpu")
    assert done.ret == 0
    done.stdout.fnmatch_lines([f"run * in {url}/local"])
    assert [len(keys(bucket, table, "local")) for table in TABLES] == [1, 1, 1]
    assert not (runs.path / "results").exists()
    assert not (runs.path / "s3:").exists()


def test_pytest_keeps_a_run_that_cannot_be_put(runs: Runs, bucket: str, cli: Cli) -> None:
    url = f"s3://{bucket}/team"
    gone = f"    import boto3\n    boto3.client('s3').delete_bucket(Bucket={bucket!r})\n"
    runs.write(ONE_CASE + gone)
    done = runs.pytest(f"--results={url}", "--device=cpu")
    assert done.ret == 1
    folder = address.parse(url).folder / "local"
    done.stdout.fnmatch_lines(
        [
            "cuda-gains: not all results could be written: 3 files of campaign 'local' not put: "
            f"{url} cannot be written (FileNotFoundError: *kept in {folder}, put them with "
            f"`cuda-gains push --results {url}`",
            f"run * in {folder}",
        ]
    )
    s3().create_bucket(Bucket=bucket)
    assert cli("push", "--results", url) == f"local: 3 files put to {url}\n"


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ("s3://no-bucket/team", "ERROR: there is no 'no-bucket' for --results s3://no-bucket/team; *"),
        ("s3://AKIA:hidden-word@bucket/team", "ERROR: --results s3://... holds credentials or a query; *"),
    ],
)
def test_pytest_refuses_before_the_first_case(runs: Runs, bucket: str, results: str, said: str) -> None:
    runs.write(ONE_CASE)
    done = runs.pytest(f"--results={results}", "--device=cpu")
    assert done.ret == 4
    done.stderr.fnmatch_lines([said])
    assert "hidden-word" not in done.stdout.str() + done.stderr.str()
    assert not runs.journals()

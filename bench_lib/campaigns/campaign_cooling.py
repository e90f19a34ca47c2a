"""Before each process of a round: wait until the GPU is about as warm as at the campaign's first one.

Which GPU, and how warm it was then, stand in the campaign's own tables. A child process asks NVML; where
there is none, nothing is waited for. A GPU that is colder than then is no reason to wait.
"""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from bench_lib.campaigns.progress import Progress
from bench_lib.journaling.journal_rows import Row
from bench_lib.journaling.readable import rows
from bench_lib.layout import CampaignFolder

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Cooling:
    """The waits of one `run`; without a band there are none."""

    def __init__(self, folder: CampaignFolder, band_c: float | None, longest_seconds: float) -> None:
        self._folder = folder
        self._band_c = band_c
        self._longest_seconds = longest_seconds
        self._log: list[Row] = []  # of the round

    def wait(self, run_id: str, progress: Progress) -> dict[str, float]:
        """Wait before a run; what its row keeps of that, in seconds and °C. Empty when nothing is known."""
        if self._band_c is None:
            return {}
        gpu_uuid, first_c = self._reference()
        if first_c is None:
            return {}
        limit_c = first_c + self._band_c
        begin = time.monotonic()
        seen = self._look(gpu_uuid, limit_c, progress)
        if not seen:
            return {}
        found = {
            "cool_down_seconds": time.monotonic() - begin if len(seen) > 1 else 0.0,
            "cool_down_from_c": seen[0],
            "cool_down_to_c": seen[-1],
            "cool_down_limit_c": limit_c,
        }
        self._log.append({"run": run_id, **found, **self._warning(found, progress)})
        return found

    def of_round(self) -> dict[str, list[Row]]:
        """What a round's record keeps; the next round begins with nothing."""
        log, self._log = self._log, []
        return {"cool_down": log} if log else {}

    def _look(self, gpu_uuid: str, limit_c: float, progress: Progress) -> list[float]:
        """The temperatures seen until the GPU is cool enough, or the longest wait is over."""
        options = [gpu_uuid, str(limit_c), str(self._longest_seconds)]
        command = [sys.executable, "-m", "bench_lib.thermal.wait", *options]
        seen: list[float] = []
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    seen.append(float(line))
                    if seen[-1] > limit_c:
                        progress.waiting(f"cooling: {seen[-1]:g} -> {limit_c:g} °C", first=len(seen) == 1)
            finally:
                child.kill()
        return seen

    def _warning(self, found: dict[str, float], progress: Progress) -> dict[str, str]:
        """A wait that ran out is stored, and no error."""
        if found["cool_down_to_c"] <= found["cool_down_limit_c"]:
            return {}
        text = (
            f"the GPU is still at {found['cool_down_to_c']:g} °C after {found['cool_down_seconds']:.0f} s, "
            f"expected at most {found['cool_down_limit_c']:g} °C"
        )
        progress.say(f"{text}; it is measured so")
        return {"warning": text}

    def _reference(self) -> tuple[str, float | None]:
        """This machine's GPU, and its temperature when its first process of the campaign began."""
        with contextlib.suppress(OSError):
            boot_id = _BOOT.read_text().strip()
            names = ["run_id", "boot_id", "gpu_uuid", "started_at"]
            known = (run for run in rows(self._folder.parquet_files("runs"), names) if run["gpu_uuid"])
            runs = sorted(known, key=lambda run: run["started_at"])
            here = [run["gpu_uuid"] for run in runs if run["boot_id"] == boot_id]
            if here:
                mine = [run["run_id"] for run in runs if run["gpu_uuid"] == here[-1]]
                return here[-1], self._first_temperature(mine)
        return "", None

    def _first_temperature(self, run_ids: list[str]) -> float | None:
        names = ["run_id", "position", "temperature_c_start"]
        cases = rows(self._folder.parquet_files("cases"), names)
        known = [case for case in cases if case["temperature_c_start"] is not None]
        for run_id in run_ids:
            if its := [case for case in known if case["run_id"] == run_id]:
                return float(min(its, key=lambda case: case["position"])["temperature_c_start"])
        return None

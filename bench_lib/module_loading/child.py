"""The child: a fresh process that does one thing for the first time, and says what it took as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from bench_lib.device.telemetry import Telemetry
from bench_lib.module_loading import steps
from bench_lib.module_loading.watch import Watch
from bench_lib.processes.worker import told

KINDS = {"context": steps.context, "cublas": steps.cublas, "cudnn": steps.cudnn, "torch": steps.torch}


def main() -> None:
    """Do what the first argument asks for; NVML and all modules of ours are there before the clock runs."""
    asked = json.loads(sys.argv[1])
    watch = Watch(Telemetry.open(asked["uuid"]) if asked["uuid"] else Telemetry())
    try:
        facts = KINDS[asked["kind"]](asked, watch)
        answer = {"steps": {name: asdict(step) for name, step in watch.steps.items()}, "facts": facts}
    except Exception as error:  # whatever it is, the case gets it as its reason
        plain = told(error)
        answer = {"error": str(plain), "kind": type(plain).__name__}
    print(json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    main()

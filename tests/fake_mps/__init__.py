"""A stand-in for nvidia-cuda-mps-control: a daemon that answers, knows its clients and can be told to fail.

`environment` puts it into $PATH. FAKE_MPS_JOURNAL names a file with a line a start and a quit; at a
quit it says how many clients were left. FAKE_MPS_START_CODE: what -d ends with. FAKE_MPS_BLIND: no
client is ever listed. FAKE_MPS_DEAF: quit does nothing until the file it names is there.
"""

import os
import sys
from pathlib import Path

NAME = "nvidia-cuda-mps-control"


def environment(folder: Path) -> dict[str, str]:
    """Write the command into FOLDER; the variables with which it is found there."""
    folder.mkdir(exist_ok=True)
    command = folder / NAME  # the kernel names a process after its script, the real one's is alike
    command.write_text(f"#!{sys.executable}\n{(Path(__file__).parent / 'control.py').read_text()}")
    command.chmod(0o755)
    journal = folder / "journal"
    journal.touch()
    return {"PATH": f"{folder}:{os.environ['PATH']}", "FAKE_MPS_JOURNAL": str(journal)}

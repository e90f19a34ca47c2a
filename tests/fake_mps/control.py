"""The command itself; see the package."""

import os
import socket
import sys
from pathlib import Path

PIPES = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
SOCKET = PIPES / "control"


def note(text):
    with Path(os.environ["FAKE_MPS_JOURNAL"]).open("a") as stream:
        stream.write(f"{text}\n")


def clients():
    """Living processes that are clients and were given these pipes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"bench_lib.mps.client" in words and f"CUDA_MPS_PIPE_DIRECTORY={PIPES}".encode() in variables:
            found.append(folder.name)
    return [] if os.environ.get("FAKE_MPS_BLIND") else found


def serve(listening):
    while True:
        connection, _ = listening.accept()
        with connection:
            command = connection.recv(1000).decode().strip()
            deaf = os.environ.get("FAKE_MPS_DEAF")
            if command == "quit" and (not deaf or Path(deaf).exists()):
                note(f"quit with {len(clients())} clients left")
                SOCKET.unlink()
                return
            answers = {"get_server_list": [str(os.getpid())], f"get_client_list {os.getpid()}": clients()}
            connection.sendall("\n".join(answers.get(command, [])).encode() + b"\n")


def start():
    if code := int(os.environ.get("FAKE_MPS_START_CODE", "0")):
        print("Failed to start the MPS control daemon: no permission")
        sys.exit(code)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(SOCKET))
    listening.listen()
    if os.fork():
        os._exit(0)
    os.setsid()
    note(f"start on {os.environ.get('CUDA_VISIBLE_DEVICES')} in {PIPES}")
    serve(listening)


def ask():
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(SOCKET))
        except OSError:
            sys.exit("Cannot find MPS control daemon process")
        connection.sendall(sys.stdin.read().encode())
        while data := connection.recv(1000):
            sys.stdout.write(data.decode())


start() if sys.argv[1:] == ["-d"] else ask()

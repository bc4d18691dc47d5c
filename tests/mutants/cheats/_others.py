"""Who else takes part in a run: what the cheats that reach for other processes share."""

import os
from pathlib import Path


def fork_server():
    """The process that this one was forked from."""
    return os.getppid()


def judge():
    """The process that started the fork server."""
    status = Path(f"/proc/{fork_server()}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])

"""Walls that the kernel puts around foreign code, each where it has them. They need no root.

- *Landlock* (since Linux 5.13; its scopes of signals and abstract sockets since 6.12): what may be
  written, and which devices opened. No process outside can be traced, so not its memory and
  descriptors in /proc either.
- *seccomp*: system calls fail that leave the process group, look into other processes or change
  what they may use, wake a stopped process, make what outlives its maker, or namespaces: in one
  of its own, code is root, and the kernel takes one down when others are timed.
- *No capabilities* of root's, but to open what other users own.

There are no pid namespaces: whatever can't leave its process group is stopped and killed with it,
and an init for each sandbox would double the time to start one.

This module imports nothing heavy, since pytest's header asks it which walls there are.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_DUMPABLE, _PR_GET_SECCOMP, _PR_SET_SECCOMP = 4, 21, 22
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_CLONE_NEWIPC = 0x0800_0000

# Landlock: its system calls, which have one number everywhere, and what may be done with a file.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE = 1 << 1, 1 << 2
#: Removing folders and files, and making each kind of them.
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
#: Moving a file to another folder (the second version), and shortening it (the third).
_REFER, _TRUNCATE = 1 << 13, 1 << 14
#: The version that scopes abstract unix sockets (1) and signals (2).
_SCOPED, _SCOPES = 6, 1 | 2
#: What may be opened in /dev. Locks that all processes of a machine share are in /dev/shm.
_DEVICES = frozenset({"null", "zero", "full", "random", "urandom", "dri", "kfd", "infiniband"})

#: seccomp: how an architecture is named, and the column of its system calls below.
_ARCHITECTURES = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}
_MODE_FILTER = 2
_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000
_REFUSE = _ERROR | errno.EPERM
#: Numbers that x86_64 has for 32-bit pointers, which would pass by the filter.
_OTHER_NUMBERS = 0x4000_0000
_REFUSED = {
    # what leaves the process group, in which a sandbox is stopped and killed
    "setsid": (112, 157),
    # what looks into other processes, or sends them signals that Landlock may not see
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    # what continues a stopped process by a signal, or works while it is stopped
    "timer_create": (222, 107),
    "mq_notify": (244, 184),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_setup": (206, 0),
    # what outlives its maker
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # what has a process be root in namespaces of its own
    "unshare": (272, 97),
    "setns": (308, 268),
    # the priority of all of a user's processes
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
}
#: The same where calls are timed on the CPU: what has the kernel work in interrupts while its
#: process is stopped. A timer that fires costs some µs; with 50,000 watchers by epoll,
#: 13 to 19 ms were seen.
_REFUSED_ON_CPU = {
    "timerfd_create": (283, 85),
    "epoll_create": (213, 20),
    "epoll_create1": (291, 20),
}
#: Calls that do nothing but succeed: ninja insists on a process group for each command.
_PRETENDED = {"setpgid": (109, 154)}
#: Calls that this kernel does not seem to have: what this one makes, a filter can't see.
_MISSING = {"clone3": (435, 435)}
_CLONE = (56, 220)
#: All of its flags that make namespaces.
_CLONE_NEW = 0x7E02_0000
#: Those that say which signal a parent gets when the child has ended: SIGCONT would wake one that
#: was stopped meanwhile.
_CLONE_SIGNAL = 0xFF
#: The same of a child whose parent has ended.
_PRCTL, _PR_SET_PDEATHSIG = (157, 167), 1
#: Calls whose first argument is a process; 0 is the caller.
_OF_CALLER_ONLY = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
_FCNTL = (72, 25)
#: Has another signal than SIGIO sent when a file is ready, SIGCONT for one; has all who open a file
#: wait, for 45 s.
_F_SETSIG, _F_SETLEASE = 10, 1024

#: Where memory is short, the kernel ends this process before any other.
_FIRST_TO_END = "1000"
_CAPABILITIES_VERSION = 0x2008_0522
_CAP_DAC_OVERRIDE = 1


def container_options(device: str) -> list[str]:
    """What bwrap is to give a process of its own: all that needs the kernel's permission.

    CUDA's IPC wants both ends in one namespace of processes and of IPC, so on CUDA those are kept.
    """
    options = ["--die-with-parent", "--unshare-net", "--ro-bind", "/", "/"]
    if device == "cpu":
        options += ["--unshare-pid", "--unshare-ipc", "--proc", "/proc"]
    else:
        options += ["--dev-bind", "/proc", "/proc"]
    return [*options, "--dev", "/dev", "--tmpfs", "/tmp"]


def why_no_container(device: str) -> str:
    """What follows a name of what needs containers, where there can't be any; else nothing."""
    if shutil.which("bwrap") is None:
        return (
            " needs bwrap (bubblewrap), which is not on PATH: install the package bubblewrap of "
            "your distribution, or run pytest as a whole in a container"
        )
    command = ["bwrap", *container_options(device), "--chdir", "/", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode == 0:
        return ""
    problem = tried.stderr.strip() or f"it exited with code {tried.returncode}"
    return f": bwrap does not work here: {problem}"


def wall_names() -> list[str]:
    """The walls that this system has, in words for people."""
    walls = []
    if landlock_version():
        scoped = landlock_version() >= _SCOPED
        walls.append("landlock" if scoped else "landlock (but signals)")
    if _has_seccomp():
        walls.append("seccomp")
    if walls:
        walls.append("no ptrace")
    if sys.platform == "linux" and os.geteuid() == 0:
        walls.append("no capabilities")
    return walls


def raise_walls(writable: Iterable[Path], device: str) -> None:
    """Put every wall that this system has around this process and those that it starts.

    Beneath ``writable`` folders, files may be written; unless the ``device`` is the CPU, in /proc
    the names of this process' threads, as CUDA's driver insists on. For a process of a single
    thread. What the kernel lacks or refuses is left out.
    """
    on_cpu = device == "cpu"
    # What hides a process has its own files in /proc belong to root: only where nothing else does.
    if not on_cpu or landlock_version():
        _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END, encoding="ascii")
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _LIBC.unshare(_CLONE_NEWIPC)  # root may; others can't make what would be in it
    if landlock_version():
        _restrict_files(writable, names_threads=not on_cpu)
    _drop_capabilities()
    if _has_seccomp():
        _restrict_calls(on_cpu)


def hide_from_ptrace() -> None:
    """Have other processes of the same user not trace this one, where Landlock doesn't see to it.

    Those that it forks inherit that, until they start another program.
    """
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


@cache
def landlock_version() -> int:
    """Of the kernel's Landlock; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    version = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, int(version))


def _restrict_files(writable: Iterable[Path], *, names_threads: bool) -> None:
    version = landlock_version()
    write = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0)
    change = write | _MAKE_AND_REMOVE | (_REFER if version >= 2 else 0)
    scopes = _SCOPES if version >= _SCOPED else 0
    handled = struct.pack("QQQ", change | _READ_FILE, 0, scopes)
    rules = _LIBC.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), ctypes.c_uint(0))
    if rules < 0:
        return
    for entry in os.scandir("/"):
        if entry.name != "dev" and not entry.is_symlink():
            _permit(rules, entry.path, _READ_FILE)
    for entry in os.scandir("/dev"):
        if entry.name in _DEVICES or entry.name.startswith("nvidia"):
            _permit(rules, entry.path, _READ_FILE | write)
    for folder in writable:
        _permit(rules, str(folder), _READ_FILE | change)
    if names_threads:
        # Left open: the rule is about this inode, and nothing else holds one of /proc.
        os.open("/proc/self/task", os.O_PATH | os.O_CLOEXEC)
        _permit(rules, "/proc/self/task", _READ_FILE | write)
    _LIBC.syscall(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint(0))
    os.close(rules)


def _permit(rules: int, path: str, access: int) -> None:
    """Permit access to a file, or to all files beneath a folder, if it is there."""
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    rule = struct.pack("=Qi", access, parent)
    _LIBC.syscall(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint(0))
    os.close(parent)


def _drop_capabilities() -> None:
    for capability in range(64):
        if capability != _CAP_DAC_OVERRIDE:
            _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITIES_VERSION, 0)
    caps = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; and the upper halves
    _LIBC.capget(header, caps)
    kept_bits = [bits & 1 << _CAP_DAC_OVERRIDE for bits in caps[:3]]
    _LIBC.capset(header, struct.pack("6I", *kept_bits, 0, 0, 0))


@cache
def _has_seccomp() -> bool:
    known = sys.platform == "linux" and platform.machine() in _ARCHITECTURES
    return known and _LIBC.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _restrict_calls(on_cpu: bool) -> None:
    refused = {**_REFUSED, **(_REFUSED_ON_CPU if on_cpu else {})}
    instructions = _filter(*_ARCHITECTURES[platform.machine()], tuple(refused.values()))
    program = _Program(len(instructions) // 8, instructions)
    _LIBC.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0)


# Instructions of a filter; their operand comes last.
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AND = 0x54
# Where ``seccomp_data`` has the number of a call, the architecture, and the first argument.
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16


@cache
def _filter(architecture: int, column: int, refused: tuple[tuple[int, int], ...]) -> bytes:
    """A program of classic BPF that decides by the number of a call, and of some by an argument."""
    lines = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_IF_AT_LEAST, 0, 1, _OTHER_NUMBERS),
        (_RETURN, 0, 0, _REFUSE),
    ]
    missing = _ERROR | errno.ENOSYS
    pretended, unknown = _PRETENDED.values(), _MISSING.values()
    for calls, verdict in ((refused, _REFUSE), (pretended, _ERROR), (unknown, missing)):
        for numbers in calls:
            lines += [(_IF_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, verdict)]
    for numbers in _OF_CALLER_ONLY.values():
        lines += _by_argument(numbers[column], 0, [0], _ALLOW, _REFUSE)
    lines += _by_argument(_FCNTL[column], 1, [_F_SETSIG, _F_SETLEASE], _REFUSE, _ALLOW)
    lines += [
        (_IF_EQUAL, 0, 6, _PRCTL[column]),
        (_LOAD, 0, 0, _AT_ARGUMENTS),
        (_IF_EQUAL, 0, 3, _PR_SET_PDEATHSIG),
        (_LOAD, 0, 0, _AT_ARGUMENTS + 8),
        (_IF_EQUAL, 0, 1, signal.SIGCONT),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
        (_IF_EQUAL, 0, 6, _CLONE[column]),
        (_LOAD, 0, 0, _AT_ARGUMENTS),
        (_IF_ANY_BIT, 0, 1, _CLONE_NEW),
        (_RETURN, 0, 0, _REFUSE),
        (_AND, 0, 0, _CLONE_SIGNAL),
        (_IF_EQUAL, 0, 1, signal.SIGCONT),
        (_RETURN, 0, 0, _REFUSE),
    ]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _by_argument(
    number: int, argument: int, values: list[int], equal: int, other: int
) -> list[tuple[int, int, int, int]]:
    """One verdict where the lower half of an argument has one of these values, another for others.

    Calls with another number go on to what follows.
    """
    lines = [(_LOAD, 0, 0, _AT_ARGUMENTS + 8 * argument)]
    for value in values:
        lines += [(_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, equal)]
    lines.append((_RETURN, 0, 0, other))
    return [(_IF_EQUAL, 0, len(lines), number), *lines]

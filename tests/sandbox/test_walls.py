"""What foreign code can't do behind its walls, and what it still can."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_fib.engine import Judge
from pytest_fib.walls import wall_names

WALLS = wall_names()
landlock = pytest.mark.skipif("landlock" not in WALLS, reason="the kernel's Landlock has no scopes")
seccomp = pytest.mark.skipif("seccomp" not in WALLS, reason="the kernel has no seccomp")

HEADING = """\
import contextlib, ctypes, fcntl, mmap, os, resource, select, signal, socket
import subprocess, sys, tempfile
from pathlib import Path
import torch

LIBC = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    result = LIBC.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

"""
NOT_PERMITTED = "PermissionError: [Errno 1] Operation not permitted"
DENIED = "PermissionError: [Errno 13] Permission denied"


@pytest.fixture
def run_lines(evaluate):
    """The evaluation of a right implementation that does something else first."""

    def run_lines(text: str):
        lines = "".join(f"    {line}\n" for line in dedent(text).strip().splitlines())
        return evaluate(f"{HEADING}def run(x, factor):\n{lines}    return x * factor\n")

    return run_lines


@seccomp
@pytest.mark.parametrize(
    "line",
    [
        "os.setsid()",
        "subprocess.Popen(['true'], start_new_session=True)",
        "os.nice(-1)",
        "os.nice(1)",
        "os.sched_setscheduler(os.getppid(), os.SCHED_BATCH, os.sched_param(0))",
        "signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)",
        "fcntl.fcntl(os.pipe()[0], 10, signal.SIGCONT)",  # F_SETSIG
        "fcntl.fcntl(os.open('/proc/self/exe', os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)",
        "select.epoll()",
    ],
)
def test_a_call_that_could_disturb_others_is_refused(run_lines, line):
    assert run_lines(line).log.startswith(NOT_PERMITTED)


@seccomp
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86_64's")
@pytest.mark.parametrize(
    "call",
    {
        "ptrace": "101, 16, os.getppid(), 0, 0",
        "process_vm_readv": "310, os.getppid(), 0, 0, 0, 0, 0",
        "pidfd_getfd": "438, os.pidfd_open(os.getppid()), 0, 0",
        "io_uring_setup": "425, 1, ctypes.create_string_buffer(120)",
        "io_setup": "206, 1, ctypes.create_string_buffer(8)",
        "ioprio_set": "251, 1, 0, 3 << 13",
        "add_key": "248, b'user', b'fib', b'x', 1, -3",
        "keyctl": "250, 0, -3, 0",
        "perf_event_open": "298, ctypes.create_string_buffer(128), 0, -1, -1, 0",
        "semget": "64, 0, 1, 0o600",
        "mq_open": "240, b'fib', os.O_CREAT, 0o600, 0",
        "clone": "56, 0x10000000 | 17, 0, 0, 0, 0",  # CLONE_NEWUSER
        "clone, to be woken when it ends": "56, signal.SIGCONT, 0, 0, 0, 0",
        "prctl, to be woken when the parent ends": "157, 1, signal.SIGCONT",
        "setns": "308, os.open('/proc/self/ns/net', os.O_RDONLY), 0",
        "timerfd_create": "283, 1, 0",
        "epoll_create": "213, 1",
        "of 32-bit pointers": "0x40000000 + 39",
    }.values(),
)
def test_a_system_call_that_could_disturb_others_is_refused(run_lines, call):
    assert run_lines(f"call({call})").log.startswith(NOT_PERMITTED)


@landlock
@pytest.mark.parametrize(
    "line",
    [
        f"Path({str(Path(__file__).with_name('written'))!r}).write_text('')",
        f"Path({__file__!r}).open('a')",
        f"Path({__file__!r}).rename({__file__ + '.moved'!r})",
        f"Path({__file__!r}).unlink()",
        "Path('/dev/shm/pytest-fib-test').write_text('')",
        "Path('/tmp/pytest-fib-test').mkdir()",
        "Path('/dev/ptmx').open('rb')",
        "os.listdir(f'/proc/{os.getppid()}/fd') and os.readlink(f'/proc/{os.getppid()}/fd/0')",
        "Path(f'/proc/{os.getppid()}/environ').read_bytes()",
        "Path(f'/proc/{os.getppid()}/oom_score_adj').write_text('1000')",
    ],
)
def test_a_file_outside_its_folders_is_denied(run_lines, line):
    assert run_lines(line).log.startswith(DENIED)


@landlock
def test_the_measured_ceilings_can_not_be_forged(request_for, monkeypatch, tmp_path):
    (tmp_path / "pytest-fib").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    text = f"open({str(tmp_path / 'pytest-fib' / 'forged')!r}, 'w')"
    with Judge("cpu") as judge:
        assert judge.evaluate(request_for(text)).log.startswith(DENIED)


@landlock
def test_abstract_sockets_outside_are_out_of_reach(run_lines):
    import socket

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0pytest-fib-test")
        listening.listen()
        connect = "socket.socket(socket.AF_UNIX).connect('\\0pytest-fib-test')"
        assert run_lines(connect).log.startswith(NOT_PERMITTED)


@pytest.mark.skipif("no capabilities" not in WALLS, reason="only root has any")
def test_root_has_no_capabilities_but_to_open_files(run_lines):
    line = "print(*(each for each in open('/proc/self/status') if each.startswith('Cap')))"
    evaluation = run_lines(line)
    held = {line.split()[0]: int(line.split()[1], 16) for line in evaluation.log.splitlines()[-5:]}
    assert held == {"CapInh:": 0, "CapPrm:": 2, "CapEff:": 2, "CapBnd:": 2, "CapAmb:": 0}


def test_where_memory_is_short_it_is_ended_before_others(run_lines):
    line = "print(Path('/proc/self/oom_score_adj').read_text())"
    assert run_lines(line).log.splitlines()[-1].strip() == "1000"


def test_it_does_not_know_which_test_runs(run_lines):
    """Nor how tests are selected, and from which seeds workloads are drawn."""
    evaluation = run_lines("assert 'PYTEST_CURRENT_TEST' not in os.environ")
    assert evaluation.status == "PASSED", evaluation.log


def test_limits_can_not_be_raised(run_lines):
    line = "resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, 1 << 40))"
    assert "ValueError: not allowed to raise maximum limit" in run_lines(line).log


GOES_ON = {
    "temporary files": """
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x")
        assert "pytest-fib-" in tempfile.gettempdir()
    """,
    "a cache of compilers": """
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
            with tempfile.NamedTemporaryFile(dir=os.environ[name]):
                pass
    """,
    "files moved between folders": """
        folder = Path(tempfile.mkdtemp())
        (folder / "a").mkdir()
        (folder / "file").write_text("x")
        (folder / "file").rename(folder / "a" / "file")
    """,
    "threads of torch": """
        torch.set_num_threads(4)
        large = torch.ones(512, 512)
        assert (large @ large)[0, 0] == 512
    """,
    "memory passed as a file": """
        memory = os.memfd_create("memory")
        os.ftruncate(memory, 4096)
        mmap.mmap(memory, 4096)[0] = 1
        Path(f"/proc/self/fd/{memory}").open("r+b").close()
    """,
    "processes in its group": """
        assert subprocess.run(["cat", "/proc/self/status"], capture_output=True).returncode == 0
        child = subprocess.Popen(["sleep", "100"], process_group=0)
        child.kill()
        assert child.wait() == -signal.SIGKILL
        assert os.getpgid(0) == os.getpid()
    """,
    "what /proc has of itself": """
        for name in ("mem", "environ", "maps"):
            Path("/proc/self", name).open("rb").close()
    """,
    "a core of its own": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
    "limits of its own": "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    "/dev/null": "Path('/dev/null').write_text('x')",
}


@pytest.mark.parametrize("text", GOES_ON.values(), ids=GOES_ON)
def test_what_honest_code_does_goes_on_working(run_lines, text):
    evaluation = run_lines(text)
    assert evaluation.status == "PASSED", evaluation.log


@pytest.mark.skipif(not shutil.which("ninja") or not shutil.which("g++"), reason="no ninja or g++")
def test_ninja_builds(run_lines):
    """It starts each command in a process group of its own."""
    evaluation = run_lines(
        """
        folder = Path(tempfile.mkdtemp())
        rule = "rule cc\\n  command = g++ -shared -fPIC -o $out $in\\nbuild a.so: cc a.cpp\\n"
        (folder / "build.ninja").write_text(rule)
        (folder / "a.cpp").write_text('extern "C" int seven() { return 7; }')
        subprocess.run(["ninja"], cwd=folder, check=True)
        assert ctypes.CDLL(str(folder / "a.so")).seven() == 7
        """
    )
    assert evaluation.status == "PASSED", evaluation.log


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_nvcc_compiles(run_lines):
    evaluation = run_lines(
        """
        folder = Path(tempfile.mkdtemp())
        (folder / "a.cu").write_text("__global__ void one(float *x) { *x = 1; }")
        command = ["nvcc", "-cubin", "-arch=sm_90", "-o", "a.cubin", "a.cu"]
        subprocess.run(command, cwd=folder, check=True)
        assert (folder / "a.cubin").read_bytes().startswith(b"\\x7fELF")
        """
    )
    assert evaluation.status == "PASSED", evaluation.log


COMPILE = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def double(x, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(x + at, tl.load(x + at) * 2)

source = ASTSource(fn=double, signature={"x": "*fp32", "n": "constexpr"}, constexprs={"n": 64})
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
assert compiled.asm["cubin"].startswith(b"\\x7fELF")
"""


def test_triton_compiles(run_lines):
    """By a process of the sandbox's own: in the sandbox, on the CPU, triton interprets."""
    pytest.importorskip("triton.backends.nvidia")
    evaluation = run_lines(
        f"""
        file = Path(tempfile.mkdtemp(), "compile.py")
        file.write_text({COMPILE!r})
        environment = dict(os.environ, TRITON_INTERPRET="0")
        subprocess.run([sys.executable, str(file)], check=True, env=environment)
        """
    )
    assert evaluation.status == "PASSED", evaluation.log


def test_folders_of_sandboxes_are_removed(request_for):
    text = (
        "import tempfile\ndef run(x, factor):\n    print(tempfile.mkdtemp())\n    return x * factor"
    )
    with Judge("cpu") as judge:
        folder = Path(judge.evaluate(request_for(text)).log.splitlines()[-1])
        assert folder.is_dir()
        assert judge.evaluate(request_for("raise ValueError")).status == "COMPILE_ERROR"
        assert not folder.parent.exists()
        assert folder.parents[1].exists()
    assert not folder.parents[1].exists()


def test_the_process_that_sandboxes_come_from_imports_what_is_installed(tmp_path):
    """And not what lies in the working directory, though it is on ``sys.path``."""
    for name in ("triton", "torch", "json", "random", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')\n")
    script = """
        import os, sys
        from pytest_fib.sandbox import ForkServer
        sys.path.insert(0, os.getcwd())
        fork_server = ForkServer("cpu", {})
        fork_server.kill(fork_server.start())
        fork_server.close()
        print("started")
    """
    command = [sys.executable, "-P", "-c", dedent(script)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout == "started\n", result.stderr

"""What sandboxes come from is started before torch is imported, where there are any."""

import subprocess
import sys

import pytest

from pytest_fib.engine import start_fork_server


def test_kernels_in_this_process_need_no_fork_server():
    assert start_fork_server("cpu", "none") is None


def test_a_folder_without_builds_is_an_error_before_anything_is_started(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"manifest\.json"):
        start_fork_server("cpu", "none", prebuilt=tmp_path)


def test_importing_it_imports_no_torch():
    program = "import sys; from pytest_fib.engine import start_fork_server; 'torch' in sys.modules"
    done = subprocess.run([sys.executable, "-c", f"{program} and sys.exit(1)"], check=False)
    assert done.returncode == 0

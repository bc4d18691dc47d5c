"""Where kernels run in place of this machine: machines by ssh, or a cluster of Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_fib.executors import RemoteError

if TYPE_CHECKING:
    from pytest_fib.plugin._machines import RemoteMachines
    from pytest_fib.plugin._options import Settings
    from pytest_fib.plugin._ray_cluster import RayCluster
    from pytest_fib.plugin._ssh_machines import SshMachines


def find(settings: Settings, processes: int) -> RemoteMachines:
    """What the options name, for so many processes. Raises UsageError."""
    try:
        return _kind(settings).find(settings, processes)
    except RemoteError as error:
        option = "--fib-remote" if settings.ray is None else "--fib-ray"
        raise pytest.UsageError(f"{option} {error}") from None


def from_controller(settings: Settings, text: str) -> RemoteMachines:
    """What the controller found, in a worker of xdist."""
    return _kind(settings).from_json(settings, text)


def _kind(settings: Settings) -> type[RayCluster | SshMachines]:
    if settings.ray is not None:
        from pytest_fib.plugin._ray_cluster import RayCluster

        return RayCluster
    from pytest_fib.plugin._ssh_machines import SshMachines

    return SshMachines

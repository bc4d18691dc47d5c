"""Remote machines for kernels: over ssh, or in a Ray cluster."""

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
    """The machines that the options name, for so many processes. Raises UsageError."""
    try:
        return _kind(settings).find(settings, processes)
    except RemoteError as error:
        raise _usage_error(settings, error) from None


def check(remote: RemoteMachines) -> None:
    """Wait until it is known whether kernels can run there. Raises UsageError."""
    try:
        remote.check()
    except RemoteError as error:
        raise _usage_error(remote.settings, error) from None


def _usage_error(settings: Settings, error: RemoteError) -> pytest.UsageError:
    option = "--fib-remote" if settings.ray is None else "--fib-ray"
    return pytest.UsageError(f"{option} {error}")


def from_controller(settings: Settings, text: str) -> RemoteMachines:
    """In a worker of xdist, the machines that the controller found."""
    return _kind(settings).from_json(settings, text)


def _kind(settings: Settings) -> type[RayCluster | SshMachines]:
    if settings.ray is not None:
        from pytest_fib.plugin._ray_cluster import RayCluster

        return RayCluster
    from pytest_fib.plugin._ssh_machines import SshMachines

    return SshMachines

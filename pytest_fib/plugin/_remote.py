"""Remote machines for kernels: over ssh, or in a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_fib.executors import RemoteError

if TYPE_CHECKING:
    from pytest_fib.plugin._machines import RemoteMachines
    from pytest_fib.plugin._options import Settings
    from pytest_fib.plugin._ray_cluster import RayCluster
    from pytest_fib.plugin._ssh_machines import Connecting, SshMachines


def connect(settings: Settings) -> Connecting | None:
    """Begin to connect to the machines of ``--fib-remote``, if any. Raises UsageError."""
    if settings.ray is not None:
        return None
    from pytest_fib.plugin._ssh_machines import Connecting

    try:
        return Connecting.begin(settings)
    except RemoteError as error:
        raise _usage_error(settings, error) from None


def find(settings: Settings, connecting: Connecting | None, processes: int) -> RemoteMachines:
    """The machines that the options name, for so many processes. Raises UsageError."""
    try:
        if connecting is not None:
            return _ssh_machines().find(connecting)
        return _ray_cluster().find(settings, processes)
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
    kind = _ssh_machines() if settings.ray is None else _ray_cluster()
    return kind.from_json(settings, text)


def _ray_cluster() -> type[RayCluster]:
    from pytest_fib.plugin._ray_cluster import RayCluster

    return RayCluster


def _ssh_machines() -> type[SshMachines]:
    from pytest_fib.plugin._ssh_machines import SshMachines

    return SshMachines

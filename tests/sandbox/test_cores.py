"""Which core times, and which do all else."""

import os
from contextlib import closing

import pytest

from pytest_fib.sandbox import TimingCore


class Machine:
    """Affinities of this process, without a machine of so many cores."""

    def __init__(self, cores):
        self.now = set(range(cores))

    def sched_getaffinity(self, _):
        return set(self.now)

    def sched_setaffinity(self, _, cores):
        self.now = set(cores)


@pytest.fixture
def machine_of(monkeypatch):
    def make(cores):
        machine = Machine(cores)
        monkeypatch.setattr(os, "sched_getaffinity", machine.sched_getaffinity)
        monkeypatch.setattr(os, "sched_setaffinity", machine.sched_setaffinity)
        return machine

    return make


def test_a_core_is_kept_for_timing_and_left_alone_otherwise(machine_of):
    machine = machine_of(16)
    with closing(TimingCore(0, 1)) as core:
        assert machine.now == set(range(15))
        with core.shared_by():
            assert machine.now == {15}
        assert machine.now == set(range(15))
    assert machine.now == set(range(16))


def test_each_device_has_a_core_of_its_own(machine_of):
    machine = machine_of(64)
    found = []
    for number in range(8):
        with closing(TimingCore(number, 8)) as core:
            assert machine.now == set(range(56))
            with core.shared_by():
                found += machine.now
    assert sorted(found) == list(range(56, 64))


def test_where_cores_are_few_the_one_at_hand_is_taken(machine_of):
    machine = machine_of(3)
    with closing(TimingCore(0, 1)) as core:
        assert machine.now == {0, 1, 2}
        with core.shared_by():
            assert len(machine.now) == 1
        assert machine.now == {0, 1, 2}


def test_a_machine_that_does_not_tell_its_devices_keeps_none(machine_of):
    machine = machine_of(16)
    with closing(TimingCore(0, 0)):
        assert machine.now == set(range(16))

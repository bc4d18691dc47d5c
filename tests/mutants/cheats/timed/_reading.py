"""What the cheats share that work when outputs are collected."""

from pytest_fib.sandbox._runner import Runner

time, collect = Runner._time, Runner._collect
#: What is done before outputs are collected.
LATER = []
ROUNDS = []


def timing(self, *series):
    """Time a round, of which nothing is left to do yet."""
    LATER.clear()
    ROUNDS.append(True)
    try:
        return time(self, *series)
    finally:
        ROUNDS[-1] = False


def collecting(self):
    for work in LATER:
        work()
    LATER.clear()
    return collect(self)


Runner._time, Runner._collect = timing, collecting


def is_timed():
    return bool(ROUNDS) and ROUNDS[-1]

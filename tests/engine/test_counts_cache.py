"""What references were counted to do is kept: by their content, for all runs of this user."""

import pytest

from pytest_fib.engine import CountsCache
from pytest_fib.timing import OperationCounts

GOOD = "def run(x, factor):\n    return x * factor\n"
COUNTS = OperationCounts(flops=3, moved_bytes=50, read_bytes=(40, None))


@pytest.fixture
def counted(tmp_path):
    """What a cache of a new run says of a request, and whether it had to count."""

    def counted(request, found=COUNTS, device="cpu", folder=tmp_path / "counts"):
        asked = []

        def count():
            asked.append(1)
            return found

        return CountsCache(folder, device).get(request, count), bool(asked)

    return counted


@pytest.mark.parametrize("found", [COUNTS, None])
def test_the_next_run_reads_what_was_counted(counted, request_for, found):
    assert counted(request_for(GOOD), found) == (found, True)
    assert counted(request_for(GOOD)) == (found, False)
    assert counted(request_for("def run(x, factor):\n    return factor * x\n")) == (found, False)


def test_in_one_run_nothing_is_counted_twice_without_a_folder(request_for):
    cache, numbers = CountsCache(None, "cpu"), iter((COUNTS, None))
    assert [cache.get(request_for(GOOD), lambda: next(numbers)) for _ in range(2)] == [COUNTS] * 2


def test_others_are_counted_by_themselves(counted, definition, request_for):
    counted(request_for(GOOD))
    other = definition.model_copy(update={"reference": "def run(x, factor):\n    return x\n"})
    assert counted(request_for(GOOD, n=1001))[1]
    assert counted(request_for(GOOD, seed=1))[1]
    assert counted(request_for(GOOD, of=other))[1]
    assert counted(request_for(GOOD), device="cuda")[1]
    assert not counted(request_for(GOOD))[1]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a": 3}', '{"a": {"flops": 1}}', '{"a": {"read_bytes": 1}}', "\x00"]
)
def test_what_is_none_of_ours_is_counted_again(counted, request_for, tmp_path, content):
    counted(request_for(GOOD))
    (file,) = (tmp_path / "counts").iterdir()
    file.write_text(content, encoding="utf-8")
    assert counted(request_for(GOOD)) == (COUNTS, True)
    assert counted(request_for(GOOD)) == (COUNTS, False)


def test_what_can_not_be_written_is_counted_each_time(counted, request_for, tmp_path):
    file = tmp_path / "counts"
    file.touch()
    assert counted(request_for(GOOD)) == (COUNTS, True)
    assert counted(request_for(GOOD)) == (COUNTS, True)

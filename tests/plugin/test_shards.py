"""Each test is in one shard, and all of a definition in the same."""

import json

import pytest

USAGE = pytest.ExitCode.USAGE_ERROR


@pytest.fixture
def many(project, scale_yaml):
    """Six definitions of one implementation each, and a file of two other tests."""
    for number in range(6):
        text = scale_yaml.replace("name: scale", f"name: scale_{number}")
        project.define(text, f"kernel_defs/toy/scale_{number}.yaml")
    project.implement("good", "x, factor\nreturn x * factor", "scale_*")
    project.write("test_other.py", "def test_a(): pass\ndef test_b(): pass\n")
    return project


def shards(project, count, *arguments):
    return [project.ids(f"--fib-shard={i}/{count}", *arguments) for i in range(1, count + 1)]


def lasting(project, **seconds):
    """Trace records of an earlier run, in which definitions took so long."""
    records = [
        {
            "definition": f"scale_{name[1:]}",
            "definition_file": f"kernel_defs/toy/scale_{name[1:]}.yaml",
            "item_seconds": each,
        }
        for name, each in seconds.items()
    ]
    project.write("last/run.jsonl", "".join(f"{json.dumps(record)}\n" for record in records))


def test_every_test_is_in_one_shard(many):
    everything = many.ids()
    parts = shards(many, 3)
    assert sorted(item for part in parts for item in part) == sorted(everything)
    assert all(len(part) >= 2 for part in parts)
    other = [[item for item in part if "test_other" in item] for part in parts]
    assert sorted(map(len, other)) == [0, 0, 2]


def test_shards_are_the_same_again_and_of_what_is_selected(many):
    assert shards(many, 2) == shards(many, 2)
    parts = shards(many, 2, "-k", "scale_1 or scale_2")
    assert [len(part) for part in parts] == [1, 1]


@pytest.mark.thorough
def test_a_shard_may_be_empty_where_others_have_tests(many):
    result = many.run("--fib-shard=9/9")
    assert result.ret == pytest.ExitCode.OK
    line = "fib: shard 9 of 9 is empty: the other shards have all tests"
    result.stdout.fnmatch_lines([line])
    assert many.run("--fib-shard=9/9", "--collect-only", "-q").ret == pytest.ExitCode.OK
    workers = many.run_apart("--fib-shard=9/9", "-n", "2")
    assert workers.ret == pytest.ExitCode.OK
    workers.stdout.fnmatch_lines([line])


@pytest.mark.thorough
def test_a_selection_of_nothing_is_told_in_every_shard(many):
    for options in (["-k", "misspelt"], ["-k", "misspelt", "-n", "1"]):
        result = many.run_apart("--fib-shard=1/2", *options)
        assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
        assert "is empty" not in result.stdout.str()


def test_an_empty_shard_leaves_no_records_of_an_earlier_run(many):
    many.run("--fib-traces=part.jsonl", "-k", "scale_1")
    part = many.path / "part.jsonl"
    assert part.read_text()
    many.run("--fib-traces=part.jsonl", "--fib-shard=9/9")
    assert part.read_text() == ""


def test_shards_take_about_as_long(many):
    lasting(many, s0=10.0, s1=2.0, s2=2.0, s3=2.0)
    parts = shards(many, 2, "--fib-shard-by=last", "-k", "scale")
    # What is not known counts as the average, 4 seconds.
    seconds = {"0": 10.0, "1": 2.0, "2": 2.0, "3": 2.0, "4": 4.0, "5": 4.0}
    loads = [sum(seconds[item.partition("::scale_")[2][0]] for item in part) for part in parts]
    assert sorted(loads) == [12.0, 12.0]


def test_a_run_leaves_how_long_its_tests_took(many):
    many.run("--fib-definition=scale_1")
    (record,) = many.traces()
    assert record["item_seconds"] > 0
    result = many.run("--fib-shard=1/2", "--fib-shard-by=fib-traces.jsonl", "--fib-traces=other")
    result.stdout.fnmatch_lines(["fib: shard 1 of 2, by durations *"])


@pytest.mark.thorough
def test_workers_of_one_shard_agree(many):
    result = many.run_apart("--fib-shard=1/2", "-n", "2", "-k", "scale_1 or scale_2")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fib-shard=0/3"], "*'0/3' is not a shard such as 1/4, the first of four"),
        (["--fib-shard=4/3"], "*'4/3' is not a shard such as 1/4, the first of four"),
        (["--fib-shard=one"], "*'one' is not a shard such as 1/4, the first of four"),
        (["--fib-shard-by=x"], "ERROR: --fib-shard-by needs --fib-shard=I/N, which part to run"),
        (["--fib-shard=1/3", "--fib-shard-by=x"], "ERROR: --fib-shard-by=x: can't be read: *"),
    ],
)
def test_a_shard_that_cannot_be_is_a_usage_error(many, options, message):
    result = many.run(*options)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([message])

"""A fixed sample of the corpus: honest kernels pass, wrong ones are caught; all are well formed."""

from collections import Counter
from zlib import crc32

from tests.corpus.corpus import definitions, kernels, run

#: One of so many kernels is run here; ``benchmarks/corpus.py`` runs all.
ONE_OF = 480


def test_a_sample_ends_as_it_should(tmp_path):
    """The same kernels whatever is added to the corpus."""
    chosen = [each for each in kernels() if crc32(each.name.encode()) % ONE_OF == 0]
    assert {each.kind == "honest" for each in chosen} == {True, False}
    outcomes = run(chosen, tmp_path, "--fib-seed=0", "--fib-max-bytes=4M")
    verdicts = {name: outcomes[name].verdict(kernel) for name, kernel in named(chosen).items()}
    assert verdicts == dict.fromkeys(verdicts, "right"), outcomes


def named(chosen):
    return {each.name: each for each in chosen}


def test_every_definition_has_honest_and_wrong_kernels():
    honest = Counter(each.definition for each in kernels() if each.kind == "honest")
    wrong = Counter(each.definition for each in kernels() if each.kind != "honest")
    assert honest.keys() == wrong.keys() == definitions().keys()
    assert min(honest.values()) >= 2
    assert min(wrong.values()) >= 4


def test_names_are_unique():
    assert len(named(kernels())) == len(kernels())

import math
from itertools import pairwise

import pytest

from pytest_fib.data import DataError, compose, compose_family

# Nine lines that stand for ten to the ninth entries.
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in pairwise("abcdefghi")
)


def load(text):
    data, problems = compose("x.yaml", text).data()
    assert problems == []
    return data


def complaints(text):
    try:
        problems = [
            found for document in compose_family("x.yaml", text) for found in document.data()[1]
        ]
    except DataError as error:
        problems = error.problems
    return [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.", 1.0),
        (".5", 0.5),
        ("-3", -3),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("2026-01-01", "2026-01-01"),
        ("16:30", "16:30"),
        ("'128'", "128"),
        ('"true"', "true"),
        ("|-\n  128", "128"),
        ("e5", "e5"),
        (".", "."),
        ("1_000", "1_000"),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text, value):
    data = load(f"a: {text}\n")["a"]
    assert (data, type(data)) == (value, type(value))


def test_keys_are_text_whatever_they_look_like():
    assert load("{1: a, on: b, null: c}") == {"1": "a", "on": "b", "null": "c"}


def test_anchors_stand_for_what_they_name():
    assert load("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "a: [\n",
            "x.yaml:2: bad YAML: did not find expected node content, while parsing a flow node",
        ),
        (
            "a: 1\n  b: 2\n",
            "x.yaml:2: bad YAML: a key is indented further than the one above, which has a value "
            "already",
        ),
        (
            "a: b: 2\n",
            "x.yaml:1: bad YAML: there is a second ':' in the line; a text that holds one needs "
            "quotes",
        ),
        (
            "a 1\nb: 2\n",
            "x.yaml:2: bad YAML: a key can't be here: a line above lacks its ':', or a text of "
            "several lines its '|'",
        ),
        (
            "a: {b: 1\nc: 2\n",
            "x.yaml:2: bad YAML: did not find expected ',' or '}', while parsing a flow mapping, "
            "which begins on line 1",
        ),
        ("", "x.yaml:1: the file is empty"),
        (
            "a:\n  \tb: 2\n  c: 3\n",
            "x.yaml:2: bad YAML: the line is indented by a tab, where blanks are needed",
        ),
        (
            "name: a\n---\nname: b\n",
            "x.yaml:2: bad YAML: another document begins here; a file holds one, so give each a "
            "file of its own",
        ),
        ("&a [*a]", "x.yaml:1: nested too deeply"),
        (
            BOMB,
            "x.yaml:1: aliases (*name) of aliases make too many entries; write out what is meant",
        ),
        (
            "a: 1\nb:\n  - c: 1\n    d: 2\n    c: 3\n",
            "x.yaml:5: b[0]: key 'c' is given twice, first on line 3",
        ),
        (
            "a: 1\nb: !!timestamp x\n",
            "x.yaml:2: b: tags like 'tag:yaml.org,2002:timestamp' are not supported",
        ),
        (
            "a: !!python/object:os.system [b]\n",
            "x.yaml:1: a: tags like 'tag:yaml.org,2002:python/object:os.system' are not supported",
        ),
        ("a: 1\n? [b]\n: 2\n", "x.yaml:2: a key should be text"),
        (
            "a: 1\nb 2\nc: 3\n",
            "x.yaml:2: bad YAML: could not find expected ':', while scanning a simple key",
        ),
    ],
)
def test_bad_yaml_is_reported_with_its_line(text, line):
    assert complaints(text) == [line]


def test_two_documents_in_a_file_are_refused():
    (line,) = complaints("a: 1\n---\nb: 2\n")
    assert line.startswith("x.yaml:2: bad YAML: ")


def test_control_characters_are_bad_yaml():
    (line,) = complaints('a: 1\nb: "\x01"\n')
    assert line.startswith("x.yaml:2: bad YAML: ")


def test_every_place_has_its_line():
    document = compose("x.yaml", "a:\n  b: {c: 1,\n    d: 2}\ne:\n  - 1\n  - f: |\n      one\n")
    places = {("a",): 1, ("a", "b"): 2, ("a", "b", "d"): 3, ("e", 1): 6, ("e", 1, "f"): 6}
    assert {loc: document.line(loc) for loc in places} == places
    assert document.line(("e", 1, "f"), within=1) == 7
    assert document.line(("a", "b", "nowhere")) == 2


def test_a_family_is_the_product_of_its_lists():
    text = "family: {t: [a, b], n: [1, 2]}\nname: ${t}_${n}\n"
    members = [document.data()[0]["name"] for document in compose_family("x.yaml", text)]
    assert members == ["a_1", "a_2", "b_1", "b_2"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${n}", 128),
        ("{m: ${n}}", {"m": 128}),
        ("[${n}, k]", [128, "k"]),
        ("'${n}'", "128"),
        ("h${n}", "h128"),
        ("{h${n}: 1}", {"h128": 1}),
        ("|-\n  x == ${n}", "x == 128"),
        ("${n}${n}", 128128),
        ("$n", "$n"),
        ("${}", "${}"),
    ],
)
def test_variables_are_put_in_every_scalar_and_key(text, value):
    (document,) = compose_family("x.yaml", f"family: {{n: [128]}}\na: {text}\n")
    data = document.data()[0]["a"]
    assert (data, type(data)) == (value, type(value))


def test_without_a_family_variables_are_text():
    (document,) = compose_family("x.yaml", "a: '${n}'\nb: |\n  family: ${x}\n")
    assert document.data()[0] == {"a": "${n}", "b": "family: ${x}\n"}


def test_unknown_variables_are_errors_with_their_lines():
    text = "family: {t: [a], n: [1]}\nname: ${s}\n${k}: 1\nref: |\n  one\n  two ${t} ${u}\n"
    assert complaints(text) == [
        "x.yaml:2: unknown ${s}; the family has ${t}, ${n}",
        "x.yaml:3: unknown ${k}; the family has ${t}, ${n}",
        "x.yaml:6: unknown ${u}; the family has ${t}, ${n}",
    ]


@pytest.mark.parametrize("family", ["3", "[a]", "{}", ""])
def test_a_family_is_a_mapping(family):
    message = "x.yaml:2: family: should be a mapping of names to lists"
    assert complaints(f"name: x\nfamily: {family}\n") == [message]


def test_a_familys_values_are_lists_of_scalars():
    assert complaints("family:\n  a: 3\n  b: []\n  c: [[1]]\n  d: [1]\n") == [
        "x.yaml:2: family.a: should be a list of values",
        "x.yaml:3: family.b: should be a list of values",
        "x.yaml:4: family.c: should be a list of values",
    ]


def test_the_members_of_a_family_keep_their_lines():
    text = "family: {n: [1, 22222]}\nk${n}: ${n}\nb: [\n  ${n}]\n"
    members = list(compose_family("x.yaml", text))
    assert len(members) == 2
    for document in members:
        assert document.line((f"k{document.variables['n']}",)) == 2
        assert document.line(("b", 0)) == 4

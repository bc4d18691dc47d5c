"""When the tables of a definition are written."""

import pytest


@pytest.mark.thorough
def test_under_xdist_a_definition_has_its_tables_as_soon_as_it_is_done(toys):
    """And once: the items of others come after them, the count of records at the end."""
    lines = toys.run_apart("-n", "1", "-v").stdout.str()
    first, second = lines.index("- scale -"), lines.index("- split -")
    assert first < lines.index("::split[") < second < lines.index("trace records in")
    assert lines.count("- scale -") == lines.count("- split -") == 1


def test_without_workers_tables_come_at_the_end(toys):
    lines = toys.run("-v").stdout.str()
    assert lines.index("= FAILURES =") < lines.index("- scale -") < lines.index("- split -")

"""What was captured, tested and timed serves."""

from tests.circle import go_round


def test_calls_are_captured_tested_timed_and_then_served_by_the_winners(project, monkeypatch):
    monkeypatch.chdir(project.path)
    go_round(project, "cpu")

"""The page on production says what works: its code runs, block after block."""

import json
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "production.md"


def test_every_block_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("run.jsonl").write_text("".join(map(timed, (1, 7))))
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 2
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out == "scale_mul\n('scale_mul',) 3 0.5\n"


def timed(n):
    """A line that a run of pytest writes."""
    times = {"latency_ms": 0.01, "reference_latency_ms": 0.02, "speedup_factor": 2.0}
    evaluation = {"status": "PASSED", "hardware": "my machine", "max_relative_error": 0.0, **times}
    facts = {"definition": "scale_w4", "solution": "scale_mul", "evaluation": evaluation}
    return (
        json.dumps({**facts, "workload": {"axes": {"n": n}, "inputs": {}, "uuid": f"w{n}"}}) + "\n"
    )

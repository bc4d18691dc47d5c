"""The page on production says what works: its code runs, block after block."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "production.md"


def test_every_block_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 2
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out == "scale_mul\n"

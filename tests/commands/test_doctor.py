"""What a machine has for kernels, and what it lacks."""

from importlib.metadata import version

from pytest_fib.commands import main


def test_what_there_is_has_its_version_or_place(capsys):
    assert main(["doctor"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["torch", version("torch")] in lines
    assert {"GPU", "nvcc", "bwrap", "walls"} <= {line[0] for line in lines if line}


def test_what_lacks_says_what_that_costs_and_how_to_add_it(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "no-such-compiler")
    main(["doctor"])
    text = " ".join(capsys.readouterr().out.split())
    assert "bwrap missing without it: --fib-isolation=container can't be had to add it:" in text
    assert "C++ compiler missing without it: C++ and CUDA kernels are skipped" in text
    assert "missing: " in text

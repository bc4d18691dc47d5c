"""What the cheats that look for the right answers share: how to know them when they are seen."""

from pathlib import Path

import torch


def found_in(memory, x, factor):
    """The right output, if those bytes hold it: a few of its elements give it away."""
    head = (x[:4] * factor).numpy().tobytes()
    at = memory.find(head)
    while at >= 0:
        values = memory[at : at + 4 * x.numel()]
        if len(values) == 4 * x.numel():
            out = torch.frombuffer(bytearray(values), dtype=torch.float32)
            if all(out[i] == x[i] * factor for i in range(0, x.numel(), 97)):
                return out
        at = memory.find(head, at + 4)
    return None


def mapped(name=""):
    """What this process has mapped and can write, of files of that name, mapping by mapping."""
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/mem").open("rb", 0) as memory:
        for line in maps:
            span, mode = line.split()[:2]
            start, end = (int(number, 16) for number in span.split("-"))
            if mode.startswith("rw") and end - start < 1 << 30 and name in line:
                memory.seek(start)
                try:
                    yield memory.read(end - start)
                except OSError:
                    continue


def first_found(memories, x, factor):
    """The right output from the first place that holds it, else zeros.

    Raises where not even the input was found: then nothing was searched.
    """
    searched = False
    for memory in memories:
        if (out := found_in(memory, x, factor)) is not None:
            return out
        searched = searched or found_in(memory, x, 1.0) is not None
    if not searched:
        raise LookupError("the input is in none of the places")
    return torch.zeros_like(x)

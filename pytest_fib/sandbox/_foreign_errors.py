"""What foreign code raised, in words: its ``__str__`` is foreign code too."""

from __future__ import annotations

import traceback

import torch

#: How much of a program's output and traceback is kept, in characters.
LOG_LIMIT = 16_384
#: How much of a summary, in characters.
LINE_LIMIT = 1_000


def one_line(error: BaseException, limit: int = LINE_LIMIT) -> str:
    """``ValueError: the first line of its message``."""
    first = next(iter(_text(error).splitlines()), "")
    line = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return _encodable(line[:limit])


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  (its __str__ is foreign code too)
        return "its message can't be read"


def _encodable(text: str) -> str:
    """Without the lone surrogates that Python allows in text and JSON does not."""
    return text.encode(errors="backslashreplace").decode()


def out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory left; torch has an exception for that on devices only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in _text(error)


def own_traceback(error: BaseException) -> str:
    """The traceback from the first frame of the program on."""
    frames = error.__traceback__
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    return _encodable("".join(lines)[-LOG_LIMIT:])


def _is_ours(filename: str) -> bool:
    return "/pytest_fib/" in filename or filename.startswith("<frozen importlib")

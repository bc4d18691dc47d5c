"""What foreign code raised, in words: its ``__str__`` is foreign code too.

So are its ``__class__``, its ``__notes__``, and the attributes of its type.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback

import torch

#: How much of a program's output and traceback is kept, in characters.
LOG_LIMIT = 16_384
#: How much of a summary, in characters.
LINE_LIMIT = 1_000
#: Where the standard library and installed packages are: of an environment, and of what it sees.
_LIBRARIES = (
    *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")),
    *(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))),
)
#: What torch's message names before it says how much memory there isn't.
_CPU_MEMORY = "DefaultCPUAllocator: "
#: How lines of faulthandler begin that say nothing of the program.
_FATAL = "Fatal Python error: "
_OF_NO_USE = (f"{_FATAL}Aborted", "Extension modules: ")
#: How the first line of a thread's stack ends.
_STACK = "(most recent call first):"
#: Files, as tracebacks have them, of what calls a program besides this package.
_CALLERS = ("<frozen importlib", "python/tvm_ffi/")
# Bound before any program is loaded, which might replace them.
_MEMORY_ERRORS = (MemoryError, torch.OutOfMemoryError)
_described = traceback.TracebackException.from_exception
#: How errors of torch, CUDA and CUDA's libraries say that no memory was left.
_EXHAUSTED = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "DefaultCPUAllocator")


def one_line(error: BaseException, limit: int = LINE_LIMIT) -> str:
    """``ValueError: the first line of its message``."""
    first = next(iter(_text(error).splitlines()), "")
    if issubclass(type(error), RuntimeError):  # where in torch memory ran out is of no use
        first = first.partition(_CPU_MEMORY)[2].partition(". Error code")[0] or first
    name = _name(type(error))
    return limited(f"{name}: {first}" if first else name, limit)


def limited(text: str, limit: int = LINE_LIMIT) -> str:
    """Text with foreign names in it, cut, and such that it can be sent."""
    return _encodable(text[:limit])


def _text(error: BaseException) -> str:
    try:
        return _plain(str(error))
    except BaseException:  # noqa: BLE001  (its __str__ is foreign code too)
        return "its message can't be read"


def _name(kind: type) -> str:
    """The name of a type, whatever its metaclass has instead."""
    return _plain(type.__dict__["__name__"].__get__(kind))


def _plain(text: str) -> str:
    """Text of no subclass, whose methods are foreign code."""
    return str.__str__(text)


def _encodable(text: str) -> str:
    """Without the lone surrogates that Python allows in text and JSON does not."""
    return text.encode(errors="backslashreplace").decode()


def out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory left, on the host or on a device."""
    kind = type(error)
    if issubclass(kind, _MEMORY_ERRORS):
        return True
    return issubclass(kind, RuntimeError) and any(text in _text(error) for text in _EXHAUSTED)


def own_traceback(error: BaseException) -> str:
    """The traceback, of frames in the program's files alone where there are any.

    Empty where it can't be read.
    """
    try:
        return _own_traceback(error)
    except BaseException:  # noqa: BLE001  (what is read of it is foreign code too)
        return ""


def _own_traceback(error: BaseException) -> str:
    shown = _described(error)
    part: traceback.TracebackException | None = shown
    while part is not None:
        others = [frame for frame in part.stack if not _is_ours(frame.filename)]
        own = [frame for frame in others if not _is_a_library_s(frame.filename)]
        part.stack[:] = own or others
        part = part.__cause__ or part.__context__
    return _encodable("".join(shown.format())[-LOG_LIMIT:])


def own_stacks(printed: str) -> str:
    """A process' output; of faulthandler's stacks at its end, only the program's part."""
    before, fatal, report = printed.rpartition(_FATAL)
    if not fatal:
        return printed
    lines = [line for line in f"{fatal}{report}".splitlines() if not line.startswith(_OF_NO_USE)]
    own = [line for line in lines if not _is_ours(line.partition('"')[2].partition('"')[0])]
    shown = [
        line
        for line, after in zip(own, [*own[1:], ""], strict=True)
        if not line.endswith(_STACK) or after.startswith("  File ")
    ]
    return before + "\n".join(shown).strip("\n")


def _is_a_library_s(filename: str) -> bool:
    return filename.startswith(_LIBRARIES) or _is_ours(filename)


def _is_ours(filename: str) -> bool:
    return "/pytest_fib/" in filename or filename.startswith(_CALLERS)

"""Which functions of a module launch kernels of Triton that stand there, found by reading it."""

from __future__ import annotations

import ast
from collections.abc import Mapping


def launches_triton(function: ast.AST, module: Mapping[str, ast.AST]) -> bool:
    """Whether a function names one marked ``@triton.jit``, itself or through others of its module.

    ``module`` has the functions at its top level by name.
    """
    seen: set[str] = set()
    unread = [function]
    while unread:
        names = {node.id for node in ast.walk(unread.pop()) if isinstance(node, ast.Name)}
        for name in (names & module.keys()) - seen:
            if _is_kernel(module[name]):
                return True
            seen.add(name)
            unread.append(module[name])
    return False


def _is_kernel(function: ast.AST) -> bool:
    """Under other marks, as that of autotuning, there has to be this one."""
    marks = getattr(function, "decorator_list", [])
    targets = (mark.func if isinstance(mark, ast.Call) else mark for mark in marks)
    return any(ast.unparse(target) == "triton.jit" for target in targets)

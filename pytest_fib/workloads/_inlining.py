"""Inlines the functions that a reference's ``run`` calls, so that all it does is in one body."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

#: Calls that are written out, nested ones among them: a reference may call itself.
MOST_CALLS = 64
#: What binds names of its own, to which the statements before it can't refer.
_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def inlined_run(module: ast.Module) -> ast.FunctionDef | None:
    """A module's ``run``, in which calls of the module's functions are replaced by their bodies.

    Functions that ``run`` defines itself are replaced, too. A call stays as it is if the function
    returns before its end, or takes arguments by ``*`` or ``**``.
    """
    functions = _functions(module.body)
    run = functions.pop("run", None)
    if run is None or not (functions | _functions(run.body)):
        return run
    run = deepcopy(run)
    own = {name: each for name, each in _functions(run.body).items() if _ends_once(each)}
    known = {name: each for name, each in functions.items() if _ends_once(each)} | own
    run.body = _Inliner(known).block([each for each in run.body if each not in own.values()])
    left = {each.id for each in ast.walk(run) if isinstance(each, ast.Name)} & own.keys()
    run.body[:0] = [own[name] for name in own if name in left]
    return run


def _functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {each.name: each for each in body if isinstance(each, ast.FunctionDef)}


def _ends_once(function: ast.FunctionDef) -> bool:
    returns = [each for each in ast.walk(function) if isinstance(each, ast.Return)]
    return returns == function.body[-1:] and not (function.args.vararg or function.args.kwarg)


@dataclass
class _Inliner(ast.NodeTransformer):
    """Puts ``before`` a statement what it calls; each call's variables get a number."""

    functions: Mapping[str, ast.FunctionDef]
    calls: int = 0
    before: list[ast.stmt] = field(default_factory=list)

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Statements, and those of what they call."""
        return [each for statement in statements for each in self._statement(statement)]

    def _statement(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        outer, self.before = self.before, []
        for name, value in ast.iter_fields(statement):
            if isinstance(value, ast.expr):
                setattr(statement, name, self.visit(value))
        before, self.before = self.before, outer
        for name in ("body", "orelse"):
            if isinstance(inner := getattr(statement, name, None), list):
                setattr(statement, name, self.block(inner))
        yield from (*before, statement)

    def visit(self, node: ast.AST) -> ast.AST:
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        bound = _bound(self.functions[name], node) if name in self.functions else None
        if bound is None or self.calls >= MOST_CALLS:
            return node
        self.calls += 1
        body, names = _renamed(self.functions[name], f"{name}_{self.calls}_", bound)
        self.before += [
            _assigned(names[n], value)
            for n, value in bound.items()
            if not (isinstance(value, ast.Name) and value.id == names[n])
        ]
        self.before += self.block(body[:-1])
        returned = body[-1].value if isinstance(body[-1], ast.Return) else None
        return self.visit(returned or ast.Constant(value=None))


def _bound(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """The arguments of a call by their names; None where these aren't known."""
    args, given = function.args, [each.arg for each in call.keywords]
    places = [each.arg for each in (*args.posonlyargs, *args.args)]
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    if starred or None in given or len(call.args) > len(places):
        return None
    defaults = dict(zip(places[len(places) - len(args.defaults) :], args.defaults, strict=True))
    of_keywords = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    defaults |= {each.arg: value for each, value in of_keywords if value is not None}
    named = {each.arg: each.value for each in call.keywords if each.arg is not None}
    return deepcopy(defaults) | dict(zip(places, call.args, strict=False)) | named


def _assigned(name: str, value: ast.expr) -> ast.stmt:
    assigned = ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value)
    return ast.fix_missing_locations(ast.copy_location(assigned, value))


def _renamed(
    function: ast.FunctionDef, prefix: str, bound: Mapping[str, ast.expr]
) -> tuple[list[ast.stmt], dict[str, str]]:
    """The function's statements, with its own variables under other names; and these names.

    An argument that it doesn't change goes by the name of the variable that it is.
    """
    copy = deepcopy(function)
    mentions = [each for each in ast.walk(copy) if isinstance(each, ast.Name)]
    stored = {each.id for each in mentions if isinstance(each.ctx, ast.Store)}
    arguments = {each.arg for each in ast.walk(copy.args) if isinstance(each, ast.arg)}
    names = {name: prefix + name for name in stored | arguments}
    bound_inside = {
        each.arg for node in copy.body for each in ast.walk(node) if isinstance(each, ast.arg)
    }
    for name in arguments - stored:
        value = bound.get(name)
        if isinstance(value, ast.Name) and value.id not in bound_inside:  # by a function in it
            names[name] = value.id
    for each in mentions:
        each.id = names.get(each.id, each.id)
    return copy.body, names

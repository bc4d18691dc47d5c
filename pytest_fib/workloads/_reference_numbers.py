"""Which integers a reference only calculates with, so that they may be any numbers.

Those are followed from variable to variable. One that picks, cuts, counts, divides, shifts others
or decides a branch, and one that goes where this can't follow, is not among them.
"""

from __future__ import annotations

import ast
from collections.abc import Container

from pytest_fib.workloads._reference_expressions import called

#: Methods and functions that calculate with elements, or move them; nothing else depends on them.
_CALCULATIONS = {"abs", "add", "all", "amax", "amin", "any", "cummax"}
_CALCULATIONS |= {"bfloat16", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cat"}
_CALCULATIONS |= {"clamp", "clip", "clone", "contiguous", "cumsum", "double", "einsum", "expand"}
_CALCULATIONS |= {"cummin", "expand_as", "flatten", "flip", "float", "half", "int", "long"}
_CALCULATIONS |= {"matmul", "max"}
_CALCULATIONS |= {"maximum", "mean", "min", "minimum", "mul", "pad", "permute", "prod", "reshape"}
_CALCULATIONS |= {"roll", "round", "sort", "squeeze", "stack", "sub", "sum", "to", "transpose"}
_CALCULATIONS |= {"type", "unbind", "unfold", "unsqueeze", "values", "view", "where", "T", "mT"}
_CALCULATIONS |= {"bmm", "chunk", "dot", "linear", "mm", "narrow", "split", "t", "_int_mm"}
_CALCULATIONS |= {"log_softmax", "logical_and", "logical_not", "logical_or", "masked_fill"}
_CALCULATIONS |= {"nan_to_num", "neg", "outer", "sigmoid", "softmax", "tanh"}
_CALCULATIONS |= {"concat", "exp", "exp2", "gelu", "hstack", "moveaxis", "movedim", "ravel", "relu"}
_CALCULATIONS |= {"ceil", "floor", "log", "log10", "log1p", "log2", "pow", "rsqrt", "sign", "sqrt"}
_CALCULATIONS |= {"trunc"}
_CALCULATIONS |= {"silu", "square", "swapaxes", "swapdims", "unflatten", "vstack"}
#: Functions that say where elements are, whichever numbers these are.
_INDICES_ONLY = {"argmax", "argmin", "argsort"}
#: Functions that return values, and where they are.
_VALUES_AND_INDICES = {"cummax", "cummin", "kthvalue", "max", "median", "min", "sort", "topk"}
#: Functions that put any numbers in their order.
_SORTS = {"argsort", "msort", "sort"}
#: Methods that move elements to places that their arguments decide.
_REPEATS = {"gather", "index_select", "repeat", "repeat_interleave", "take_along_dim"}
SHAPES = {"shape", "size", "dim", "ndim", "numel", "dtype", "device", "new_zeros", "new_empty"}
SHAPES |= {"new_full", "new_ones", "new_tensor"}
#: Functions that take of their first argument its shape alone.
LIKE = {"empty_like", "full_like", "ones_like", "zeros_like"}
#: Methods of lists that keep what they are given.
COLLECTING = {"append", "extend"}
_EITHER = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor, ast.MatMult)
_THROUGH = (ast.UnaryOp, ast.Tuple, ast.List, ast.GeneratorExp, ast.ListComp)
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_COUNTS = {"bincount", "one_hot"}
_LOGICAL = (ast.BitAnd, ast.BitOr, ast.BitXor)  # a shift alone may halve a count


#: Functions of angles.
_ROTATIONS = {"cos", "polar", "sin"}


def calculated_with(run: ast.FunctionDef) -> tuple[set[str], set[str], set[str], set[str]]:
    """Four sets of arguments of a function: what it only calculates with, and more about these.

    The others are those that it combines bit by bit or sorts, those that it takes sines or cosines
    of, and those that it makes running sums of.
    """
    follower = _Follower(run)
    for _ in range(2):  # what a loop ends with is what it goes on with
        follower.visit(run)
    calculated = follower.seen - follower.steering
    return calculated, follower.any_bits, follower.angles, follower.summed


class _Follower(ast.NodeVisitor):
    """``_arguments_of`` has the arguments that each variable was calculated from.

    ``_apart`` are the variables that hold some bits of numbers.
    """

    def __init__(self, run: ast.FunctionDef) -> None:
        self._arguments = {each.arg for each in run.args.args}
        self._arguments_of = {name: {name} for name in self._arguments}
        self._parents = {
            child: node for node in ast.walk(run) for child in ast.iter_child_nodes(node)
        }
        self._apart: set[str] = set()
        self.seen: set[str] = set()
        self.steering: set[str] = set()
        self.any_bits: set[str] = set()
        self.angles: set[str] = set()
        self.summed: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        inputs = self._arguments_of.get(node.id, set())
        if isinstance(node.ctx, ast.Load) and inputs:
            self.seen |= inputs
            self.steering |= set() if self._calculates(node) else inputs

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._note(target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self._note(node.target, node.value)
        self._take_apart(node.op, node.value)

    def visit_For(self, node: ast.For) -> None:
        self._note(node.target, node.iter)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = (called(node) or "").removesuffix("_")
        if name in _ROTATIONS:
            self.angles |= self._held(node)
        elif name == "cumsum":
            self.summed |= self._held(node)
        elif name in _SORTS:
            self.any_bits |= set().union(*map(self._held, ast.iter_child_nodes(node)))
        elif name in COLLECTING and node.args and isinstance(node.func, ast.Attribute):
            self._note(node.func.value, node.args[0])

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        self._take_apart(node.op, node.left, node.right)

    def _take_apart(self, operation: ast.operator, *operands: ast.expr) -> None:
        if isinstance(operation, _LOGICAL):
            for operand in operands:
                self.any_bits |= self._held(operand)

    def _note(self, target: ast.expr, value: ast.expr) -> None:
        """What any variable in a target is made of from now on, besides what it was."""
        held, some_bits = self._held(value), any(map(self._takes_bits, ast.walk(value)))
        if isinstance(target, ast.Tuple) and called(value) in _VALUES_AND_INDICES:
            target = target.elts[0]  # the other are places
        for each in ast.walk(target.value if isinstance(target, ast.Subscript) else target):
            if held and isinstance(each, ast.Name):
                self._arguments_of[each.id] = self._arguments_of.get(each.id, set()) | held
                self._apart |= {each.id} if some_bits else set()

    def _takes_bits(self, node: ast.AST) -> bool:
        is_apart = isinstance(node, ast.Name) and node.id in self._apart
        return is_apart or isinstance(getattr(node, "op", None), ast.BitAnd)

    def _held(self, node: ast.AST) -> set[str]:
        """The arguments that an expression is calculated from; not those that it compares."""
        is_shape = isinstance(node, ast.Attribute) and node.attr in SHAPES | {"indices"}
        if isinstance(node, ast.Compare) or is_shape or called(node) in _INDICES_ONLY:
            return set()
        if isinstance(node, ast.Name):
            return self._arguments_of.get(node.id, set())
        if isinstance(node, ast.Subscript):
            return self._held(node.value)
        return set().union(*map(self._held, ast.iter_child_nodes(node)))

    def _calculates(self, node: ast.AST) -> bool:
        """Whether what an expression is used for depends on its numbers alone."""
        parent, is_apart = self._parents[node], self._takes_bits(node)
        is_masked = is_apart
        while self._goes_on(node, parent) or (is_apart and _is_asked(parent)):
            operation = getattr(parent, "op", None)
            is_apart = is_apart or isinstance(operation, _LOGICAL)
            is_masked = is_masked or isinstance(operation, ast.BitAnd)
            node, parent = parent, self._parents[parent]
        # Some bits of any number are an index into a table of as many entries, made for that.
        if is_masked and isinstance(parent, ast.Subscript) and parent.slice is node:
            return not self._held(parent.value)
        if is_masked and _is_counted(node, parent):
            return True
        return _ends(node, parent, self._arguments)

    def _goes_on(self, node: ast.AST, parent: ast.AST) -> bool:
        """Whether an expression is calculated of another, or moves it."""
        match parent:
            case ast.BinOp(left=left, op=operation):
                return left is node or isinstance(operation, _EITHER)
            case ast.Subscript(value=value):
                return value is node
            case ast.Attribute(attr="view"):
                return not views_bits(self._parents[parent])
            case ast.Attribute(attr=name):
                return name.removesuffix("_") in _CALCULATIONS | _REPEATS
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id="sum" as name)):
                repeats = name in _REPEATS and parent.func is node
                return repeats or name.removesuffix("_") in _CALCULATIONS
        return isinstance(parent, _THROUGH)


def views_bits(call: ast.AST) -> bool:
    """Whether a call of ``view`` is of the same bits as another dtype, rather than of a shape."""
    if not isinstance(call, ast.Call):
        return False
    given = [ast.unparse(each) for each in (*call.args, *(each.value for each in call.keywords))]
    return any("torch." in text or text.endswith(".dtype") for text in given)


def _is_asked(parent: ast.AST) -> bool:
    """Whether it is asked of each number if it is zero: what bits say may be that of any number."""
    match parent:
        case ast.Attribute(attr="bool") | ast.Call(func=ast.Attribute(attr="bool")):
            return True
    return False


def _is_counted(node: ast.AST, parent: ast.AST) -> bool:
    """Whether an expression is counted in bins, as by ``torch.bincount(it, minlength=256)``."""
    match parent:
        case ast.Attribute(attr=name):
            return name in _COUNTS
        case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]):
            return name in _COUNTS and first is node
    return False


def _ends(node: ast.AST, parent: ast.AST, arguments: Container[str]) -> bool:
    """Whether an expression ends where its numbers are kept, returned or compared.

    An argument that is asked as it came whether it equals something may be a flag, or one of a few
    kinds; one that is greater than a number is none.
    """
    match parent:
        case ast.Compare(ops=operations, comparators=comparators):
            in_order = all(isinstance(each, _ORDERS) for each in operations)
            with_numbers = all(isinstance(each, ast.Constant) for each in comparators)
            is_argument = isinstance(node, ast.Name) and node.id in arguments
            return not is_argument or (in_order and with_numbers)
        case ast.Attribute(attr=name):
            return name in SHAPES | COLLECTING | _INDICES_ONLY | {"indices"}
        case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]):
            return name in LIKE | COLLECTING | _INDICES_ONLY and first is node
        case ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Assign(value=value) | ast.AugAssign(value=value) | ast.For(iter=value):
            is_place = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            return value is node or is_place
    return isinstance(parent, ast.Return)

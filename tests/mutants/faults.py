"""Mutations of one module: each a small change of one AST node that a test of behaviour should notice."""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple


class Mutant(NamedTuple):
    path: str
    line: int
    what: str
    source: str


_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


def mutants(path: str, source: str) -> Iterator["PossibleMutant"]:
    """Every mutation of the module, in the same order for the same source."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    declared = {id(each) for node in ast.walk(tree) for part in _declarations(node) for each in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) not in declared:
            for what, changed in _changes(node):
                yield PossibleMutant(path, lines, node, what, changed)


class PossibleMutant(NamedTuple):
    """A mutation that is not written out yet: there are thousands, and few are sampled."""

    path: str
    lines: list[str]
    node: ast.AST
    what: str
    changed: ast.AST

    def made(self) -> Mutant | None:
        """None: the changed source is none."""
        source = _replaced(self.lines, self.node, self.changed)
        return None if source is None else Mutant(self.path, self.node.lineno, self.what, source)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            changed = copy.deepcopy(node)
            changed.ops = [_COMPARISONS[type(op)]()]
            yield f"{ast.unparse(node)} -> {ast.unparse(changed)}", changed
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not _is_text(node) and not _is_type(node):
            changed = copy.deepcopy(node)
            changed.op = _ARITHMETIC[type(op)]()
            yield f"{ast.unparse(node)} -> {ast.unparse(changed)}", changed
        case ast.BoolOp():
            changed = copy.deepcopy(node)
            changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield f"{ast.unparse(node)} -> {ast.unparse(changed)}", changed
            for at in range(len(node.values)):
                fewer = copy.deepcopy(node)
                del fewer.values[at]
                rest = fewer if len(fewer.values) > 1 else fewer.values[0]
                yield f"without `{ast.unparse(node.values[at])}`", rest
        case ast.UnaryOp(op=ast.Not()):
            yield f"without `not`: {ast.unparse(node)}", copy.deepcopy(node.operand)
        case ast.Constant(value=bool() as value):
            yield f"{value} -> {not value}", ast.Constant(value=not value)
        case ast.Constant(value=int() as value):
            yield f"{value} -> {value + 1}", ast.Constant(value=value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS and not (name == "sorted" and node.keywords):
            changed = copy.deepcopy(node)
            changed.func = ast.Name(id=_CALLS[name])
            yield f"{name} -> {_CALLS[name]}", changed
        case ast.Continue():
            yield "continue -> break", ast.Break()
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield f"without `{ast.unparse(node)[:60]}`", ast.Pass()


def _declarations(node: ast.AST) -> list[ast.AST]:
    """Parts of which a change is no fault.

    - How a type is made, not what the program does: class keywords, decorators, annotations, assertions.
    - What only developers read: `__repr__`, debug logging, and the keys of every log line. That a line is logged at
      info or above is behaviour.
    - The number of a module's constant `NAME = number`, when it is above 1, and the numbers of a constant duration or
      date: they were chosen, and one more is another choice. What depends on it is tested by the code that uses the
      name.
    """
    match node:
        case ast.FunctionDef(name="__repr__"):
            return [node]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr="debug"))):
            return [node]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log"))):
            return [*node.args, *(each.value for each in node.keywords)]
        case ast.Module():
            return [each.value for each in node.body if _is_chosen_number(each)]
        case ast.ClassDef():
            return [*node.keywords, *node.decorator_list]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*node.decorator_list, *([node.returns] if node.returns is not None else [])]
        case ast.AnnAssign() | ast.arg() if node.annotation is not None:
            return [node.annotation]
        case ast.Assert():
            return [node]
        case ast.Call(func=ast.Name(id="zip")):
            # `strict=True` is an assertion too.
            return [each.value for each in node.keywords]
        case _:
            return []


def _is_chosen_number(node: ast.AST) -> bool:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=ast.Name(id="timedelta" | "datetime"))):
            return name.isupper()
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() as number)):
            return number > 1 and name.isupper()
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() as number)):
            return number > 1 and name.isupper()
        case _:
            return False


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(side, ast.JoinedStr) or _is_str(side) for side in (node.left, node.right))


def _is_str(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_type(node: ast.BinOp) -> bool:
    """`X | None` is a type wherever None is."""
    return isinstance(node.op, ast.BitOr)


def _replaced(lines: list[str], node: ast.AST, changed: ast.AST) -> str | None:
    """The source with the node's own text replaced: every other line stays as it is, so that line numbers hold."""
    text = ast.unparse(changed)
    if isinstance(node, ast.expr):
        text = f"({text})"
    first, last = node.lineno - 1, node.end_lineno - 1
    before = lines[first].encode()[: node.col_offset].decode()
    after = lines[last].encode()[node.end_col_offset :].decode()
    changed_lines = [*lines[:first], before + text + "\n" * (last - first) + after, *lines[last + 1 :]]
    source = "".join(changed_lines)
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return None  # inside an f-string, whose columns are not its own
    return source

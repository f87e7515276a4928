"""Blocks of a module: statements inside functions of which either all run or, but for an exception, none."""

import ast
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
#: After any of these, the statements that follow may not run.
_MAY_LEAVE = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.Match


class BlockName(NamedTuple):
    """A block by its function, what that function says, and its place there: other functions may change around it."""

    function: str
    digest: str
    number: int


class Block(NamedTuple):
    #: The list that holds the statements of the block, and where in it the block begins.
    statements: list[ast.stmt]
    at: int
    first: ast.stmt
    last_line: int
    name: BlockName


def blocks(tree: ast.Module) -> Iterator[Block]:
    for name, function in _functions(tree, ""):
        digest = hashlib.sha256(ast.unparse(function).encode()).hexdigest()[:12]
        places = list(_places(function, is_function=True))
        for node in _inside(function):
            if not isinstance(node, _FUNCTIONS | ast.ClassDef):
                places += _places(node, is_function=False)
        for number, (statements, begin, end) in enumerate(places):
            last_line = statements[end].end_lineno or 0
            yield Block(statements, begin, statements[begin], last_line, BlockName(name, digest, number))


def block_of(found: list[Block], line: int) -> BlockName | None:
    """The innermost block around a line; None outside of functions."""
    around = [each for each in found if each.first.lineno <= line <= each.last_line]
    return min(around, key=lambda each: each.last_line - each.first.lineno).name if around else None


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, _FUNCTIONS | ast.ClassDef):
            name = f"{prefix}.{child.name}"
            if isinstance(child, _FUNCTIONS):
                yield name, child
        yield from _functions(child, name)


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function, without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, _FUNCTIONS):
            yield node
            yield from _inside(node)


def _places(node: ast.AST, *, is_function: bool) -> Iterator[tuple[list[ast.stmt], int, int]]:
    """Lists of statements, with the first and the last of a block in them."""
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(node, name, None)
        if not isinstance(statements, list):
            continue
        begin = 1 if is_function and _is_docstring(statements[0]) else 0
        for at in range(begin, len(statements)):
            if at == len(statements) - 1 or isinstance(statements[at], _MAY_LEAVE):
                yield statements, begin, at
                begin = at + 1


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

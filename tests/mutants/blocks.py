"""Blocks of a module: statements inside functions of which either all run or, but for an exception, none."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
#: After any of these, the statements that follow may not run.
_MAY_LEAVE = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.Match


class Block(NamedTuple):
    #: The list that holds the statements of the block, and where in it the block begins.
    statements: list[ast.stmt]
    at: int
    first: ast.stmt
    last_line: int


def blocks(tree: ast.Module) -> Iterator[Block]:
    for function in ast.walk(tree):
        if isinstance(function, _FUNCTIONS):
            yield from _of(function, is_function=True)
            for node in _inside(function):
                if not isinstance(node, _FUNCTIONS | ast.ClassDef):
                    yield from _of(node, is_function=False)


def block_of(found: list[Block], line: int) -> int | None:
    """First line of the innermost block around a line; None outside of functions."""
    around = [each for each in found if each.first.lineno <= line <= each.last_line]
    return min(around, key=lambda each: each.last_line - each.first.lineno).first.lineno if around else None


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function, without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, _FUNCTIONS):
            yield node
            yield from _inside(node)


def _of(node: ast.AST, *, is_function: bool) -> Iterator[Block]:
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(node, name, None)
        if not isinstance(statements, list):
            continue
        begin = 1 if is_function and _is_docstring(statements[0]) else 0
        for at in range(begin, len(statements)):
            if at == len(statements) - 1 or isinstance(statements[at], _MAY_LEAVE):
                yield Block(statements, begin, statements[begin], statements[at].end_lineno or 0)
                begin = at + 1


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

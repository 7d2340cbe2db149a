"""A module's code without what only readers and type checkers need, for bundles.

Docstrings, annotations, imports for type checkers and the columns of every instruction are a third of the
bytes: memory to fill, and to copy when a process forks.
"""

from __future__ import annotations
import __future__

import ast
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType
    from typing import TypeGuard

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST = 8  # units of code, of two bytes each, that an entry of a table of locations is for
_LINE, _NOWHERE = 13, 15  # kinds of such entries: a line alone, and no place in the source


def compiled(text: bytes, source: str) -> CodeType:
    """Return a module's code, ``source`` being its path. Raises SyntaxError.

    The compiler does what ``from __future__ import`` says; the module of that name is not imported.
    """
    tree, flags = ast.parse(text, source), 0
    for statement in tree.body:
        if _is_of_the_future(statement):
            for item in statement.names:
                flags |= getattr(__future__, item.name).compiler_flag
    tree.body = list(_lean(tree.body, in_class=False))
    return _without_columns(compile(tree, source, "exec", flags, dont_inherit=True))


def _is_of_the_future(statement: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _lean(statements: list[ast.stmt], *, in_class: bool) -> Iterator[ast.stmt]:
    """Yield what is left of some statements. The annotations of classes stay: records are made of them."""
    for statement in statements:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if _is_of_the_future(statement):
            continue
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from _lean(statement.orelse, in_class=in_class)
            continue
        if isinstance(statement, ast.AnnAssign) and not in_class:
            if statement.value is not None:
                yield ast.copy_location(ast.Assign([statement.target], statement.value), statement)
            continue
        if isinstance(statement, _FUNCTIONS):
            statement.returns = None
            for argument in ast.walk(statement.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        within = isinstance(statement, ast.ClassDef) or (in_class and not isinstance(statement, _FUNCTIONS))
        for holder in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            for name in ("body", "orelse", "finalbody"):
                if block := getattr(holder, name, None):
                    setattr(holder, name, list(_lean(block, in_class=within)) or [_nothing(block[0])])
        yield statement


def _nothing(place: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Pass(), place)


def _without_columns(code: CodeType) -> CodeType:
    """Return code that knows the line of every instruction, for tracebacks, and no columns.

    The table's format is CPython's own (Objects/locations.md, InternalDocs/code_objects.md). Where another
    version reads another one, the code stays as it is.
    """
    constants = tuple(
        _without_columns(item) if isinstance(item, type(code)) else item for item in code.co_consts
    )
    code = code.replace(co_consts=constants)
    if sys.version_info < (3, 11):
        return code  # which has no columns
    lean = code.replace(co_linetable=bytes(_lines(code)))
    return lean if _places(lean) == _places(code) else code


def _places(code: CodeType) -> list[int | None]:
    """Return the line of each unit of code."""
    return [line for start, end, line in code.co_lines() for _ in range(start, end, 2)]


def _lines(code: CodeType) -> Iterator[int]:
    """Yield the bytes of a table of locations without columns."""
    before = code.co_firstlineno
    places = _places(code)
    start = 0
    for end in range(1, len(places) + 1):
        if end < len(places) and end - start < _MOST and places[end] == places[start]:
            continue
        line = places[start]
        yield 0x80 | (_NOWHERE if line is None else _LINE) << 3 | end - start - 1
        if line is not None:
            yield from _number(line - before)
            before = line
        start = end


def _number(value: int) -> Iterator[int]:
    """Yield a signed number, six bits a byte, the lowest first; its sign is the very lowest."""
    rest = -value << 1 | 1 if value < 0 else value << 1
    while rest >= 64:
        yield 64 | rest & 63
        rest >>= 6
    yield rest

"""The task: complete a function so that it parses and passes a check, which reads it and never runs it."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass

KNOWN = frozenset(dir(builtins))


@dataclass(frozen=True, slots=True)
class Check:
    """What a function must have. Args: n_statements: so many in its body, at any depth, docstrings left out."""

    n_statements: int = 8
    reads_arguments: bool = True
    reads_known_names: bool = True


def reward_of(source: str, *, has_ended: bool, check: Check) -> float:
    """Return 0 for what was cut or does not parse as one function; else from 0.2 up to 1 by what it has of the check.

    Half of what is left is for the number of statements, the rest in equal parts for returning a value, for the share
    of its arguments that it reads, and for the share of the names it reads that are known to it.
    """
    if not has_ended or (function := parsed(source)) is None:
        return 0.0
    names = Names(function)
    parts = [float(names.returns_value)]
    if check.reads_arguments:
        parts.append(len(names.arguments & names.read) / max(1, len(names.arguments)))
    if check.reads_known_names:
        parts.append(len(names.read & names.known) / max(1, len(names.read)))
    enough = min(1.0, names.n_statements / check.n_statements)
    return 0.2 + 0.4 * enough + 0.4 * sum(parts) / len(parts)


def parsed(source: str) -> ast.FunctionDef | None:
    """Return the one function that a source is, None if it is anything else."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return body[0] if len(body) == 1 and isinstance(body[0], ast.FunctionDef) else None


class Names(ast.NodeVisitor):
    """The names that a function binds and reads, and what it is made of."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.arguments = frozenset(
            one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        )
        self.read: set[str] = set()
        self.known = set(KNOWN | self.arguments | {function.name})
        self.returns_value = False
        self.n_statements = 0
        for statement in function.body:
            self.visit(statement)

    def visit(self, node: ast.AST) -> None:
        """Note a node and all below it."""
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not is_text and not isinstance(node, ast.Pass):
            self.n_statements += 1
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                self.read.add(name)
            case ast.Name(id=name) | ast.ExceptHandler(name=str(name)) | ast.arg(arg=name):
                self.known.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                self.known.add(name)
            case ast.alias(name=name, asname=other):
                self.known.add(other or name.partition(".")[0])
            case ast.Return(value=ast.expr()):
                self.returns_value = True
            case _:
                pass
        self.generic_visit(node)

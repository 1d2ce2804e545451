"""What import-linter cannot express, as functions of source text: who opens files, who imports late and why."""

from __future__ import annotations

import ast
from collections.abc import Iterator

FILES = frozenset(
    {"open", "read_text", "write_text", "read_bytes", "write_bytes", "read_csv", "mkdir", "unlink", "iterdir", "glob"}
    | {"rglob", "is_file", "is_dir", "urlopen", "rmtree", "copyfile", "loadtxt", "genfromtxt", "open_memmap"}
)
"""Calls that touch the disk or the network, whatever they are called on."""
MODULES = frozenset({"np", "numpy", "nib", "nibabel", "torch", "json", "yaml", "joblib", "pickle"})
LOADING = frozenset({"load", "save", "savez", "savez_compressed", "savetxt", "memmap", "fromfile", "dump"})
"""Calls that do so when they are called on one of `MODULES`."""


def file_access(source: str) -> list[str]:
    """Return ``line: call`` for every call that touches a file, a folder or the network."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [f"{call.lineno}: {ast.unparse(call.func)}" for call in calls if _touches_files(call.func)]


def _touches_files(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id in FILES
    if not isinstance(called, ast.Attribute):
        return False
    owner = called.value.id if isinstance(called.value, ast.Name) else ""
    return called.attr in FILES or (owner in MODULES and called.attr in LOADING)


def imports_without_reason(source: str) -> list[str]:
    """Return ``line: import`` for every block of imports inside a function that no comment explains."""
    lines = source.splitlines()
    return [
        f"{block[0].lineno}: {lines[block[0].lineno - 1].strip()}"
        for block in _late_imports(ast.parse(source))
        if not _is_explained(lines, block[0].lineno, block[-1].end_lineno or block[-1].lineno)
    ]


def _is_explained(lines: list[str], first: int, last: int) -> bool:
    """Whether a comment stands above the block or behind one of its lines; an instruction to a tool is none."""
    comments = [line.partition("#")[2].strip() for line in lines[first - 1 : last]]
    above = lines[first - 2].strip()
    reasons = [text for text in comments if text and not text.startswith(("type:", "noqa"))]
    return bool(reasons) or above.startswith("#") or any("noqa" in text and "(" in text for text in comments)


def _late_imports(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Runs of imports, one after the other, inside functions."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        for node in ast.walk(function):
            for name in ("body", "orelse", "finalbody"):
                yield from _runs(getattr(node, name, None))


def _runs(body: object) -> Iterator[list[ast.stmt]]:
    run: list[ast.stmt] = []
    for statement in body if isinstance(body, list) else ():
        if isinstance(statement, ast.Import | ast.ImportFrom):
            run.append(statement)
        elif run:
            yield run
            run = []
    if run:
        yield run

"""The field's nouns: a recording is what was scanned, a run is BIDS's entity or one start of the program."""

from __future__ import annotations

import io
import re
import tokenize
from functools import cache

from tests.docs.pages import PAGES, ROOT, read, without_blocks

SOURCES = sorted((ROOT / "fcpower_bids").rglob("*.py"))
NEVER = re.compile(r"\b(can(not)? be had|became of|left off)\b", re.I)
"""What a status, available or skip says plainly."""
A_SCAN = re.compile(r"\b(a|the|one|this|NIfTI|BOLD|CIFTI|very|same) runs?\b|mid-run", re.I)
"""A recording under another name, where nothing but recordings is spoken of."""


def hits(pattern: re.Pattern[str], page) -> list[str]:
    lines = enumerate(read(page).splitlines(), 1)
    return [f"{page.relative_to(ROOT)}:{number}: {line.strip()}" for number, line in lines if pattern.search(line)]


def test_plain_words_for_what_is_there_and_what_is_not():
    assert [hit for page in (*SOURCES, *PAGES) for hit in hits(NEVER, page)] == []


def test_what_reads_and_holds_recordings_calls_them_so():
    rooms = ("core", "imaging", "records", "interfaces", "measures", "transforms")
    found = [hit for page in SOURCES if page.parts[len(ROOT.parts) + 1] in rooms for hit in hits(A_SCAN, page)]
    assert found == []


def test_the_words_are_found():
    assert NEVER.search("what became of each")
    assert A_SCAN.search("Average a run within the parcels")
    assert not A_SCAN.search("run fMRIPrep again")


DOTTED = re.compile(
    r"(?<![\w./~-])`{1,2}~?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`|\b(fcpower_bids(?:\.[A-Za-z_]\w*)+)"
)
FILES = re.compile(
    r"\.(py|pyi|md|tsv|json|toml|ya?ml|html|cfg|sh|txt|n?gz|nii|gii|np[yz]|csv|pth|pt|safetensors|zip|log|js|bib|tex|svg|css|sif)$"
)
MODULES = {path.parent.name if path.stem == "__init__" else path.stem for path in SOURCES}


@cache
def sources() -> dict[str, str]:
    """Every module and folder of the package by its path with dots."""
    found = {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): read(path) for path in SOURCES}
    return {name.removesuffix(".__init__"): text for name, text in found.items()}


def defines(text: str, name: str) -> bool:
    """Whether a module defines or imports a name, or a class of it has an attribute of this name."""
    defined = rf"(def|class) {name}\b|^\s*(self\.)?{name}\b.*[:=,]|\bimport .*\b{name}\b|^    \"{name}\","
    return bool(re.search(defined, text, re.M))


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of the package, perhaps without its first folders, or a name in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        ending = "." + ".".join(parts[:length])
        for module, text in sources().items():
            if ("." + module).endswith(ending) and all(defines(text, part) for part in parts[length:]):
                return True
    return False


def dotted_names(text: str) -> list[str]:
    """The dotted names of a text that begin as a module of this package does."""
    names = [one or other for one, other in DOTTED.findall(text)]
    return [name for name in names if name.split(".")[0] in MODULES and not FILES.search(name)]


def prose(path) -> str:
    """Comments and strings of a module, where docstrings are."""
    kinds = (tokenize.COMMENT, tokenize.STRING)
    return "\n".join(t.string for t in tokenize.generate_tokens(io.StringIO(read(path)).readline) if t.type in kinds)


def test_every_dotted_name_of_docstrings_comments_and_pages_is_there():
    texts = [*((path, prose(path)) for path in SOURCES), *((page, without_blocks(read(page))) for page in PAGES)]
    assert [(path.name, name) for path, text in texts for name in dotted_names(text) if not resolves(name)] == []


def test_dead_names_are_found():
    assert dotted_names("as `core.nested.nested_cv` does; see `model.pth`, `np.exp` and fcpower_bids.gone") == [
        "core.nested.nested_cv",
        "fcpower_bids.gone",
    ]
    assert not resolves("core.nested.nested_cv")
    assert resolves("core.regression.nested.nested_cv")
    assert resolves("contract.Predictor")

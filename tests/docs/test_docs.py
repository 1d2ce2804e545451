"""The documentation holds together: links lead somewhere, commands are read, what is written is named."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fcpower_bids.app import predict_parser, prefetch_parser
from fcpower_bids.cli.parser import parse_settings
from fcpower_bids.demo.__main__ import build_parser as demo_parser
from fcpower_bids.settings import LEVELS
from scripts.options_table import BEGIN, END, options_table
from tests.docs.pages import DOCS, FENCE, PAGES, ROOT, code_blocks, read

PROGRAMS = ("fcpower_bids", "GROUP", "python", "make")


def without_blocks(text: str) -> str:
    """The text without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", FENCE.sub("", text), flags=re.S)


def headings(text: str) -> list[str]:
    """The anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+?) *$", without_blocks(text), re.M)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def links(page: Path) -> list[str]:
    """Where the links of a page lead."""
    text = re.sub(r"`[^`]*`", "", without_blocks(read(page)))
    return re.findall(r"\]\(([^)\s]+)\)", text)


def commands(page: Path) -> set[str]:
    """Every command of a page: all lines of its ``sh`` blocks, and code in the text that begins as a command does."""
    text, found = read(page), set()
    for block in code_blocks(text, "sh"):
        found |= {" ".join(line.split()) for line in block.replace("\\\n", " ").splitlines() if line.strip()}
    for span in re.findall(r"`([^`]+)`", without_blocks(text)):
        words = re.sub(r"^([A-Z_]+=\S+ )+", "", " ".join(span.split())).split()
        if len(words) > 1 and words[0] in PROGRAMS:  # else a program is mentioned
            found.add(" ".join(span.split()))
    return found


COMMANDS = sorted(set().union(*map(commands, PAGES)))


def follow(page: Path, link: str) -> tuple[Path, str]:
    name, _, anchor = link.partition("#")
    return (page.parent / name).resolve() if name else page, anchor


def test_links_lead_somewhere_and_every_page_is_reached_from_the_readme():
    pairs = [(page, link) for page in PAGES for link in links(page) if "://" not in link]
    for page, link in pairs:
        target, anchor = follow(page, link)
        assert target.exists(), f"{page}: {link}"
        assert not anchor or anchor in headings(read(target)), f"{page}: {link}"
    found: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        found.add(page)
        todo += [target for target, _ in (follow(page, link) for link in links(page)) if target in PAGES]
        todo = [each for each in todo if each not in found]
    assert set(PAGES) <= found


@pytest.mark.parametrize("text", COMMANDS)
def test_the_program_reads_a_command_of_the_documentation(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = text.replace("GROUP --", "fcpower_bids BIDS OUT group --targets age --").replace("--analyses NAME", "")
    words = shlex.split(text.replace("=MEASURE,MEASURE,...", "=a,b").replace("g=...", "g=a,b"), comments=True)
    for word in words:
        if re.fullmatch(r"[A-Z]*/?\w[\w./-]*\.(tsv|toml|csv|tar|pth|gz)", word):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).touch()
    Path("atlases").mkdir()
    if len(words) == 2 and words[0] == "fcpower_bids":
        assert words[1] in ("predict", "prefetch", "--help", "--version")
    elif words[:2] == ["fcpower_bids", "prefetch"]:
        assert prefetch_parser().parse_args(words[2:]).folder
    elif words[:2] == ["fcpower_bids", "predict"]:
        assert predict_parser().parse_args(words[2:])
    elif words[0] == "fcpower_bids":
        assert {"--help", "--version"} & set(words) or parse_settings(words[1:]).level in LEVELS
    elif words[:3] == ["python", "-m", "fcpower_bids.demo"]:
        assert demo_parser().parse_args(words[3:])
    elif words[0] == "python" and "benchmarks" in text:
        assert (ROOT / f"{words[2].replace('.', '/')}.py").is_file()
    elif "make" in words:
        goals = words[words.index("make") + 1 :]
        done = subprocess.run(["make", "-n", *goals], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for line in re.findall(r"bin/fcpower_bids (.+)", done.stdout.replace("\\\n", " ")):
            assert parse_settings(shlex.split(line)).level in LEVELS
    else:
        assert words[0] in ("python", "pip", "export", "docker", "podman", "apptainer") or "slurm_array.sh" in text


def test_the_table_of_options_is_that_of_the_program():
    text = read(DOCS / "usage.md")
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip() == options_table().strip()


def as_expression(pattern: str) -> str:
    """A file pattern of the documentation as a regular expression: capitals stand for what differs."""
    if pattern.startswith("SOURCE"):
        pattern = f"sub-LABEL/(?:ses-LABEL/)?func/{pattern}"
    text = pattern.replace(".", r"\.")
    text = text.replace("SOURCE", r"sub-\w+(?:_[a-z]+-\w+)+?").replace("TRANSFORM", r"stat-\w+?(?:_desc-\w+)?")
    text = text.replace("ATLAS", r"atlas-\w+?(?:_[a-z]+-\w+)*?")
    text = re.sub(r"(?<![A-Za-z])(LABEL|SPACE|ENCODER|NUMBER)(?![A-Za-z])", r"[A-Za-z0-9-]+?", text)
    return text + (".*" if pattern.endswith("/") else "")


def test_every_file_of_the_participant_level_is_documented(exact_run, troubled_run):
    text = read(DOCS / "outputs.md")
    patterns = re.findall(r"^#{2,4} `([^`]+)`$", text, re.M)
    for table in re.findall(r"^\| file \| what it is \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.M):
        patterns += [name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    known = re.compile("|".join(f"(?:{as_expression(pattern)})" for pattern in patterns))
    for output in (exact_run.output, troubled_run.output):
        names = [str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()]
        assert len(names) > 50
        beside = {name.removesuffix(".tsv") + ".json" for name in names if name.endswith(".tsv")}
        assert [name for name in names if name not in beside and not known.fullmatch(name)] == []


def test_outputs_open_in_other_programs_as_the_documentation_says(exact_run, tmp_path, monkeypatch):
    (tmp_path / "OUT").symlink_to(exact_run.output)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    section = read(DOCS / "python.md").partition("## Outputs in other programs")[2]
    for block in code_blocks(section, "py"):
        exec(block, names)
    assert names["fc"].shape == (60, 60)
    assert names["fc"].index.tolist() == names["fc"].columns.tolist() == names["parcels"]["name"].tolist()
    assert len(names["matrices"]) > 1
    inside = names["strength"].get_fdata()
    assert len(set(inside[inside != 0].round(5).tolist())) == len(set(names["fc"].mean(axis=1).round(5)))


def test_a_night_goes_on_after_what_is_broken_and_adds_to_its_audit(tmp_path):
    """The script of the documentation, with a program that says how it was called, and a scan that is broken."""
    (program := tmp_path / "bin" / "fcpower_bids").parent.mkdir()
    status = tmp_path / "out" / "logs" / "status.tsv"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called; echo x > {status}; [ "$1" = predict ] || exit 4\n')
    program.chmod(0o755)
    command = ["sh", DOCS / "examples" / "night.sh", tmp_path / "bids", tmp_path / "out", tmp_path / "good_model"]
    for night in (1, 2):
        path = f"{program.parent}:{os.environ['PATH']}"
        done = subprocess.run([*map(str, command)], env=os.environ | {"PATH": path}, check=False)
        assert done.returncode == 4
        lines = (tmp_path / "out" / "logs" / "audit.log").read_text().splitlines()
        assert len(lines) == 2 * night
    digest = hashlib.sha256(status.read_bytes()).hexdigest()[:16]
    assert re.match(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ \S+ exit=4 sha256={digest} fcpower_bids ", lines[0])
    assert "exit=0" in lines[1]
    assert (tmp_path / "called").read_text().splitlines()[1] == f"predict {tmp_path}/good_model {tmp_path}/out"

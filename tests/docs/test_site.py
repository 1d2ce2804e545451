"""The documentation holds together: links lead somewhere, every page can be found, and it builds into a site."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict

import fcpower_bids
from scripts.reference.group_tables import table_pages
from tests.docs.pages import DOCS, PAGES, ROOT, code_spans, headings, links, read, without_blocks
from tests.reports.browser import Browser, find_chromium

SOURCE = ROOT / "fcpower_bids"
TARGETS = [(page, link) for page in PAGES for link in links(page) if not link.startswith(("http://", "https://"))]


def follow(page: Path, link: str) -> tuple[Path, str]:
    name, _, anchor = link.partition("#")
    return (page.parent / name).resolve() if name else page, anchor


@pytest.mark.parametrize(("page", "link"), TARGETS, ids=[f"{page.name}:{link}" for page, link in TARGETS])
def test_links_lead_somewhere(page, link):
    target, anchor = follow(page, link)
    assert target.exists()
    assert target.is_relative_to(ROOT)
    if anchor:
        assert anchor in headings(read(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_can_be_reached_from_the_readme(page):
    found, todo = set(), [ROOT / "README.md"]
    while todo:
        page_now = todo.pop()
        found.add(page_now)
        todo += [target for target, _ in (follow(page_now, link) for link in links(page_now)) if target in PAGES]
        todo = [one for one in todo if one not in found]
    assert page in found


def is_in_the_source(name: str) -> bool:
    """Whether a path is there, or a module with what follows its name."""
    places = (ROOT, DOCS, SOURCE)
    if "/" in name:
        return any((place / name).exists() for place in places)
    module, _, last = name.rpartition(".")
    for place in places:
        whole = place / name.replace(".", "/")
        if whole.is_dir() or whole.with_suffix(".py").is_file():
            return True
        file = (place / module.replace(".", "/")).with_suffix(".py")
        if file.is_file():
            return bool(re.search(rf"^(def|class) {last}\b", read(file), re.M))
    return False


NAMED = re.compile(r"(tests|benchmarks|scripts|fcpower_bids|core|encoders|pretraining)(/[\w.-]+/?|(\.\w+)+)+")
"""A file or a function of the source."""
RECIPES = (ROOT / "README.md", DOCS / "architecture.md")
"""Pages that name files which the reader is to make."""


@pytest.mark.parametrize("page", [page for page in PAGES if page not in RECIPES], ids=lambda page: page.name)
def test_files_and_functions_of_the_source_that_a_page_names_are_there(page):
    words = {word for span in code_spans(read(page)) for word in span.split() if NAMED.fullmatch(word)}
    assert [word for word in words if not word.endswith((".tsv", ".json", ".sif")) and not is_in_the_source(word)] == []
    assert words or page.name != "methods.md"


def test_every_page_is_in_the_navigation():
    listed = re.findall(r": (\w+\.md)$", read(ROOT / "mkdocs.yml"), re.M)
    assert sorted(listed) == sorted(["index.md", *(page.name for page in DOCS.glob("*.md"))])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_begin_after_an_empty_line(page):
    """Or else they are lists on GitHub and one paragraph on the site."""
    lines = without_blocks(read(page)).splitlines()
    item = re.compile(r"^(-|\d+\.) ")
    joined = [
        line
        for before, line in pairwise(lines)
        if item.match(line) and re.match(r"^[\w*`(]", before) and not item.match(before)
    ]
    assert joined == []


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built anew."""
    for name in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(name, reason=f"{name} is not installed (pip install -e '.[docs]')")
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_has_every_page_and_needs_no_network(site):
    built = {str(path.relative_to(site)): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    tables = {f"tables/{Path(name).stem}.html" for name in table_pages()}
    pages = {page.with_suffix(".html").name for page in DOCS.glob("*.md")}
    assert set(built) == {"404.html", "index.html", *pages, *tables}
    assert "<code>--permutations</code>" in built["usage.html"], "the options are appended"
    assert 'href="tables/prediction.html"' in built["group_outputs.html"]
    assert "<code>p_max</code>" in built["tables/prediction.html"]
    assert "<code>peak_mb</code>" in built["outputs.html"], "columns are filled in"
    for name, text in built.items():
        fetched = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?([^\" >]+)|<link[^>]* href=\"?([^\" >]+)", text)
        assert not [one for pair in fetched for one in pair if re.match(r"(https?:)?//", one)], name
        here = [one for pair in fetched for one in pair if one and not one.startswith(("/", "data:"))]
        assert not [one for one in here if not ((site / name).parent / one.partition("?")[0]).is_file()], name
        assert not re.search(r"<th[^>]*></th>", text), "a head of a column without a word"
    for style in site.rglob("*.css"):
        assert not re.search(r"(url|@import)\s*\(?['\"]?https?:", style.read_text(encoding="utf-8")), style.name
    assert '<h1 id="fcpower_bids">' in built["index.html"]
    assert 'href="quickstart.html"' in built["index.html"], "links of the README lead to pages of the site"
    for name in fcpower_bids.__all__:
        assert name == "__version__" or f">{name}<" in built["reference.html"], "the reference has what is offered"


def test_the_site_can_be_searched_from_the_disk_and_has_no_script_errors(site, tmp_path):
    binary = find_chromium()
    if binary is None:
        pytest.skip("there is no Chromium on the path")
    browser = Browser(binary, tmp_path)
    try:
        browser.open(site / "index.html")
        browser.evaluate("document.querySelector('label[for=__search]').click()")
        browser.evaluate("document.querySelector('input.md-search__input').focus()")
        for letter in "fingerprint":  # key by key: once its worker is ready, the search looks at nothing else
            browser.press(letter)
        browser.wait_for("document.querySelectorAll('.md-search-result__item').length > 0")
        assert browser.messages == []
        unnamed = "nav.md-code__nav:not([aria-label]), [role=dialog]:not([aria-label]), pre code:not([tabindex])"
        browser.open(site / "group.html")
        assert browser.evaluate("document.querySelectorAll('pre code').length") > 5
        assert browser.evaluate(f"document.querySelectorAll('{unnamed}').length") == 0, "axe would find them"
        browser.open(site / "hpc.html")
        cut = "[...document.querySelectorAll('.language-sh code')].map(each => each.scrollWidth > each.clientWidth)"
        assert set(browser.evaluate(cut)) == {False}, "commands go on in the next line"
        assert [one for one in browser.requests if one.startswith("http")] == []
    finally:
        browser.close()


def test_the_gallery_draws_its_figures_and_the_readme_tells_what_they_show(tmp_path, monkeypatch, capsys):
    figures = tmp_path / "docs" / "figures"
    figures.mkdir(parents=True)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "stages").symlink_to(ROOT / "examples" / "stages")
    script = tmp_path / "docs" / "examples" / "gallery.py"
    script.parent.mkdir()
    shutil.copy(DOCS / "examples" / "gallery.py", script)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    said = runpy.run_path(str(script))
    drawn = {path.name for path in figures.iterdir()}
    assert drawn == {path.name for path in (DOCS / "figures").iterdir()}
    by_fc, by_power = (said["recognised"](alpha) for alpha in (1.0, 0.35))
    words = " ".join(read(ROOT / "README.md").split())
    assert f"of 37 people {by_fc:.0%} are recognised by FC, {by_power:.0%} by FC to" in words.replace(" %", "%")
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [f"{100 * by_fc:.0f} % with FC, {100 * by_power:.0f} % with FC^0.35", f"r = {said['r']:.2f}"]
    assert max(said["shares"]) == said["shares"][2] > 1.1 * min(said["shares"]) == 1.1 * said["shares"][-1]
    _hold_what_the_captions_say(said, told[2:])
    _hold_what_is_said_of_siblings(said, told[-1])
    assert f"r = {said['r']:.2f} over ten folds" in read(DOCS / "figures" / "prediction.svg")


def _hold_what_the_captions_say(said: dict, told: list[str]) -> None:
    """Of the learning curves and the edges: each t and its limit computed anew, by another route."""
    fc, power = (np.array(said["curves"][alpha]) for alpha in (1.0, 0.35))
    assert (power > fc).all()
    assert power[0] > fc[-1]
    assert told[0] == f"r from 10 people with FC^0.35 {power[0]:.2f}, from 30 with FC {fc[-1]:.2f}"
    patient, planted, orders = said["patient"] == 1, said["planted"], said["orders"]
    assert planted.sum() == 10
    for alpha, words in ((1.0, told[1]), (0.35, told[2])):
        edges = fcpower_bids.SpectralPower(alpha, input="series").fit_transform(said["scans"])
        t = np.abs(stats.ttest_ind(edges[patient], edges[~patient])[0])
        null = [np.abs(stats.ttest_ind(edges[one], edges[~one])[0]).max() for one in patient[orders]]
        above = t > np.sort(null)[-25]  # 25 of 501 orders, its own among them, are as large
        found = f"alpha {alpha:g}: {(above & planted).sum()} of 10 planted edges, {(above & ~planted).sum()} others"
        assert words.startswith(found)
    caption = " ".join(read(DOCS / "gallery.md").split())
    assert told[1].startswith("alpha 1: 2 of")
    assert "with FC two of the ten planted edges" in caption
    assert told[2].startswith("alpha 0.35: 10 of")
    assert "with FC to the power 0.35 all ten are above" in caption


def _hold_what_is_said_of_siblings(said: dict, told: str) -> None:
    """The trait goes by families, and is predicted only where these are split; scikit-learn's ridge and folds agree."""
    apart, whole = said["apart"], said["whole"]
    assert told == f"r {np.mean(apart):.2f} with siblings apart, {np.mean(whole):.2f} with families whole"
    assert min(apart) > 0.1, "the caption: above zero"
    assert -0.2 < np.mean(whole) < 0, "the text: a little below zero"
    ridge, trait = KernelRidge(alpha=0.1, kernel="precomputed"), said["traits"][0] - said["traits"][0].mean()
    similarity, family = np.corrcoef(said["related"]), said["family"]
    split = cross_val_predict(ridge, similarity, trait, cv=KFold(5, shuffle=True, random_state=0))
    kept = cross_val_predict(ridge, similarity, trait, cv=GroupKFold(5), groups=family)
    assert np.corrcoef(split, trait)[0, 1] > 0.3
    assert np.corrcoef(kept, trait)[0, 1] < 0.2


def sentences(page) -> list[str]:
    """Sentences of a page; a row of a table and a heading are none."""
    text = without_blocks(read(page))
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#"))]
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:- |\d+\. ))", "\n".join(lines))
    plain = (re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", " ".join(part.split()))) for part in parts)
    return [sentence for part in plain for sentence in re.split(r"(?<=[.!?:;])\s+", part)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_is_longer_than_forty_words(page):
    assert [one for one in sentences(page) if len(one.split()) > 40] == []


def test_the_answers_of_the_architecture_are_files():
    answers = read(DOCS / "architecture.md").partition("## Where is ...?")[2].partition("\n## ")[0]
    files = re.findall(r"`([\w/]+\.py)`", answers)
    assert len(files) > 10
    assert [name for name in files if not (SOURCE / name).is_file() and "NAME" not in name] == []

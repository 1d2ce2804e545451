"""Tables as people save them give the same cells, and what could be read in two ways is named."""

from __future__ import annotations

import codecs
import io
import unicodedata
import zipfile

import pytest

from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.spreadsheets import read_spreadsheet

PLAIN = "participant_id\tage\tplace\nsub-01\t20.5\tKöln\nsub-02\tn/a\tUlm\n"
CELLS = (("participant_id", "age", "place"), [["sub-01", "20.5", "Köln"], ["sub-02", "", "Ulm"]])
SAVED = {
    "tabs": PLAIN,
    "commas": PLAIN.replace("\t", ","),
    "semicolons": PLAIN.replace("\t", ";"),
    "semicolons and decimal commas": PLAIN.replace("\t", ";").replace("20.5", "20,5"),
    "quoted decimal commas": PLAIN.replace("\t", ",").replace("20.5", '"20,5"'),
    "byte order mark": codecs.BOM_UTF8 + PLAIN.encode(),
    "UTF-16": PLAIN.encode("utf-16"),
    "UTF-16, big end first": codecs.BOM_UTF16_BE + PLAIN.encode("utf-16-be"),
    "UTF-32": PLAIN.encode("utf-32"),
    "UTF-32, big end first": codecs.BOM_UTF32_BE + PLAIN.encode("utf-32-be"),
    "Latin-1": PLAIN.encode("latin-1"),
    "Windows": PLAIN.replace("\n", "\r\n"),
    "old Macintosh": PLAIN.replace("\n", "\r"),
    "blanks": PLAIN.replace("\t", " \t ").replace("\n", " \n"),
    "blank lines": "\n" + PLAIN.replace("\n", "\n\n"),
    "a tab at the end of every line": PLAIN.replace("\n", "\t\n"),
    "accents apart": unicodedata.normalize("NFD", PLAIN),
    "invisible marks": PLAIN.replace("sub-01", "sub-01\u200b").replace("age", "\u202aage\u202c"),
    "quotes": PLAIN.replace("Köln", '"Köln"'),
}


def read(tmp_path, content: str | bytes, name="x.tsv"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_spreadsheet(path)


@pytest.mark.parametrize("how", SAVED)
def test_the_same_cells_however_they_were_saved(tmp_path, how):
    found = read(tmp_path, SAVED[how])
    assert (found.names, found.rows) == CELLS


def workbook() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (PLAIN.replace("Ulm", "Ulm\t"), "has 4 fields in line 3 where its header has 3"),
        (PLAIN.replace("place", "age"), "has the column 'age' twice"),
        (PLAIN.replace("20.5", "1,234"), "may be 1.234 or 1234"),
        (PLAIN.replace("Köln", '"Köln'), "cannot be read as a table"),
        (workbook(), "Save its sheet as TSV or CSV"),
        (b"\x00\x01\x02\xff", "is no text"),
        (PLAIN.encode("utf-16-le"), "UTF-16 or UTF-32 that does not say so"),
        ("", "is empty"),
    ],
)
def test_what_cannot_be_read_in_one_way_is_named(tmp_path, content, words):
    with pytest.raises(DatasetError, match=words) as refused:
        read(tmp_path, content)
    assert "x.tsv" in str(refused.value)


def test_text_with_commas_stays_text(tmp_path):
    assert read(tmp_path, "participant_id\tcode\n1\t3,4\n2\ta\n").rows == [["1", "3,4"], ["2", "a"]]

"""Tables and sidecars on disk: lossless, deterministic, never half-written."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.core.connectome import pearson_connectivity, standardise
from fcpower_bids.core.edges import edge_count, rebuild_connectome
from fcpower_bids.errors import DAMAGED_ARRAY, DatasetError
from fcpower_bids.parallel import call_alone
from fcpower_bids.schema import EXACT, SERIES_VOLUMES, TableSpec, table_fault
from fcpower_bids.store import atomic, load_json, write_text

MISSING = "n/a"
ROWS = 50_000
"""Rows of a table that become text at a time."""
COMPRESSION = 6


def write_json(path: Path, content: Mapping[str, Any], *, flush: bool = True) -> Path:
    """Write a JSON sidecar in one step; NaN becomes null, because JSON has no NaN."""
    return write_text(path, json_text(content), flush=flush)


def describe_files(content: Mapping[str, Any], file: Path) -> Path:
    """Write the sidecar of a file and return its path."""
    return write_json(file.with_suffix(".json"), content)


def json_text(content: Mapping[str, Any]) -> str:
    """Return what :func:`write_json` writes."""
    return json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Turn numpy values, paths, tuples and non-finite numbers into what JSON knows."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return list(value) if set(map(type, value)) == {str} else [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _decimals(row: Sequence[float]) -> str:
    """Shortest decimals that read back as the same float64, integers without a point, separated by tabs."""
    text = "\t".join(map(repr, row)) + "\t"
    return text.replace(".0\t", "\t").replace("nan\t", f"{MISSING}\t")[:-1]


def write_matrix(path: Path, values: np.ndarray, columns: Sequence[str], index: Sequence[str] | None = None) -> Path:
    """Write a numeric array as TSV without losing a bit. Values (rows, columns). Raises ValueError."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "fiub" or numbers.ndim != 2 or numbers.shape[1] != len(columns):
        raise ValueError(f"An array {numbers.shape} of {numbers.dtype} is no table of {len(columns)} columns.")
    rows = _rows(np.ascontiguousarray(numbers, dtype=np.float64))
    header = "\t".join(([] if index is None else ["Node"]) + list(columns))
    lines = rows if index is None else (f"{name}\t{row}" for name, row in zip(index, rows, strict=True))
    return write_text(path, "\n".join([header, *lines]) + "\n")


def _rows(numbers: np.ndarray) -> Iterator[str]:
    """Rows as text; of a symmetric matrix each number is made a text once, which takes two thirds of the time."""
    bits = numbers.view(np.int64)
    if not np.array_equal(bits, bits.T):
        yield from map(_decimals, numbers.tolist())
        return
    cells = np.empty(numbers.shape, dtype=object)
    for place, row in enumerate(numbers.tolist()):
        cells[place, place:] = cells[place:, place] = _decimals(row[place:]).split("\t")
        yield "\t".join(cells[place].tolist())


def refuse_pipe(path: Path) -> None:
    """Refuse a path that is no file before it is opened: reading a pipe waits for a writer. Raises DatasetError."""
    if not path.is_file() and path.exists():
        raise DatasetError(f"{path} is a folder, a pipe or a device, not a file. Put the file there.")


def read_matrix(path: Path) -> tuple[np.ndarray, list[str]]:
    """Read what :func:`write_matrix` wrote, to the bit: values and column names. Raises DatasetError."""
    refuse_pipe(path)
    try:
        header, end, body = path.read_bytes().partition(b"\n")
        if not end:
            raise ValueError("it has no line")
        names = header.decode("utf-8").rstrip("\r").split("\t")
        if names == [""]:  # without columns, as the design of --strategy none
            return np.empty((body.count(b"\n"), 0)), []
        first = int(names[0] == "Node")
        values = _numbers(body, first, len(names))
        return values, names[first:]
    except (ValueError, OSError) as error:
        raise DatasetError(f"{path} is not a numeric table ({error}). Remove it and run participant level.") from error


def _numbers(body: bytes, first: int, n_columns: int) -> np.ndarray:
    """Read the rows below a header from column ``first`` on; pandas alone would fill short rows and accept words."""
    if not body:
        return np.empty((0, n_columns - first))
    if b"\0" in body:  # which pandas before 3.1 passes over
        raise ValueError("it holds null bytes")
    choices = {**EXACT, "sep": "\t", "header": None, "quoting": csv.QUOTE_NONE, "low_memory": False}
    table = pd.read_csv(
        io.BytesIO(body),
        usecols=range(first, n_columns),
        na_values=[MISSING, "nan"],
        keep_default_na=False,
        skip_blank_lines=False,
        **choices,
    )
    if body.count(b"\t") != len(table) * (n_columns - 1):
        raise ValueError(f"not every row has {n_columns} cells")
    if any(dtype.kind not in "fiu" for dtype in table.dtypes):
        raise ValueError("it holds words")
    return table.to_numpy(dtype=np.float64)


SERIES_COLUMNS = "Columns"
"""Entry of the sidecar of an array that stands for a table: the names of the columns."""


def write_array(path: Path, values: np.ndarray) -> Path:
    """Write an array as ``.npy``, in the precision that it has."""
    values = np.ascontiguousarray(values)
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
        file.write(values.data)  # says when a disk is full, which numpy does not
    return path


def read_array(path: Path) -> np.ndarray:
    """Read what :func:`write_array` wrote. Raises DatasetError."""
    refuse_pipe(path)
    try:
        if is_cut_short(path):  # a header may promise more than the memory
            raise ValueError("another size than its header says")
        values = np.load(path, allow_pickle=False)
    except DAMAGED_ARRAY as error:
        raise DatasetError(f"{path} is not an array, or is cut short. Remove it and run participant level.") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}). Remove it and run participant level.") from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fi":
        raise DatasetError(f"{path} does not hold numbers. Remove it and run participant level.")
    return values


def series_file(table: Path) -> Path:
    """Return where a series or FC is: in the table, or in the array that stands in its place."""
    array = table.with_suffix(".npy")
    return array if array.is_file() and not table.is_file() else table


SERIES_END = "_timeseries"
LONGEST = 128
"""Bytes of a number or of a name of a parcel, and more."""


def is_cut_short(path: Path) -> bool:
    """Whether a series ends before it should, from both ends of its file, which is quick. Raises OSError."""
    if path.suffix == ".npy":
        try:
            values = np.lib.format.open_memmap(path, mode="r")  # reads the header alone
            return bool(values.offset + values.nbytes != path.stat().st_size)
        except DAMAGED_ARRAY:
            return True
    with path.open("rb") as file:
        separators = file.readline().count(b"\t")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - (separators + 1) * LONGEST))
        last = file.read().removesuffix(b"\n").rpartition(b"\n")[2]
        file.seek(max(0, size - 1))
        return file.read() != b"\n" or last.count(b"\t") != separators


def read_series(path: Path, z_scored: bool = True) -> tuple[np.ndarray, list[str]]:
    """Read a series (T, P) or a matrix (P, P), table or array, and the names of its columns. Raises DatasetError.

    An array of a series is as its source had it, and z-scored here unless it is wanted as it is.
    """
    if path.suffix == ".npy":
        values: np.ndarray = read_array(path).astype(np.float64)
        names = column_names(path)
        if values.shape == (edge_count(len(names)),):
            values = rebuild_connectome(values)
        if values.ndim != 2 or values.shape[1] != len(names):
            raise DatasetError(
                f"{path} does not have the {len(names)} columns of its JSON. Run participant level again."
            )
        if z_scored and path.stem.endswith(SERIES_END):
            values = _of_series(standardise, values, path)
    else:
        values, names = read_matrix(path)
    sidecar = path.with_suffix(".json")
    if path.stem.endswith(SERIES_END) and sidecar.is_file():  # files made from a series state the same
        volumes = read_json(sidecar).get(SERIES_VOLUMES)
        if isinstance(volumes, (int, float)) and volumes != len(values):  # it was cut at the end of a line
            raise DatasetError(
                f"{path} has {len(values)} of the {volumes:g} volumes of its JSON. Remove it and run participant level."
            )
    return values, names


def read_connectome(path: Path) -> tuple[np.ndarray, list[str]]:
    """Read an FC (P, P) and the names of its parcels; of a series alone it is computed. Raises DatasetError."""
    values, names = read_series(path, z_scored=False)
    if path.stem.endswith(SERIES_END):
        values = _of_series(partial(call_alone, pearson_connectivity), values, path)
    if values.shape != (len(names), len(names)):
        raise DatasetError(f"{path} is no square matrix: it is damaged. Make it again.")
    return values, names


def _of_series(function: Callable[[np.ndarray], np.ndarray], series: np.ndarray, path: Path) -> np.ndarray:
    try:
        return function(series)
    except ValueError as error:
        raise DatasetError(f"{path} is no series ({error}). Remove it and run again with its source.") from error


def column_names(path: Path) -> list[str]:
    """Read the column names of a table, or of the JSON of an array. Raises DatasetError, OSError."""
    if path.suffix == ".npy":
        return list(map(str, read_json(path.with_suffix(".json")).get(SERIES_COLUMNS) or ()))
    refuse_pipe(path)
    with path.open(encoding="utf-8", errors="replace") as file:
        header = file.readline()
    names = header.rstrip("\r\n").split("\t") if header.endswith("\n") else [""]
    return names[names[0] in ("", "Node") :]


def write_table(path: Path, table: pd.DataFrame | Iterable[pd.DataFrame], spec: TableSpec | None = None) -> Path:
    """Write a table, whole or block by block, as :func:`table_text`: the same rows give the same bytes."""
    with ExitStack() as opened:
        raw: Any = opened.enter_context(opened.enter_context(atomic(path)).open("wb"))
        if path.suffix == ".gz":
            raw = opened.enter_context(gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0))
        stream = opened.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline="\n"))
        stream.writelines(_lines([table] if isinstance(table, pd.DataFrame) else table, spec))
    return path


def table_text(table: pd.DataFrame, spec: TableSpec | None = None) -> str:
    """Return a table of mixed columns, those of its declaration where it has one, as TSV. Raises TypeError.

    Missing values are ``n/a``, tabs and line breaks are spaces.
    """
    return "".join(_lines([table], spec))


def _lines(blocks: Iterable[pd.DataFrame], spec: TableSpec | None) -> Iterator[str]:
    """Yield header and rows as text, some at a time."""
    for number, block in enumerate(blocks):
        if spec is not None:
            spec.check(list(map(str, block.columns)))
        if number == 0:
            yield "\t".join(map(_cell, block.columns)) + "\n"
        for at in range(0, len(block), ROWS):
            part = block.iloc[at : at + ROWS]
            cells = [_cells(part.iloc[:, place]) for place in range(part.shape[1])]
            yield "\n".join([*map("\t".join, zip(*cells, strict=True)), ""])


def _cells(column: pd.Series) -> list[str]:
    """:func:`_cell` of each value; numbers at once, and texts that repeat once, as tables of edges are long."""
    values = column.tolist()
    if column.dtype == np.float64 and values:
        return _decimals(values).split("\t")
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu":
        return list(map(str, values))
    texts = {value: _cell(value) for value in set(values)} if set(map(type, values)) == {str} else {}
    return list(map(texts.__getitem__ if texts else _cell, values))


def _cell(value: Any) -> str:
    if value is None or value is pd.NA or (isinstance(value, (float, np.floating)) and value != value):
        return MISSING
    if isinstance(value, (float, np.floating)):
        return _decimals([float(value)])
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    text = " ".join(str(value).split()) or MISSING
    if len(text) > 1 and text[0] in "=+-@":  # a spreadsheet would compute it, unless it is a number
        try:
            float(text)
        except ValueError:
            return f"'{text}"
    return text


def read_table(path: Path) -> pd.DataFrame:
    """Read a TSV with ``n/a`` as missing; identifiers such as 01 keep their zeros. Raises DatasetError."""
    refuse_pipe(path)
    try:
        table = pd.read_csv(path, sep="\t", dtype=str, na_values=[MISSING], keep_default_na=False, encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read as a tab-separated table: {error}") from error
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        fault = table_fault(path) or "holds no columns: copy it again, or remove it and run again what wrote it"
        raise DatasetError(f"{path} cannot be read as a tab-separated table: it {fault}.") from error
    for name in table.columns:
        if name.endswith("_id") or name in ("participant", "session"):
            continue
        numbers = pd.to_numeric(table[name], errors="coerce")
        if numbers.notna().sum() == table[name].notna().sum():
            table[name] = numbers
    return table


UNREADABLE = (OSError, ValueError, EOFError, zlib.error)
"""Exceptions raised by reading a damaged table; the latter two where it is compressed."""
CHUNK = 100_000
"""Rows of a long table in memory at a time."""
REMEDY = "Run the level that wrote it again."


def read_declared(path: Path, spec: TableSpec, most: int = 0) -> pd.DataFrame:
    """Read a table that was written, with text as text and ``n/a`` as missing. Raises DatasetError.

    `most`: rows of each target and representation, of which a long table has millions; 0 for all.
    """
    options: dict[str, Any] = {"sep": "\t", "na_values": ["n/a"], "keep_default_na": False, "quoting": csv.QUOTE_NONE}
    kinds = {key: str for key, column in spec.columns.items() if column.is_text}
    try:
        if most:
            with pd.read_csv(path, dtype=kinds, chunksize=CHUNK, **options) as chunks:
                parts = [chunk.groupby(["target", "representation"], sort=False).head(most) for chunk in chunks]
            table = pd.concat(parts).groupby(["target", "representation"], sort=False).head(most)
        else:
            table = pd.read_csv(path, dtype=kinds, **options)
    except UNREADABLE as error:
        raise DatasetError(f"{path.name} cannot be read as a tab-separated table ({error}). {REMEDY}") from error
    texts = {key for key in table if len(table) and not pd.api.types.is_numeric_dtype(table[key])}
    for key in spec.needed:
        if key not in table or (key in texts and not spec.columns[key].is_text):
            raise DatasetError(f"{path.name} has no column {key}, or text in it for numbers. {REMEDY}")
    return table


class Facts(dict[str, Any]):
    """A JSON object that knows its file: an entry that is not there is the fault of the file, and it is named."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.path = path

    def __missing__(self, name: str) -> Any:
        raise DatasetError(f"{self.path} has no entry '{name}'.")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file as it is. Raises OSError, ValueError, DatasetError."""
    refuse_pipe(path)
    if sys.version_info >= (3, 11):
        import tomllib  # the standard library has it from Python 3.11 on
    else:
        import tomli as tomllib  # the standard library has it from Python 3.11 on
    return tomllib.loads(path.read_text(encoding="utf-8"))


def made_by(dataset: Path) -> list[Mapping[str, Any]]:
    """``GeneratedBy`` of a dataset, the last program first; empty where it is not stated. Raises DatasetError."""
    path = dataset / "dataset_description.json"
    return programs_in(read_json(path)) if path.is_file() else []


def programs_in(description: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """``GeneratedBy`` of a description of a dataset, as far as it is well-formed."""
    entries = description.get("GeneratedBy")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def program_names(dataset: Path) -> list[str]:
    """Names of the programs that made a dataset, as it states them. Raises DatasetError."""
    return [str(program.get("Name", "")) for program in made_by(dataset)]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises DatasetError."""
    refuse_pipe(path)
    try:
        content = load_json(path)
    except FileNotFoundError as error:
        raise DatasetError(f"{path} is not there: copy it again, or make it anew.") from error
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} is not valid JSON ({error}): correct it or copy it again.") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path} must hold a JSON object, not a {type(content).__name__}.")
    return Facts(path, content)

"""An output folder as the participant level leaves it, made through the same writers from invented recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fcpower_bids.core.series import clean_series
from fcpower_bids.outputs.dataset import copy_atlas, prepare_dataset
from fcpower_bids.outputs.recording import Results, conclude_recording, write_recording
from fcpower_bids.outputs.status import Status, embedding_names
from fcpower_bids.records import Atlas, Cleaning, ParcelSeries, Recording
from fcpower_bids.reports.figures import write_previews
from fcpower_bids.reports.methods import write_methods
from fcpower_bids.reports.person import write_pages
from fcpower_bids.settings import Settings
from fcpower_bids.transforms.connectomes import connectivity_of, make_transform, transform_recording

TR = 2.0
EXCLUDED = "Only 20 s of 400 s are left after dummy scans and censoring at 0.5 mm, less than --min-time 120 s."


def write_outputs(
    folder: Path,
    n_runs: int = 2,
    n_parcels: int = 24,
    n_volumes: int = 200,
    sessions: tuple[str, ...] = (),
    excluded: tuple[int, ...] = (),
    networks: tuple[str, ...] = ("Vis", "SomMot", "Default"),
    names: tuple[str, ...] = (),
    subject: str = "01",
    embedding: dict[str, object] | None = None,
    **choices: object,
) -> Settings:
    """Write everything of one participant; runs in ``excluded`` do not pass the quality limits."""
    settings = replace(Settings(folder / "bids", folder / "out", "participant", atlas=("toy",)), **choices)
    prepare_dataset(settings, {})
    atlas = make_atlas(folder, n_parcels, networks, names)
    copy_atlas(settings.output_dir, atlas)
    for number in range(n_runs):
        session = (("ses", sessions[number % len(sessions)]),) if sessions else ()
        entities = (("sub", subject), *session, ("task", "rest"), ("run", f"{number + 1}"), ("space", atlas.space))
        recording = Recording(folder / "bids" / "bold.nii.gz", entities, TR)
        results = make_results(recording, atlas, settings, n_volumes, number, number in excluded)
        if embedding is not None:
            results = replace(results, embeddings=[{"toy": (np.arange(8.0), embedding)}])
        write_previews(settings.output_dir, results)
        finish_recording(settings.output_dir, results, "fingerprint")
    return settings


def finish_recording(output_dir: Path, results: Results, fingerprint: str, seconds: float = 0.0) -> Status:
    """Write all files of a recording and then its status, as the nodes and the job do."""
    written = write_recording(output_dir, results)
    name = results.recording.name
    embedded = embedding_names(name, [atlas.name for atlas in results.atlases], results.settings)
    return conclude_recording(output_dir, name, written, fingerprint, seconds, embedded, "")


def make_results(
    recording: Recording, atlas: Atlas, settings: Settings, n_volumes: int, seed: int, excluded: bool
) -> Results:
    """Invent a recording and take it through cleaning and connectomes."""
    random = np.random.default_rng(seed)
    shared = random.standard_normal((n_volumes, 6)) @ random.standard_normal((6, atlas.n_parcels))
    raw = 1e4 + 100 * np.cumsum(shared + random.standard_normal(shared.shape), axis=0) / 10
    coverage = np.ones(atlas.n_parcels)
    coverage[-1] = 0.2
    raw[:, coverage < settings.min_coverage] = np.nan
    kept = np.ones(n_volumes, dtype=bool)
    kept[:2] = kept[50:53] = False
    if excluded:
        kept[10:] = False
    motion = random.standard_normal((n_volumes, 6))
    cleaning = Cleaning(
        kept=kept,
        framewise_displacement=np.where(kept, 0.1, 0.9),
        dvars=np.abs(random.standard_normal(n_volumes)) * 20,
        design=motion,
        design_names=tuple(f"motion_{i}" for i in range(6)),
        dropped_confounds=(),
        n_dummy=2,
        degrees_of_freedom=30.0,
        n_regressors=6,
        repetition_time=TR,
        excluded=EXCLUDED if excluded else "",
    )
    empty = np.empty((0, 0))
    clean = empty if excluded else clean_series(raw, motion, kept, TR, *settings.band).series
    found = connect(clean, atlas.names, settings)
    series = [ParcelSeries(coverage, raw, clean, empty)]
    return Results(recording, (atlas,), settings, {}, cleaning, series, [found], [{}])


def connect(series: np.ndarray, names, settings) -> dict:
    """FC and its transforms of a cleaned series, with what their sidecars say; nothing without volumes."""
    if not len(series):
        return {}
    found = {"fc": connectivity_of(series, names)}
    for name in settings.transforms:
        found[name] = transform_recording(make_transform(name, settings), found["fc"][0], series, names)
    return found


def make_atlas(folder: Path, n_parcels: int, networks: tuple[str, ...], names: tuple[str, ...] = ()) -> Atlas:
    """Make boxes of labels in a small volume; networks alternate, so that sorting by network changes the order."""
    import nibabel

    labels = np.zeros((30, 36, 30), dtype=np.int16)
    inner = labels[3:-3, 3:-3, 3:-3]
    inner[:] = 1 + (np.arange(inner.size) * n_parcels // inner.size).reshape(inner.shape)
    image = folder / "toy_dseg.nii.gz"
    image.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(labels, np.diag([6.0, 6, 6, 1])), image)
    return Atlas(
        (("atlas", "toy"), ("scale", str(n_parcels))),
        image,
        "MNI152NLin2009cAsym",
        tuple(range(1, n_parcels + 1)),
        names or tuple(f"LH_region_{i:03d}" for i in range(n_parcels)),
        tuple(networks[i % len(networks)] for i in range(n_parcels)),
        ("L",) * n_parcels,
        source="boxes",
        citation="Nobody 2026",
    )


def write_participant_reports(settings, subjects):
    """Write the pages of participants and the methods text of all, which must succeed."""
    written = write_pages(settings, subjects)
    write_methods(settings, set(written.atlases))
    assert not written.failures
    return written.pages

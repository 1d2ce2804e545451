"""Small trees as other programs write them, all holding the same series."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
from nibabel.cifti2 import BrainModelAxis, ParcelsAxis, SeriesAxis
from scipy.io import savemat
from scipy.spatial.distance import squareform

from tests.planting.trees import put

P, T, TR = 8, 70, 2.0
NAMES = tuple(f"Area{number}" for number in range(P))
PEOPLE, SESSIONS = ("01", "02", "03", "04", "05"), ("a", "b")
SCANS = tuple((person, session) for person in PEOPLE for session in SESSIONS)
MEAN_FD = {scan: 0.1 + 0.01 * number for number, scan in enumerate(SCANS)}
RANDOM = np.random.default_rng(3)
MIXING = {person: RANDOM.normal(size=(P, P)) for person in PEOPLE}
"""Each person has a matrix of their own, so that sessions can be matched."""
SERIES = {(person, session): RANDOM.normal(size=(T, P)) @ MIXING[person] + 100 for person, session in SCANS}


def read_connectome(path: Path) -> np.ndarray:
    """The connectome (P, P) of the series or edges that the group level keeps of another program's scan."""
    if path.stem.endswith("_timeseries"):
        return np.corrcoef(np.load(path).T)
    matrix = squareform(np.load(path), checks=False)
    np.fill_diagonal(matrix, np.where(np.isnan(matrix).sum(axis=0) >= len(matrix) - 1, np.nan, 1.0))
    return matrix


def table(path: Path, values: np.ndarray, names=NAMES, index=None, header=True, separator="\t") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(values, columns=list(names), index=index)
    frame.to_csv(path, sep=separator, index=index is not None, index_label="Node", header=header)


def described(root: Path, program: str) -> Path:
    about = {"Name": program, "BIDSVersion": "1.9.0", "DatasetType": "derivative", "GeneratedBy": [{"Name": program}]}
    return put(root / "dataset_description.json", about).parent


def stem(person: str, session: str) -> str:
    return f"sub-{person}/ses-{session}/func/sub-{person}_ses-{session}_task-rest"


def parcels() -> ParcelsAxis:
    model = BrainModelAxis.from_mask(np.ones(P, dtype=bool), name="cortex_left")
    return ParcelsAxis.from_brain_models([(name, model[number : number + 1]) for number, name in enumerate(NAMES)])


def xcpd(root: Path, cifti: bool = False) -> None:
    described(root, "xcp_d")
    for (person, session), values in SERIES.items():
        base = root / f"{stem(person, session)}_space-fsLR_seg-Toy"
        if cifti:
            base.parent.mkdir(parents=True, exist_ok=True)
            image = nibabel.Cifti2Image(values, (SeriesAxis(0, TR, T), parcels()))
            image.to_filename(f"{base}_stat-mean_timeseries.ptseries.nii")
        else:
            table(Path(f"{base}_stat-mean_timeseries.tsv"), values)
            table(Path(f"{base}_stat-pearsoncorrelation_relmat.tsv"), np.corrcoef(values.T), index=NAMES)
        Path(f"{base}_stat-mean_timeseries.json").write_text(json.dumps({"RepetitionTime": TR}))
        quality = pd.DataFrame([{"mean_fd": MEAN_FD[person, session], "num_retained_volumes": T}])
        quality.to_csv(root / f"{stem(person, session)}_space-fsLR_desc-linc_qc.tsv", sep="\t", index=False)


def old_xcpd(root: Path) -> None:
    described(root, "xcp_d")
    for (person, session), values in SERIES.items():
        base = root / f"{stem(person, session)}_space-MNI152NLin2009cAsym_atlas-Toy"
        table(Path(f"{base}_timeseries.tsv"), values)
        table(Path(f"{base}_measure-pearsoncorrelation_conmat.tsv"), np.corrcoef(values.T), index=NAMES)
        quality = pd.DataFrame([{"meanFD": MEAN_FD[person, session]}])
        quality.to_csv(root / f"{stem(person, session)}_space-MNI152NLin2009cAsym_desc-linc_qc.csv", index=False)


def giga(root: Path) -> None:
    described(root, "giga_connectome")
    for (person, session), values in SERIES.items():
        base = root / f"{stem(person, session)}_seg-Toy"
        table(Path(f"{base}_desc-denoiseSimple_timeseries.tsv"), values)
        relmat = Path(f"{base}_meas-PearsonCorrelation_desc-denoiseSimple_relmat.tsv")
        table(relmat, np.corrcoef(values.T), index=NAMES)
        about = {"MeanFramewiseDisplacement": MEAN_FD[person, session], "SamplingFrequency": 1 / TR}
        (root / f"{stem(person, session)}_desc-denoiseSimple_timeseries.json").write_text(json.dumps(about))


def halfpipe(root: Path) -> None:
    described(root, "HALFpipe")
    for (person, session), values in SERIES.items():
        base = root / f"{stem(person, session)}_feature-corrMatrix_atlas-Toy"
        table(Path(f"{base}_timeseries.tsv"), values, header=False)
        table(Path(f"{base}_desc-correlation_matrix.tsv"), np.corrcoef(values.T), header=False)
        about = {"FDMean": MEAN_FD[person, session], "SamplingFrequency": 1 / TR}
        Path(f"{base}_timeseries.json").write_text(json.dumps(about))


def dpabi(root: Path) -> None:
    for (person, session), values in SERIES.items():
        folder = root / f"{'S2_' if session == 'b' else ''}Results" / "ROISignals_FunImgARCWF"
        folder.mkdir(parents=True, exist_ok=True)
        savemat(folder / f"ROISignals_Sub0{person}.mat", {"ROISignals": values})
        savemat(folder / f"ROICorrelation_Sub0{person}.mat", {"ROICorrelation": np.corrcoef(values.T)})
        with np.errstate(divide="ignore"):
            z = np.arctanh(np.corrcoef(values.T))
        savemat(folder / f"ROICorrelation_FisherZ_Sub0{person}.mat", {"ROICorrelation_FisherZ": z})


def conn(root: Path) -> None:
    folder = root / "results" / "firstlevel" / "SBC_01"
    folder.mkdir(parents=True)
    for (person, session), values in SERIES.items():
        z = np.arctanh(np.corrcoef(values.T) - np.eye(P))
        z[np.diag_indices(P)] = np.nan
        number = SESSIONS.index(session) + 1
        savemat(folder / f"resultsROI_Subject0{person}_Condition00{number}.mat", {"Z": z, "names": NAMES, "SE": 0.1})


def cpac(root: Path) -> None:
    """ABIDE has one session."""
    folder = root / "Outputs" / "cpac" / "filt_noglobal" / "rois_toy"
    folder.mkdir(parents=True)
    for (person, session), values in SERIES.items():
        if session == "a":
            header = "\t".join(f"#{number + 1}" for number in range(P))
            np.savetxt(folder / f"NYU_00510{person}_rois_toy.1D", values, delimiter="\t", header=header, comments="")


def hcp(root: Path) -> None:
    folder = root / "node_timeseries" / "3T_HCP1200_MSMAll_d8_ts2"
    folder.mkdir(parents=True)
    for (person, session), values in SERIES.items():
        if session == "a":
            np.savetxt(folder / f"1002{person}.txt", values)

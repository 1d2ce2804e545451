"""Series to connectomes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nipype.interfaces.base import BaseInterfaceInputSpec, File, TraitedSpec, traits

from fcpower_bids.core.paper import ALPHA_STAR
from fcpower_bids.errors import UsageError
from fcpower_bids.interfaces.bundles import load_values, save_bundle
from fcpower_bids.interfaces.step import Step
from fcpower_bids.transforms.connectomes import FC, connectivity_of, recording_transform, transform_recording


class ConnectivityInputSpec(BaseInterfaceInputSpec):
    """Cleaned series."""

    series = traits.List(File(exists=True), mandatory=True, desc="of Bandpass, or .npy or .tsv (T, P), one per atlas")


class ConnectivityOutputSpec(TraitedSpec):
    """One file per atlas."""

    connectivity = traits.List(File(exists=True), desc="Pearson FC (P, P) under each atlas")


class Connectivity(Step):
    """FC: the Pearson correlation of the parcel series."""

    input_spec = ConnectivityInputSpec
    output_spec = ConnectivityOutputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        self._results["connectivity"] = []
        for path in self.inputs.series:
            values, facts = load_values(path, "series")
            matrix, about = connectivity_of(values, facts["parcels"])
            saved = {"atlas": facts["atlas"], "parcels": facts["parcels"], "transform": FC, "about": about}
            written = save_bundle(folder / f"{FC}_{facts['atlas']}.npz", {"matrix": matrix}, saved)
            self._results["connectivity"].append(written)


class TransformInputSpec(BaseInterfaceInputSpec):
    """FC, the series for transforms that need it, and the transform."""

    series = traits.List(File(exists=True), desc="of Bandpass, for transforms of the series")
    connectivity = traits.List(
        File(exists=True), mandatory=True, desc="of Connectivity, or .npy or .tsv (P, P), one per atlas"
    )
    transform = traits.Str(mandatory=True, desc="a stateless entry of fcpower_bids.transforms.TRANSFORMS")
    parameters = traits.Dict(key_trait=traits.Str(), usedefault=True, desc="its parameters by name")


class TransformOutputSpec(TraitedSpec):
    """One file per atlas."""

    transformed = traits.List(File(exists=True), desc="transformed connectome (P, P) under each atlas")


class Transform(Step):
    """A connectome or series to a symmetric matrix of the same parcels."""

    input_spec = TransformInputSpec
    output_spec = TransformOutputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        self._transform(folder, self.inputs.transform, self.inputs.parameters, self.given("series"))

    def _transform(
        self, folder: Path, name: str, parameters: Mapping[str, Any], series: list[str] | None = None
    ) -> None:
        transform = recording_transform(name, parameters)
        if transform.needs == "series" and series is None:
            raise UsageError(f"The transform '{name}' needs the series: connect that port too.")
        self._results["transformed"] = []
        for number, path in enumerate(self.inputs.connectivity):
            values, facts = load_values(path, "matrix")
            rows = load_values(series[number], "series")[0] if transform.needs == "series" and series else np.empty(0)
            matrix, about = transform_recording(transform, values, rows, facts["parcels"])
            saved = {"atlas": facts["atlas"], "parcels": facts["parcels"], "transform": name, "about": about}
            saved["label"] = transform.label
            written = save_bundle(folder / f"{name}_{facts['atlas']}.npz", {"matrix": matrix}, saved)
            self._results["transformed"].append(written)


class PowerInputSpec(BaseInterfaceInputSpec):
    """FC and the exponent."""

    connectivity = traits.List(
        File(exists=True), mandatory=True, desc="of Connectivity, or .npy or .tsv (P, P), one per atlas"
    )
    alpha = traits.Float(ALPHA_STAR, usedefault=True, desc="exponent of the eigenvalues; 1 is FC itself")


class Power(Transform):
    """FC^alpha: the eigenvalues of FC raised to alpha, its eigenvectors kept (the paper, Equation 1)."""

    input_spec = PowerInputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        self._transform(folder, "power", {"alpha": self.inputs.alpha})

"""The ``README.md`` of a model: its header for the hub, how it is loaded, and what must be known of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LICENCES = {
    *("apache-2.0", "mit", "bsd-3-clause", "gpl-3.0", "cc0-1.0", "odbl", "pddl", "cc", "cc-by-2.0", "cc-by-3.0"),
    *("cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0"),
    *("cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "unknown"),
}
"""Licences that the hub knows; any other is given as ``other`` with its name."""

TEXT = """\
# {title}

Embeds parcel series of resting-state fMRI. Inputs are matched by the parcel names in `config.json` and z-scored over
the whole recording. With fcpower_bids: `--encoder {model_type} --encoder-weights` and this folder, which also compares
the weights with their checksums. Without it, `{module}.py` of this folder needs {library} and safetensors alone:

```python
from {module} import {name}

model = {name}.from_pretrained(".")
embedding = model.embed(series, parcel_names)  # volumes x parcels
```

`config.json` lists who was in the training as salted digests, which hide no person from one who guesses the labels.
"""

WORDS = {
    "fbert": {"title": "F-BERT", "module": "modeling_fbert", "name": "FBert", "library": "torch"},
    "closed-form": {
        "title": "Closed-form student of FC^alpha",
        "module": "modeling_closed_form",
        "name": "ClosedForm",
        "library": "numpy",
    },
}
"""By type of the model: what the text says of it."""


def hub_licence(licence: str) -> dict[str, str]:
    """Return the licence in the words of the hub: an identifier it knows, or ``other`` and a name."""
    key = re.sub(r"[ _]+", "-", licence.strip().lower())
    if key in ("", "n/a"):
        key = "unknown"
    if key in LICENCES:
        return {"license": key}
    return {"license": "other", "license_name": re.sub(r"[^a-z0-9.]+", "-", key).strip("-") or "other"}


def model_readme(licence: str, facts: Mapping[str, Any], model_type: str = "fbert") -> str:
    """Return the text of a model card."""
    from huggingface_hub import ModelCardData  # slow to load, and only a model that is written needs it

    said = hub_licence(licence)
    header = ModelCardData(
        license=said["license"],
        license_name=said.get("license_name"),
        tags=["fmri", "connectome", model_type],
        library_name="pytorch" if model_type == "fbert" else None,
        pipeline_tag="feature-extraction",
    )
    rows = "".join(f"| {_cell(key)} | {_cell(value)} |\n" for key, value in facts.items())
    text = TEXT.format(model_type=model_type, **WORDS[model_type])
    return f"---\n{header.to_yaml()}\n---\n\n{text}\n| | |\n|---|---|\n{rows}"


def _cell(value: Any) -> str:
    return "n/a" if value is None else " ".join(str(value).split()).replace("|", "\\|")

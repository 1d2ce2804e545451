"""F-BERT on top of the closed form: it begins as the closed-form student, and steps of training add to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.encoders.closed_form import ClosedForm, ClosedFormConfig
from fcpower_bids.encoders.fbert import FBert, FBertConfig


@dataclass(frozen=True)
class ResidualConfig(FBertConfig):
    """Everything that decides the output, apart from the weights: F-BERT's, and the exponent of the closed form."""

    model_type: ClassVar[str] = "fbert-residual"
    exponent: float = ALPHA_STAR

    def __post_init__(self) -> None:
        super().__post_init__()
        self.closed_form()  # for what it refuses

    def closed_form(self) -> ClosedFormConfig:
        """Shape of the closed form that is added to."""
        return ClosedFormConfig(self.n_parcels, self.d, self.exponent)

    def build(self, seed: int = 0) -> ResidualFBert:
        """Make the model, with initial weights and a closed form of zeros."""
        return ResidualFBert(self, seed)


class ResidualFBert(FBert):
    """Closed form plus ``scale`` times a linear map of the ``[CLS]`` output, which is zero before the first step."""

    def __init__(self, config: ResidualConfig, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.closed_form = ClosedForm(config.closed_form())
        self.output = nn.Linear(config.d, config.d, bias=False)
        nn.init.zeros_(self.output.weight)
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)

    @torch.no_grad()
    def begin(self, closed: ClosedForm, features: ArrayLike) -> None:
        """Become a closed form, in whose units of the root mean square over features (n, E) steps are taken."""
        self.closed_form = closed.widened(self.config.d)
        edges = torch.as_tensor(features)
        self.scale.copy_(((edges - closed.mean) @ closed.weights).square().mean().sqrt())

    def forward(self, x: Tensor, closed: Tensor | None = None) -> Tensor:
        """Embed z-scored series (B, T, P), or what is added to coordinates that are known (B, d): (B, d)."""
        closed = self.closed_form(x) if closed is None else closed
        return closed + self.scale * self.output(super().forward(x))

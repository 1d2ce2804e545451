"""The identities of the paper about kernels and losses, to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.pretrain.engine import LOSSES, centre, cka, diagonal_share, kl, teacher_logits


def batch(n: int = 12, d: int = 5, edges: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings, and the correlation kernel of random teacher vectors."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, edges))
    z -= z.mean(1, keepdims=True)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return torch.from_numpy(rng.standard_normal((n, d))), torch.from_numpy(z @ z.T)


@pytest.mark.parametrize("d", [3, 12, 40])
def test_cka_equals_its_definition(d):
    E, K = batch(d=d)
    H = torch.eye(12, dtype=torch.float64) - 1 / 12
    S, T = H @ E @ E.T @ H, H @ K @ H
    expected = (S * T).sum() / (S.norm() * T.norm())
    torch.testing.assert_close(cka(E, K), expected, rtol=0, atol=1e-14)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.01, 100), n=st.integers(5, 20), d=st.integers(2, 8))
def test_invariances(seed, scale, n, d):
    """Rotation, isotropic scaling and translation of the embeddings; order of the recordings."""
    E, K = batch(n, d, seed=seed)
    rng = np.random.default_rng(seed)
    Q = torch.from_numpy(np.linalg.qr(rng.standard_normal((d, d)))[0])
    order = torch.from_numpy(rng.permutation(n))
    moved = scale * E @ Q + 3.0
    torch.testing.assert_close(cka(moved, 7 * K), cka(E, K), rtol=0, atol=1e-9)
    torch.testing.assert_close(cka(E[order], K[order][:, order]), cka(E, K), rtol=0, atol=1e-11)
    torch.testing.assert_close(kl(scale * E @ Q, K), kl(E, K), rtol=1e-9, atol=1e-9)


def test_alignment_is_one_for_the_teacher_itself():
    _, K = batch()
    values, vectors = torch.linalg.eigh(K)
    E = vectors * values.clamp(min=0).sqrt()
    assert cka(E, K).item() == pytest.approx(1, abs=1e-12)
    assert cka(torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), K) < 0.9


def test_distance_and_correlation_teachers_are_one_target():
    _, K = batch(15)
    others = ~torch.eye(15, dtype=torch.bool)
    r = K[others]
    from_r = ((r - r.mean()) / r.std(correction=0) / 0.2).view(15, 14).log_softmax(1)
    from_d = teacher_logits(K)[others].view(15, 14).log_softmax(1)
    torch.testing.assert_close(from_d, from_r, rtol=0, atol=1e-12)


def test_kl_equals_a_plain_loop():
    E, K = batch(7)
    d2 = 2 - 2 * K.numpy()
    pairs = d2[~np.eye(7, dtype=bool)]
    e = E.numpy() / np.linalg.norm(E.numpy(), axis=1, keepdims=True)
    total = 0.0
    for i in range(7):
        j = [k for k in range(7) if k != i]
        t = np.exp(-(d2[i, j] - pairs.mean()) / pairs.std() / 0.2)
        s = np.exp(e[j] @ e[i] / 0.07)
        t, s = t / t.sum(), s / s.sum()
        total += (t * np.log(t / s)).sum()
    assert kl(E, K).item() == pytest.approx(total / 7, abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_finite_differences(name):
    E, K = batch(8, 3)
    assert torch.autograd.gradcheck(lambda e: LOSSES[name](e, K), E.requires_grad_())


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_embeddings_are_scored_in_float32(name):
    E, K = batch(30, 6)
    value = LOSSES[name](E.to(torch.bfloat16), K)
    assert value.dtype == torch.float32
    exact = LOSSES[name](E.to(torch.bfloat16).double(), K)
    assert value.item() == pytest.approx(exact.item(), rel=1e-4, abs=1e-5)


def test_diagonal_share_closed_form():
    """Of H I H = H: n (1 - 1/n)^2 of the squared norm n - 1."""
    n = 20
    assert diagonal_share(torch.eye(n)) == pytest.approx((1 - 1 / n), abs=1e-12)
    torch.testing.assert_close(centre(torch.ones(4, 4)), torch.zeros(4, 4))

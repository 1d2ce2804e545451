"""Draw the figures of docs/gallery.md: ``python docs/examples/gallery.py``, in about twenty seconds."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fcpower_bids as fp
from fcpower_bids.core.regression.targets import permuted_rows
from fcpower_bids.demo.dataset import draw_connectome, draw_person, draw_population
from fcpower_bids.demo.signals import draw_clean_series
from fcpower_bids.slices.edges.equations import build_model
from fcpower_bids.slices.edges.permuted import permute_edges

STAGES = Path(__file__).resolve().parents[2] / "examples" / "stages"
FIGURES = Path(__file__).resolve().parents[1] / "figures"

# Real people, scanned twice
scans = np.load(STAGES / "series.npz")
people = sorted(key for key in scans.files if key.endswith("ses-1"))
visits = [[scans[key] for key in people], [scans[key.replace("ses-1", "ses-2")] for key in people]]


def recognised(alpha):
    one, other = (fp.SpectralPower(alpha, input="series").fit_transform(visit) for visit in visits)
    similarity = np.corrcoef(one, other)[:37, 37:]
    return np.mean([similarity.argmax(axis=axis) == np.arange(37) for axis in (0, 1)])


alphas = [0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0]
shares = [100 * recognised(alpha) for alpha in alphas]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for alpha, colour in ((1.0, "#7f7f7f"), (0.35, "#0072b2")):
    (matrix,) = fp.SpectralPower(alpha, input="series", output="matrices").fit_transform(visits[0][:1])
    raised = np.linalg.eigvalsh(matrix)[::-1]
    left.semilogy(np.arange(1, 401), raised.clip(0) / raised.sum(), color=colour, label=f"alpha = {alpha:g}")
left.set(
    xlabel="eigenvalue", ylabel="share of the spectrum", title="One person's spectrum", xlim=(0, 130), ylim=(1e-5, 1)
)
left.legend(frameon=False)
right.plot(alphas, shares, "o-", color="#0072b2")
right.axvline(0.35, color="#d55e00", linewidth=1)
right.set(xlabel="alpha (1 is FC itself)", ylabel="scans recognised (%)", title="37 people, two visits", ylim=(0, 103))
figure.savefig(FIGURES / "what_it_does.svg")
print(f"{shares[-1]:.0f} % with FC, {shares[2]:.0f} % with FC^0.35")

# Invented people, scanned twice
rng = np.random.default_rng(0)
population = draw_population(rng)
factor = rng.standard_normal(40)
series = []
for value in factor:
    person = draw_person(rng)
    for _ in range(2):
        truth = draw_connectome(population, person, value, rng)
        series.append(draw_clean_series(truth, 120, 2.0, rng))
first, second = series[0::2], series[1::2]

# Prediction of unseen people
X = fp.SpectralPower(0.35, input="series").fit_transform(first)
predicted = np.empty(40)
for train, test in fp.FamilyFolds(10).split(X):
    predicted[test] = fp.CorrelationKernelRidgeCV().fit(X[train], factor[train]).predict(X[test])
r = np.corrcoef(predicted, factor)[0, 1]

figure, axis = plt.subplots(figsize=(4, 3.6), layout="constrained")
axis.scatter(factor, predicted, color="#0072b2", s=18)
axis.axline((0, 0), slope=1, color="#7f7f7f", linewidth=1)
axis.set(xlabel="factor", ylabel="predicted", title=f"r = {r:.2f} over ten folds")
figure.savefig(FIGURES / "prediction.svg")
print(f"r = {r:.2f}")


# How many people it takes
def learned(alpha, n_people, repeats=20):
    X, draws, reached = fp.SpectralPower(alpha, input="series").fit_transform(first), np.random.default_rng(0), []
    for _ in range(repeats):
        order = draws.permutation(40)
        train, test = order[10 : 10 + n_people], order[:10]
        model = fp.CorrelationKernelRidgeCV(cv=5).fit(X[train], factor[train])
        reached.append(np.corrcoef(model.predict(X[test]), factor[test])[0, 1])
    return np.mean(reached)


numbers = [10, 15, 20, 25, 30]
curves = {alpha: [learned(alpha, n_people) for n_people in numbers] for alpha in (1.0, 0.35)}

figure, axis = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
for alpha, colour in ((1.0, "#7f7f7f"), (0.35, "#0072b2")):
    axis.plot(numbers, curves[alpha], "o-", color=colour, label=f"alpha = {alpha:g}")
axis.set(xlabel="people to learn from", ylabel="mean r of ten others", title="Learning curves", ylim=(0, 1))
axis.legend(frameon=False)
figure.savefig(FIGURES / "learning_curve.svg")
print(f"r from 10 people with FC^0.35 {curves[0.35][0]:.2f}, from 30 with FC {curves[1.0][-1]:.2f}")

# Which edges differ
patient, parcels = np.arange(40) % 2, [5, 18, 27, 41, 52]
scans = [one / one.std(axis=0) for one in first]
for person in np.flatnonzero(patient):
    scans[person][:, parcels] += 0.5 * rng.standard_normal((120, 1))
rows, columns = np.triu_indices(60, 1)
planted = np.isin(rows, parcels) & np.isin(columns, parcels)

model = build_model(patient, covariates=np.empty((40, 0)))
orders = permuted_rows(40, 500, seed=0)
tests = {}
for alpha in (1.0, 0.35):
    edges = fp.SpectralPower(alpha, input="series").fit_transform(scans)
    tests[alpha] = permute_edges(edges, np.arange(40), model, orders, threshold=3.5)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for axis, (alpha, found) in zip(axes, tests.items(), strict=True):
    axis.plot(np.flatnonzero(~planted), np.abs(found.t[~planted]), ".", color="#bbbbbb", markersize=3, label="others")
    axis.plot(np.flatnonzero(planted), np.abs(found.t[planted]), "o", color="#d55e00", label="planted")
    axis.axhline(np.quantile(found.largest, 0.95), color="#0072b2", linewidth=1, label="family-wise 5 %")
    axis.set(xlabel="edge", title=f"alpha = {alpha:g}")
axes[0].set_ylabel("|t|")
axes[0].legend(frameon=False, loc="upper left")
figure.savefig(FIGURES / "edges.png", dpi=100)
for alpha, found in tests.items():
    significant, (extent, _) = found.p_family_wise <= 0.05, found.p_components()
    others = np.sum(significant & ~planted)
    print(
        f"alpha {alpha:g}: {np.sum(significant & planted)} of 10 planted edges, {others} others; "
        f"largest network {found.components.extent.max(initial=0)} edges, p = {extent.min(initial=1):.3f}"
    )

# Siblings on both sides of a split
draws = np.random.default_rng(1)
family = np.repeat(np.arange(40), 2)
siblings = []
for shared in [draw_person(draws) for _ in range(40)]:
    for _ in range(2):
        person = 0.9 * shared + np.sqrt(1 - 0.9**2) * draw_person(draws)
        siblings.append(draw_clean_series(draw_connectome(population, person, 0.0, draws), 120, 2.0, draws))
related = fp.SpectralPower(0.35, input="series").fit_transform(siblings)


def predicted_trait(trait, families):
    predicted, model = np.empty(80), fp.CorrelationKernelRidgeCV(cv=5)
    for train, test in fp.FamilyFolds(5).split(related, groups=families):
        predicted[test] = model.fit(related[train], trait[train], groups=families[train]).predict(related[test])
    return np.corrcoef(predicted, trait)[0, 1]


traits = [draws.standard_normal(40)[family] for _ in range(15)]
apart = [predicted_trait(trait, np.arange(80)) for trait in traits]
whole = [predicted_trait(trait, family) for trait in traits]

figure, axis = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
axis.plot([0, 1], [apart, whole], "o-", color="#bbbbbb", markersize=4, linewidth=0.8)
axis.plot([0, 1], [np.mean(apart), np.mean(whole)], "o", color="#d55e00", label="mean of fifteen")
axis.axhline(0, color="#0072b2", linewidth=1)
axis.set(xticks=[0, 1], xticklabels=["siblings apart", "families whole"], xlim=(-0.4, 1.4), ylabel="r over five folds")
axis.legend(frameon=False)
figure.savefig(FIGURES / "families.svg")
print(f"r {np.mean(apart):.2f} with siblings apart, {np.mean(whole):.2f} with families whole")

# Two matrices
fc = np.corrcoef(first[0].T)
raised = fp.SpectralPower(0.35, output="matrices").fit_transform([fc])[0]

figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for axis, matrix, title in zip(axes, (fc, raised), ("FC", "FC$^{0.35}$"), strict=True):
    limit = np.abs(matrix[np.triu_indices(60, 1)]).max()
    shown = axis.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.set(title=title, xlabel="parcel", ylabel="parcel")
    figure.colorbar(shown, ax=axis, shrink=0.8)
figure.savefig(FIGURES / "matrices.png", dpi=100)

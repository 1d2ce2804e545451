"""How often the check accuses sound cohorts, the tests reject a true null, and a random encoder is called proven.

``python -m benchmarks.judgement [--cohorts 200] [--draws 1000]`` prints the figures of ``docs/check.md``, and
``python -m benchmarks.judgement --models 400`` those of ``docs/encoder.md``.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.stats import binomtest

from benchmarks.made_people import WINDOW, People
from fcpower_bids.core.inference.differences import corrected_resampled_t, exact_mcnemar
from fcpower_bids.core.inference.permutation import sign_flip_p_value, sum_by_block
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.ridge import factorise_kernel
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.slices.check.check import check_cohort
from fcpower_bids.slices.pretraining.configuration import PretrainConfig
from fcpower_bids.slices.pretraining.corpus.pack import load_corpus
from fcpower_bids.slices.pretraining.corpus.packing import pack_corpus
from fcpower_bids.slices.pretraining.judgement import Judge
from fcpower_bids.slices.pretraining.selection import CONFIRM, HeldOut, encode
from tests.analyses.cohorts import choose
from tests.planting.planted import draw_series
from tests.slices.check.cohorts import in_memory


def false_alarms(first: int, last: int, people: int = 24) -> Counter[str]:
    """Count the findings above a note in sound cohorts, by check; ``cohorts`` counts those with any."""
    found: Counter[str] = Counter()
    for seed in range(first, last):
        settings = choose(targets=("age", "score", "patient"), nprocs=1)
        tables, _ = check_cohort(in_memory(draw_series(people, seed=seed), seed), settings)
        table = tables["check"].frame
        serious = table[table["level"] != "note"]["check"].tolist()
        found.update(serious)
        found["cohorts"] += bool(serious)
    return found


def type_one_error(people: int, draws: int, seed: int = 0) -> dict[str, float]:
    """Share of true nulls rejected at 0.05: identification of two searches per person, and paired errors."""
    rng = np.random.default_rng(seed)
    rejected = Counter({"McNemar over searches": 0, "sign flips over people": 0, "sign flips of errors": 0})
    for draw in range(draws):
        # Both searches of a person go together in three of four people: the same brain, the same scan.
        first = rng.choice([-1, 0, 1], people, p=[0.15, 0.7, 0.15])
        second = np.where(rng.random(people) < 0.75, first, rng.choice([-1, 0, 1], people, p=[0.15, 0.7, 0.15]))
        searches = np.concatenate([first, second])
        net = sum_by_block(searches, np.tile(np.arange(people), 2))
        rejected["McNemar over searches"] += exact_mcnemar(int((searches > 0).sum()), int((searches < 0).sum())) < 0.05
        rejected["sign flips over people"] += sign_flip_p_value(net) < 0.05
        errors = rng.standard_normal(people) * rng.gamma(1, 1, people)
        rejected["sign flips of errors"] += sign_flip_p_value(errors, n_flips=999, seed=draw) < 0.05
    return {name: count / draws for name, count in rejected.items()}


def paired_tests(people: int, draws: int) -> dict[str, float]:
    """Share of true nulls rejected by the two tests of a prediction: features that tell the target equally well.

    Two sets of 20 independent features carry the same share of the target. Ten folds in five repeats, kernel ridge with
    a nested penalty, as in the analyses.
    """
    rejected = Counter({"corrected resampled t": 0, "sign flips of errors": 0, "both": 0})
    for draw in range(draws):
        rng = np.random.default_rng((91, people, draw))
        features = rng.standard_normal((2, people, 20))
        target = features.sum(axis=(0, 2)) / 20**0.5 + rng.standard_normal(people)
        folds = replicated_folds(people, 10, 3, 5, seed=draw)
        results = [nested_cv(factorise_kernel(each @ each.T, [2.0, 20.0, 200.0]), target, folds) for each in features]
        scores = [result.fold_scores("pearson")[:, 0] for result in results]
        sets = [fold.test.tolist() for fold in folds]
        sizes = [fold.train.size for fold in folds]
        found = corrected_resampled_t(scores[1] - scores[0], sizes, [len(rows) for rows in sets], sets)
        order = np.concatenate([fold.test for fold in folds])
        errors = [
            np.bincount(order, ((np.concatenate(result.observed) - np.concatenate(result.predicted))[:, 0]) ** 2)
            for result in results
        ]
        clear = found.p_two_sided < 0.05, sign_flip_p_value(errors[0] - errors[1], n_flips=999, seed=draw) < 0.05
        rejected.update(dict(zip(rejected, (*clear, all(clear)), strict=True)))
    return {name: count / draws for name, count in rejected.items()}


def proven_by_chance(models: int, families: int, each: int = 4, parcels: int = 20) -> dict[str, int]:
    """Count random encoders that the verdict of a training would call proven.

    Of every corpus `each` random models are judged as if they had been trained: against ten others, and against one
    more that they would have begun as. Nothing else than the seeds of the weights differs between them.
    """
    found = Counter({"better than ten seeds": 0, "and than the initial weights": 0, "models": models})
    people = People(parcels)
    config = PretrainConfig(architecture={"d": 16, "layers": 1, "heads": 2, "ff": 16}, window=WINDOW)
    for first in range(0, models, each):
        with TemporaryDirectory() as folder:
            sources = (people.source(10**7 + first * 1000 + i) for i in range(families))
            pack_corpus(sources, Path(folder))
            corpus = load_corpus(Path(folder))
            held_out = HeldOut(corpus, np.arange(families), np.full(families, CONFIRM), WINDOW, first)
            judge = Judge(held_out, np.arange(families), config, chosen=False)
            shape, seeds = config.model_config(parcels), 10**6 + first * 100
            maps = [encode(FBert(shape, seeds + k)) for k in range(10 + 2 * each)]
            kernels = [judge._kernel(one) for one in maps]
            teacher = corpus.kernel_of(held_out.rows).double().numpy()
        for own, initial in zip(kernels[10::2], kernels[11::2], strict=True):
            seeds_low = judge._ahead(own, kernels[:10], teacher)[1]
            initial_low = judge._ahead(own, [initial], teacher)[1]
            found["better than ten seeds"] += seeds_low > 0
            found["and than the initial weights"] += min(seeds_low, initial_low) > 0
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=200, help="sound cohorts of 24 people and two sessions")
    parser.add_argument("--draws", type=int, default=1000, help="draws of each null")
    parser.add_argument("--first", type=int, default=10_000, help="first seed; those below 1,000 chose the limits")
    parser.add_argument("--pairs", type=int, default=400, help="draws of two representations that are equally good")
    parser.add_argument("--models", type=int, default=0, help="random encoders that are judged; nothing else is done")
    choices = parser.parse_args()
    if choices.models:
        for families in (10, 40, 200):
            counts = proven_by_chance(choices.models, families)
            limits = binomtest(counts["and than the initial weights"], choices.models).proportion_ci(method="exact")
            print(families, "families:", counts, "proven:", [round(each, 4) for each in limits], flush=True)
        return
    if choices.cohorts:
        found = false_alarms(choices.first, choices.first + choices.cohorts)
        print(f"{found.pop('cohorts')} of {choices.cohorts} sound cohorts are accused: {dict(found)}")
    for people in (30, 100, 300):
        rates = type_one_error(people, choices.draws) if choices.draws else {}
        pairs = paired_tests(people, choices.pairs)
        print(people, "people:", {name: round(rate, 3) for name, rate in rates.items()}, "in folds:", pairs, flush=True)


if __name__ == "__main__":
    main()

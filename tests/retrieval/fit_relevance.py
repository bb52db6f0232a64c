#!/usr/bin/env python3
"""Fits the weights of relevance (services/engine/src/retrieval/relevance.rs).

    retrieval-eval --relevance --half tune --store-tokens --model MODEL_DIRECTORY --features features.jsonl SETS
    python3 tests/retrieval/fit_relevance.py features.jsonl

Each line of the file is a result of a question, with what `explain_query` says about it. The program fits a logistic
regression for the results that were reranked by late interaction, and one for what is known without it. It moves the
constant and the weight of the prior share of each so that min_relevance=0.3 withholds everything for 5 % of the
answerable questions in the stores of whole sets and in those of two entries, and prints the weights, and for each set
how many questions are withheld.

The answers of a question are the positive examples. The negative ones are the results of questions about other topics,
and with a smaller weight the other results of an answerable question, which are often about its topic.
"""

import collections
import json
import math
import sys

FLOOR = 0.3
ANSWERABLE_WITHHELD = 0.05
# The weights of the examples of a set, beside 1 for the answers.
OTHER_TOPICS, OTHER_RESULTS, TWO_ENTRIES = 3.0, 0.3, 0.5
MODELS = {
    "late interaction": ["similarity", "spread", "words", "query words", "late interaction", "lead", "absent words",
                         "prior share"],
    "similarity": ["similarity", "mean", "spread", "words", "query words", "prior share"],
}


def read(path):
    """Returns the results of each question, by (set, kind of store, question, answerable)."""
    questions = collections.defaultdict(list)
    with open(path, encoding="utf-8") as file:
        for line in file:
            result = json.loads(line)
            known = result["evidence"].split(": ", 1)[1]
            values = dict(part.rsplit(" ", 1) for part in known.split(", "))
            values = {name: float(value) for name, value in values.items()}
            key = (result["set"], result["store"], result["question"], result["answerable"])
            questions[key].append((values, result["relevant"]))
    return questions


def examples(questions, features):
    """Returns (features, label, weight) of each result. All sets weigh the same."""
    counts = collections.Counter((of_set, store, answerable) for of_set, store, _, answerable in questions)
    for (of_set, store, _, answerable), results in questions.items():
        share = 1 / counts[of_set, store, answerable] * (1 if store == "whole_set" else TWO_ENTRIES)
        results = [(values, is_answer) for values, is_answer in results if all(name in values for name in features)]
        answers = sum(is_answer for _, is_answer in results)
        for values, is_answer in results:
            if is_answer:
                weight = share / answers
            else:
                weight = share / len(results) * (OTHER_RESULTS if answerable else OTHER_TOPICS)
            yield [values[name] for name in features] + [1.0], float(is_answer), weight


def solve(matrix, vector):
    """Solves a system of linear equations."""
    rows = [row + [value] for row, value in zip(matrix, vector)]
    size = len(rows)
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(rows[row][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for row in range(size):
            if row != at:
                factor = rows[row][at] / rows[at][at]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[at])]
    return [rows[at][size] / rows[at][at] for at in range(size)]


def fit(data, size, penalty=1e-4):
    """Returns the weights of a logistic regression, by Newton's method."""
    weights = [0.0] * size
    for _ in range(40):
        gradient = [-penalty * weight for weight in weights]
        hessian = [[penalty * (row == column) for column in range(size)] for row in range(size)]
        for x, label, share in data:
            p = probability(weights, x)
            for row in range(size):
                gradient[row] += share * (label - p) * x[row]
                for column in range(size):
                    hessian[row][column] += share * p * (1 - p) * x[row] * x[column]
        step = solve(hessian, gradient)
        weights = [weight + max(-5.0, min(5.0, change)) for weight, change in zip(weights, step)]
        if max(map(abs, step)) < 1e-6:
            break
    return weights


def probability(weights, x):
    logit = sum(weight * value for weight, value in zip(weights, x))
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, logit))))


def best_of(questions, features, weights):
    """Returns the relevance of the best result of each question."""
    best = {}
    for key, results in questions.items():
        known = [values for values, _ in results if all(name in values for name in features)]
        best[key] = max((probability(weights, [v[name] for name in features] + [1.0]) for v in known), default=0.0)
    return best


def withheld(best, of_set, store, answerable, floor):
    of_kind = [value for key, value in best.items() if (key[0], key[1], key[3]) == (of_set, store, answerable)]
    return sum(value < floor for value in of_kind) / max(1, len(of_kind))


def move(best, sets, store):
    """Returns by how much to move the logits so that FLOOR withholds as many answerable questions as wanted."""
    mean = lambda floor: sum(withheld(best, of_set, store, True, floor) for of_set in sets) / len(sets)
    of_store = [value for key, value in best.items() if key[1] == store]
    floor = max((value for value in of_store if mean(value) <= ANSWERABLE_WITHHELD), default=FLOOR)
    return math.log(FLOOR / (1 - FLOOR)) - math.log(floor / (1 - floor))


def prior(questions, store):
    """Returns the mean prior share in the stores of a kind."""
    shares = [results[0][0]["prior share"] for key, results in questions.items() if key[1] == store]
    return sum(shares) / len(shares)


def main(path):
    questions = read(path)
    sets = sorted({key[0] for key in questions})
    for name, features in MODELS.items():
        weights = fit(list(examples(questions, features)), len(features) + 1)
        best = best_of(questions, features, weights)
        kinds = ("whole_set", "two_entries")
        (whole, two), (whole_prior, two_prior) = zip(*((move(best, sets, kind), prior(questions, kind)) for kind in kinds))
        slope = (two - whole) / (two_prior - whole_prior)
        weights[-2] += slope
        weights[-1] += whole - slope * whole_prior
        best = best_of(questions, features, weights)
        print(f"{name}: " + ", ".join(f"{weight:.2f} {of}" for weight, of in zip(weights, features + ["constant"])))
        for of_set in sets:
            shares = [withheld(best, of_set, store, answerable, FLOOR)
                      for store in ("whole_set", "two_entries") for answerable in (True, False)]
            print(f"    {of_set:24}" + "".join(f"{share:8.2f}" for share in shares))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

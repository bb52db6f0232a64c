#!/usr/bin/env python3
"""Fits the weights of relevance (services/engine/src/retrieval/relevance.rs).

    retrieval-eval --relevance --half tune --store-tokens --model MODEL_DIRECTORY --features features.jsonl SETS
    python3 tests/retrieval/fit_relevance.py features.jsonl

Each line of the file is a result of a question, with what `explain_query` says about it. The program fits a logistic
regression for the results that were reranked by late interaction, and one for what is known without it. It moves the
constant and the weight of the prior share of each, so that min_relevance=0.3 withholds everything for 3 % of the
answerable questions in the stores of whole sets, and for 2 % in those of two entries. The weight of "few entries", a
power of the prior share that is almost 0 from ten entries on, then puts 0.3 in stores of two entries midway between
this floor and the one that withholds 80 % of the questions about other topics. It scales the logits so that the high
floor of the hooks keeps its effect. Then it prints the weights, and for each set how many
questions are withheld: answerable ones, those about other topics and near-misses, then the same of two entries.

The answers of a question are the positive examples. The negative ones are the results of questions about other
topics, and with a smaller weight those of near-misses (questions of sets that share subjects) and the other results of
an answerable question, which are often about its topic.
"""

import collections
import json
import math
import sys

FLOOR = 0.3
# Less than the 5 % that are promised, because other questions than those of the fit lose more.
ANSWERABLE_WITHHELD = {"whole_set": 0.03, "two_entries": 0.02}
# What is promised. In stores of two entries there is room between both promises.
OTHER_TOPICS_WITHHELD = 0.8
# The exponent of "few entries".
FEW = 5
# The floor of the hooks (gateway/src/hook/recall.rs), and the share of near-misses that it withholds in whole sets.
HIGH_FLOOR, NEAR_MISSES_WITHHELD = 0.95, 0.93
KINDS = ("answerable", "other topics", "near-misses")
STORES = ("whole_set", "two_entries")
# The weights of the negative examples of a set, by the kind of question, beside 1 for the answers.
WEIGHTS = {"answerable": 0.1, "other topics": 3.0, "near-misses": 1.0}
TWO_ENTRIES = 0.5
MODELS = {
    "late interaction": ["similarity", "spread", "words", "query words", "late interaction", "lead", "absent words",
                         "prior share"],
    "similarity": ["similarity", "mean", "spread", "words", "query words", "prior share"],
}


def read(path):
    """Returns the results of each question, by (set, kind of store, question, kind of question)."""
    questions = collections.defaultdict(list)
    with open(path, encoding="utf-8") as file:
        for line in file:
            result = json.loads(line)
            known = result["evidence"].split(": ", 1)[1]
            values = dict(part.rsplit(" ", 1) for part in known.split(", "))
            values = {name: float(value) for name, value in values.items()}
            if "prior share" in values:
                values["few entries"] = values["prior share"] ** FEW
            kind = KINDS[0 if result["answerable"] else 2 if result["near_miss"] else 1]
            key = (result["set"], result["store"], result["question"], kind)
            questions[key].append((values, result["relevant"]))
    return questions


def examples(questions, features):
    """Returns (features, label, weight) of each result. All sets weigh the same."""
    counts = collections.Counter((of_set, store, kind) for of_set, store, _, kind in questions)
    for (of_set, store, _, kind), results in questions.items():
        share = 1 / counts[of_set, store, kind] * (1 if store == "whole_set" else TWO_ENTRIES)
        results = [(values, is_answer) for values, is_answer in results if all(name in values for name in features)]
        answers = sum(is_answer for _, is_answer in results)
        for values, is_answer in results:
            if is_answer:
                weight = share / answers
            else:
                weight = share / len(results) * WEIGHTS[kind]
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


def withheld(best, of_set, store, kind, floor):
    """Returns the share of these questions for which the floor withholds everything, or None without any."""
    of_kind = [value for key, value in best.items() if (key[0], key[1], key[3]) == (of_set, store, kind)]
    return sum(value < floor for value in of_kind) / len(of_kind) if of_kind else None


def mean_withheld(best, sets, store, kind, floor):
    """Returns the mean share of withheld questions over the sets that have such questions."""
    shares = [withheld(best, of_set, store, kind, floor) for of_set in sets]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known)


def highest_floor(best, sets, store):
    """Returns the highest floor that withholds no more answerable questions than wanted."""
    floors = [value for key, value in best.items() if key[1] == store]
    wanted = ANSWERABLE_WITHHELD[store]
    return max(floor for floor in floors if mean_withheld(best, sets, store, "answerable", floor) <= wanted)


def lowest_floor(best, sets, store):
    """Returns the lowest floor that withholds as many questions about other topics as promised."""
    floors = [value for key, value in best.items() if key[1] == store]
    withheld_at = lambda floor: mean_withheld(best, sets, store, "other topics", floor)
    return min(floor for floor in floors if withheld_at(floor) >= OTHER_TOPICS_WITHHELD)


def move(weights, features, feature, changes, questions):
    """Changes the constant and the weight of a feature so that the logits change by these numbers in the stores of
    whole sets and of two entries."""
    (whole, two), (at_whole, at_two) = changes, [mean_of(questions, store, feature) for store in STORES]
    slope = (two - whole) / (at_two - at_whole)
    weights[features.index(feature)] += slope
    weights[-1] += whole - slope * at_whole


def scale(best, sets):
    """Returns by how much to multiply the distance of logits from that of FLOOR, so that HIGH_FLOOR withholds as many
    near-misses as wanted."""
    shares = lambda floor: [withheld(best, of_set, "whole_set", "near-misses", floor) for of_set in sets]
    mean = lambda floor: sum(known := [share for share in shares(floor) if share is not None]) / len(known)
    floor = max(value for key, value in best.items() if key[3] == "near-misses" and mean(value) <= NEAR_MISSES_WITHHELD)
    return (logit(HIGH_FLOOR) - logit(FLOOR)) / (logit(floor) - logit(FLOOR))


def logit(probability):
    return math.log(probability / (1 - probability))


def mean_of(questions, store, feature):
    """Returns the mean of a feature of the best results in the stores of a kind."""
    values = [results[0][0][feature] for key, results in questions.items() if key[1] == store]
    return sum(values) / len(values)


def main(path):
    questions = read(path)
    sets = sorted({key[0] for key in questions})
    for name, features in MODELS.items():
        weights = fit(list(examples(questions, features)), len(features) + 1)
        weights.insert(-1, 0.0)
        features = features + ["few entries"]
        best = best_of(questions, features, weights)
        changes = [logit(FLOOR) - logit(highest_floor(best, sets, store)) for store in STORES]
        move(weights, features, "prior share", changes, questions)
        best = best_of(questions, features, weights)
        middle = (logit(highest_floor(best, sets, "two_entries")) + logit(lowest_floor(best, sets, "two_entries"))) / 2
        move(weights, features, "few entries", [0.0, logit(FLOOR) - middle], questions)
        factor = scale(best_of(questions, features, weights), sets)
        weights = [weight * factor for weight in weights]
        weights[-1] += (1 - factor) * logit(FLOOR)
        best = best_of(questions, features, weights)
        print(f"{name}: " + ", ".join(f"{weight:.2f} {of}" for weight, of in zip(weights, features + ["constant"])))
        for of_set in sets:
            shares = [withheld(best, of_set, store, kind, FLOOR) for store in STORES for kind in KINDS]
            cells = ["-" if share is None else f"{share:.2f}" for share in shares]
            print(f"    {of_set:24}" + "".join(f"{cell:>8}" for cell in cells))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

#!/usr/bin/env python3
"""Converts CoSQA to a set for retrieval-eval.

    python3 tests/retrieval/cosqa.py code_idx_map.txt cosqa-retrieval-dev-500.json cosqa-retrieval-test-500.json

The files are those of "CoSQA: 20,000+ Web Queries for Code Search and Question Answering" (Huang et al., ACL 2021): web
queries and the Python functions that answer them. The functions keep their own licences, so the files are not in this
repository.

Each function is an entry and a thread of its own. All relevant functions of the queries are stored, and of the others
every fourth.
"""

import json
import sys


def main(functions, *queries):
    with open(functions, encoding="utf-8") as file:
        functions = json.load(file)
    relevant = {}
    for path in queries:
        with open(path, encoding="utf-8") as file:
            for query in json.load(file):
                relevant.setdefault(query["doc"], []).append(query["retrieval_idx"])
    needed = {index for found in relevant.values() for index in found}
    for text, index in functions.items():
        if index in needed or index % 4 == 0:
            key = f"function-{index}"
            entry = {"key": key, "thread_id": key, "source": "agent", "text": text, "pause_minutes": 60}
            print(json.dumps({"entry": entry}, ensure_ascii=False))
    for text, found in relevant.items():
        question = {"text": text, "relevant": [f"function-{index}" for index in dict.fromkeys(found)]}
        print(json.dumps({"question": question}, ensure_ascii=False))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

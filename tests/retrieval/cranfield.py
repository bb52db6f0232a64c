#!/usr/bin/env python3
"""Converts the Cranfield collection to a set for retrieval-eval.

    python3 tests/retrieval/cranfield.py DIRECTORY > cranfield.jsonl

DIRECTORY holds the files as they are published: cran.all.1400, cran.qry and cranqrel (1 400 abstracts, 225 questions).
The collection comes without a licence, so it is not in this repository.
"""

import json
import pathlib
import sys


def records(path):
    """Yields the fields of each record. A line `.I number` begins a record, a line `.X` a field."""
    fields, field = None, None
    for line in path.read_text(encoding="latin-1").splitlines():
        if line.startswith(".I "):
            if fields is not None:
                yield fields
            fields, field = {}, None
        elif len(line) == 2 and line[0] == "." and line[1].isupper():
            field = line[1]
            fields.setdefault(field, [])
        elif field:
            fields[field].append(line)
    if fields is not None:
        yield fields


def main(directory):
    present = set()
    for number, fields in enumerate(records(directory / "cran.all.1400"), 1):
        text = " ".join(fields.get("W", [])).strip()
        if not text:
            continue
        present.add(number)
        # An abstract has no context, so each has its own thread.
        entry = {"key": str(number), "thread_id": f"abstract-{number}", "source": "user", "text": text}
        print(json.dumps({"entry": entry}))
    relevant = {}
    for line in (directory / "cranqrel").read_text().splitlines():
        question, document, *grade = line.split()
        # Grade 1 is a complete answer, 4 is of little interest, 5 and -1 are of none.
        if int(grade[0] if grade else 1) in (1, 2, 3, 4) and int(document) in present:
            relevant.setdefault(int(question), set()).add(int(document))
    # The judgements number the questions consecutively. The questions' own numbers have gaps.
    for number, fields in enumerate(records(directory / "cran.qry"), 1):
        if relevant.get(number):
            text = " ".join(fields["W"]).strip()
            keys = [str(key) for key in sorted(relevant[number])]
            print(json.dumps({"question": {"text": text, "relevant": keys}}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    main(pathlib.Path(sys.argv[1]))

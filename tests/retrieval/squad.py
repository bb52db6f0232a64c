#!/usr/bin/env python3
"""Converts a question answering set in the format of SQuAD to a set for retrieval-eval.

    python3 tests/retrieval/squad.py xquad.de.json > german.jsonl

The files of XQuAD (Artetxe et al., ACL 2020: 240 passages and 1 190 questions in each of 12 languages) and JSQuAD
(Kurihara et al., LREC 2022: 1 145 passages, 4 442 questions in Japanese) have this format. Their licence is
CC BY-SA 4.0, so they are not in this repository.

Each passage is an entry, each article a thread. A question searches all threads. Its relevant entry is the passage
that it was written for. At most QUESTIONS questions of a file are used, evenly chosen.
"""

import json
import sys

QUESTIONS = 1200


def main(path):
    with open(path, encoding="utf-8") as file:
        articles = json.load(file)["data"]
    questions = []
    for number, article in enumerate(articles):
        thread = f"article-{number + 1}"
        for index, paragraph in enumerate(article["paragraphs"]):
            key = f"{thread}-{index + 1}"
            # JSQuAD puts the title before the passage.
            text = paragraph["context"].replace(" [SEP] ", "\n")
            entry = {"key": key, "thread_id": thread, "source": "agent", "text": text, "pause_minutes": 60}
            print(json.dumps({"entry": entry}, ensure_ascii=False))
            for question in paragraph["qas"]:
                if question.get("answers") and not question.get("is_impossible"):
                    questions.append({"text": question["question"].strip(), "relevant": [key]})
    step = max(1, -(-len(questions) // QUESTIONS))
    for question in questions[::step]:
        print(json.dumps({"question": question}, ensure_ascii=False))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

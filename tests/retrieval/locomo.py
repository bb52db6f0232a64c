#!/usr/bin/env python3
"""Converts LoCoMo to a set for retrieval-eval.

    python3 tests/retrieval/locomo.py locomo10.json > locomo.jsonl

locomo10.json is the file as it is published with "Evaluating Very Long-Term Conversational Memory of LLM Agents"
(Maharana et al., ACL 2024): 10 conversations, 5 882 turns, each a line of one of two people. It may not be used
commercially (CC BY-NC 4.0), so it is not in this repository.

Each conversation is a thread, and each turn an entry: the speaker's name, what was said, and what a shared photo shows.
The questions of the categories 1 to 4 search the thread of their conversation. Those of category 5 have no answer and
are left out.
"""

import datetime
import json
import re
import sys

WHEN = "%I:%M %p on %d %B, %Y"
SECONDS_A_TURN = 30


def turns(conversation):
    """Yields each turn with the minutes since the previous one."""
    last = None
    for n in range(1, 100):
        if f"session_{n}" not in conversation:
            continue
        at = datetime.datetime.strptime(conversation[f"session_{n}_date_time"], WHEN)
        for turn in conversation[f"session_{n}"]:
            pause = 0 if last is None else max(0, round((at - last).total_seconds() / 60))
            yield turn, pause
            last = at
            at += datetime.timedelta(seconds=SECONDS_A_TURN)


def main(path):
    with open(path, encoding="utf-8") as file:
        samples = json.load(file)
    for sample in samples:
        thread, conversation = sample["sample_id"], sample["conversation"]
        present = set()
        for turn, pause in turns(conversation):
            present.add(turn["dia_id"])
            text = f"{turn['speaker']}: {turn['text']}"
            if turn.get("blip_caption"):
                text += f" [photo: {turn['blip_caption']}]"
            source = "user" if turn["speaker"] == conversation["speaker_a"] else "agent"
            key = f"{thread} {turn['dia_id']}"
            entry = {"key": key, "thread_id": thread, "source": source, "text": text, "pause_minutes": pause}
            print(json.dumps({"entry": entry}, ensure_ascii=False))
        for item in sample["qa"]:
            # Some items have several turns in one string, or name turns that do not exist.
            named = re.findall(r"D\d+:\d+", " ".join(item.get("evidence", [])))
            relevant = [f"{thread} {turn}" for turn in dict.fromkeys(named) if turn in present]
            if item["category"] != 5 and relevant:
                question = {"text": item["question"], "thread_id": thread, "relevant": relevant}
                print(json.dumps({"question": question}, ensure_ascii=False))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

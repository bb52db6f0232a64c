"""Counts what came back, keeps the first few complaints, and decides."""

import collections
import random
import sys
import time

MAX_COMPLAINTS = 20


class Tally:
    """The result of one wire's run."""

    def __init__(self, wire):
        self.wire = wire
        self.answers = collections.Counter()
        self.complaints = []
        self.complaint_count = 0
        self.began = time.monotonic()

    def count(self, answer):
        self.answers[answer] += 1

    def complain(self, about, request):
        """Records that an answer must not happen, with the request to repeat it."""
        self.complaint_count += 1
        if len(self.complaints) < MAX_COMPLAINTS:
            self.complaints.append(f"{about}\n    request: {request!r:.600}")

    def finish(self, requests):
        """Prints the result and ends the program accordingly."""
        seconds = time.monotonic() - self.began
        summary = ", ".join(f"{answer}: {count}" for answer, count in sorted(self.answers.items(), key=str))
        print(f"{self.wire}: {requests} malformed requests in {seconds:.0f} s; answers: {summary}")
        for complaint in self.complaints:
            print(f"FAILED: {self.wire}: {complaint}", file=sys.stderr)
        if self.complaint_count:
            sys.exit(f"FAILED: {self.wire}: {self.complaint_count} of {requests} answers must not happen")


def arguments():
    """`TARGET... COUNT SEED` from the command line: targets, count, generator."""
    *targets, count, seed = sys.argv[1:]
    return targets, int(count), random.Random(int(seed))

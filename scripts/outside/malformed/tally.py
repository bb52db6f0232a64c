"""Counts responses, keeps the first failures, and decides the result."""

import collections
import random
import sys
import time

MAX_COMPLAINTS = 20


class Tally:
    """The result of the run on one transport."""

    def __init__(self, transport):
        self.transport = transport
        self.answers = collections.Counter()
        self.complaints = []
        self.complaint_count = 0
        self.began = time.monotonic()

    def count(self, answer):
        self.answers[answer] += 1

    def complain(self, about, request):
        """Records a forbidden response, with the request that repeats it."""
        self.complaint_count += 1
        if len(self.complaints) < MAX_COMPLAINTS:
            self.complaints.append(f"{about}\n    request: {request!r:.600}")

    def finish(self, requests):
        """Prints the result. Ends the program with status 1 if a response was forbidden, and otherwise returns."""
        seconds = time.monotonic() - self.began
        summary = ", ".join(f"{answer}: {count}" for answer, count in sorted(self.answers.items(), key=str))
        print(f"{self.transport}: {requests} malformed requests in {seconds:.0f} s; answers: {summary}")
        for complaint in self.complaints:
            print(f"FAILED: {self.transport}: {complaint}", file=sys.stderr)
        if self.complaint_count:
            sys.exit(f"FAILED: {self.transport}: {self.complaint_count} of {requests} answers must not happen")


def arguments():
    """`TARGET... COUNT SEED` from the command line: targets, count, generator."""
    *targets, count, seed = sys.argv[1:]
    return targets, int(count), random.Random(int(seed))

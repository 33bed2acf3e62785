"""Make ``sample_trace.jsonl``: conversations over a few shared prompts, in the Mooncake schema. Always the same bytes.

    python datasets/make_trace.py > datasets/sample_trace.jsonl

Each conversation begins with one of a few system prompts, some then read one of a few documents, and each turn sends
all that was said before and a little more. Conversations pause between turns, so what they need comes and goes.
"""

from __future__ import annotations

import itertools
import json
import random
import sys

SEED = 11
BLOCK_TOKENS = 512
CONVERSATIONS = 260
PROMPTS, DOCUMENTS = 5, 24


def main() -> None:
    """Write the trace to standard output."""
    draw, ids = random.Random(SEED), itertools.count()
    prompts = [[next(ids) for _ in range(draw.randint(1, 4))] for _ in range(PROMPTS)]
    documents = {
        (prompt, number): [next(ids) for _ in range(draw.randint(4, 30))]
        for prompt in range(PROMPTS)
        for number in range(DOCUMENTS)
    }
    requests = []
    for _ in range(CONVERSATIONS):
        when = draw.uniform(0, 3_600_000)
        prompt = min(int(draw.expovariate(0.8)), PROMPTS - 1)
        blocks = list(prompts[prompt])
        if draw.random() < 0.6:
            blocks += documents[prompt, min(int(draw.expovariate(0.25)), DOCUMENTS - 1)]
        for _ in range(draw.randint(1, 7)):
            tail, answer = draw.randint(1, BLOCK_TOKENS - 1), draw.randint(8, 400)
            length = len(blocks) * BLOCK_TOKENS + tail
            asked = {"input_length": length, "output_length": answer, "hash_ids": [*blocks, next(ids)]}
            requests.append({"timestamp": round(when), **asked})
            # The next turn's prefix ends where whole blocks end: the rest is new there.
            blocks += [next(ids) for _ in range((tail + answer) // BLOCK_TOKENS)]
            when += draw.expovariate(1 / 90_000)
    for request in sorted(requests, key=lambda one: one["timestamp"]):
        sys.stdout.write(json.dumps(request) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Writes sample.txt, the text that the trainer uses when none is given.

The text is generated from a small grammar with a fixed generator of its own, so it is free of anybody's rights and
the same on every machine: `make_sample.py > sample.txt`.
"""

import re

WORDS = {
    "person": "the engineer|the captain|a student|the gardener|my neighbour|the librarian|an old sailor|the teacher|"
    "the clockmaker|a young painter|the miller|the postman|our cook|the astronomer|a travelling musician",
    "thing": "lantern|letter|bridge|telescope|garden wall|ledger|violin|map|kettle|harbour bell|wooden boat|mirror|"
    "loom|compass|brass key|notebook|windmill|barrel|clock|ladder",
    "place": "river|harbour|market square|old library|mountain pass|railway station|north tower|orchard|valley|"
    "lighthouse|quiet street|workshop|meadow|village school|stone quay",
    "adjective": "small|heavy|forgotten|bright|narrow|patient|curious|silver|broken|distant|warm|careful|empty|"
    "green|remarkable|ordinary|crooked|silent",
    "past": "carried|repaired|found|painted|measured|sold|borrowed|hid|described|cleaned|lost|wrapped|studied|"
    "copied|weighed",
    "motion": "walked|hurried|wandered|returned|travelled|sailed|climbed|strolled",
    "time": "in the early morning|before the rain came|on a cold evening|during the long summer|at noon|"
    "after the festival|late in the winter|one Tuesday|when the tide was low|every second week",
    "thought": "that nothing would change|that the numbers did not agree|that the road was longer than it looked|"
    "that somebody had been there before|that patience is a kind of work|that the wind had turned|"
    "that the story was only half told|that there was still time",
    "verb": "remembered|believed|noticed|wrote down|suspected|explained|knew",
    "reason": "because the price had risen|since nobody else would|although it was late|so that the others could rest|"
    "while the lamps were lit|because the instructions were unclear|as the custom required",
}
TABLE = {key: value.split("|") for key, value in WORDS.items()}
PATTERNS = [
    "{person} {past} the {adjective} {thing} near the {place} {time}.",
    "{time}, {person} {motion} to the {place} and {past} a {adjective} {thing}.",
    "{person} {verb} {thought}.",
    "{person} {past} the {thing} {reason}, and then {motion} along the {place}.",
    "The {adjective} {thing} belonged to {person}, who {verb} {thought}.",
    "There were {number} {adjective} steps between the {place} and the {place}; {person} {verb} {thought}.",
    '"Is this your {thing}?" asked {person}. "It is," said {person}, "but I {past} it {time}."',
    "Nobody at the {place} {verb} {thought}, {reason}.",
    "It cost {number} coins, {reason}; {person} {past} it all the same.",
    "{person} {motion} past the {adjective} {place}, {past} the {thing}, and {verb} {thought}.",
]
TARGET_BYTES = 300_000


class Generator:
    """A linear congruential generator: the same sequence in every version of Python."""

    def __init__(self, state):
        self.state = state

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound

    def choice(self, values):
        return values[self.below(len(values))]


def sentence(generator):
    pattern = generator.choice(PATTERNS)
    out = []
    rest = pattern
    while "{" in rest:
        before, rest = rest.split("{", 1)
        key, rest = rest.split("}", 1)
        out.append(before)
        out.append(str(2 + generator.below(97)) if key == "number" else generator.choice(TABLE[key]))
    text = re.sub(r"\b(a) (?=[aeiou])", r"\1n ", "".join(out) + rest)
    return text[0].upper() + text[1:]


def main():
    generator = Generator(20240229)
    size = 0
    chapter = 0
    while size < TARGET_BYTES:
        chapter += 1
        lines = [f" = Chapter {chapter} = ", ""]
        for _ in range(6 + generator.below(5)):
            lines.append(" ".join(sentence(generator) for _ in range(3 + generator.below(5))))
            lines.append("")
        text = "\n".join(lines)
        print(text)
        size += len(text.encode()) + 1


if __name__ == "__main__":
    main()

"""What a profiler's notice says of lost events: who lost what, and how many. The wording is its own and not promised.

A notice is read clause by clause. A clause speaks of a loss if it has a word of losing and names what is lost, or the
device that lost it. Its numbers are counts, but for those that name a device, a time or a limit; counts of 0 mean that
nothing was lost, and so does a negation where there is no count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


def _these(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PLACES = "tpu gpu cpu core sparsecore tensorcore chip device host worker line thread plane process node replica rank"
_WHO = frozenset(f"{place}{end}" for place in _PLACES.split() for end in ("", "s"))
_OTHERS = "pid task step stream queue buffer chunk slice channel part id number"
_KIND = "|".join([*_PLACES.split(), *_OTHERS.split()])
# With their numbers: "TPU:0", "core 1", "cores 0 and 1", "host 10.0.0.1"; "12:30:05", "2026-01-31".
_NAME = re.compile(
    rf"\b(?P<kind>(?:{_KIND})s?)(?: \d+(?:(?:, ?| and | to |-)\d+)+\b(?! [a-z])|(?::|[\s#-]{{1,3}})\d[\d.]*(?:-\d+)?\b)"
)
_CLOCK = re.compile(r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?\b")
_BETWEEN = re.compile(r"[;\n()]|,(?!\d{3}\b)|\.(?!\d)|\b(?:and|but|while|whereas|when|because)\b")
_TOKEN = re.compile(r"[a-z][a-z0-9]*(?:'t)?|\d[\d,.]*|/")

_LOSING = re.compile(
    r"drop|drops|dropped|dropping|los[et]|loses|losing|loss|discard(?:s|ed|ing)?|evict(?:s|ed|ing)?|overr[au]ns?"
    r"|truncat\w+|overflow\w*|overwrit\w+|overwrote|incomplete"
)
_LOSING_ALONE = re.compile(r"truncat\w+|overflow\w*|overwr\w+|incomplete")  # of a device; one that is "lost" is gone
_FULL = re.compile(r"\bbuffers? (?:(?:is|are|was|were|got|ran|became|has been|have been) )?(?:not )?(?:full|filled)\b")
_WHAT = re.compile(
    r"(?:event|trace|entry|entrie|buffer|chunk|record|span|data|op|timeline|profile|capture|xplane|xspace|byte)s?"
)
_SOME = _these("some they these those others rest many most several all more")  # of what was named before
_NOT = _these("no none nothing not never without zero neither nor cannot")
_UNRELATED = _these("connection connections gradient gradients integer rate throughput avoid prevent")
_IF = re.compile(r"\b(?:if|unless)\b[^.;\n]*")
# What stands before a number that is no count, and after one.
_LIMIT = _these(
    "/ of to at in on across from for after before within over than limit size capacity maximum max minimum min "
    "every per by until since during exceeded exceeds exceeding beyond version last first"
)
_TIME = _these("ns us ms s sec secs second seconds min mins minute minutes h hours")


def says_lost(notice: str) -> bool:
    """Whether a notice says that events of the trace were lost."""
    text = _IF.sub(" ", _CLOCK.sub(" ", notice.lower().replace("_", " ")))
    named = lost = False
    for clause in _BETWEEN.split(_NAME.sub(r" \g<kind> ", text)):
        tokens = _TOKEN.findall(clause)
        words = frozenset(tokens)
        if not tokens or words & _UNRELATED or "dropped out" in clause:
            continue
        counts, is_full = list(_counts(tokens)), _FULL.search(clause) is not None
        what = any(map(_WHAT.fullmatch, tokens))
        if is_full or any(map(_LOSING.fullmatch, tokens)):
            alone = any(map(_LOSING_ALONE.fullmatch, tokens)) and bool(words & _WHO)
            counted = any(counts) and (named or bool(words & _WHO) or len(tokens) == 2)
            lost = what or alone or counted or (named and (bool(words & _SOME) or len(tokens) == 1))
            if lost and (any(counts) if counts and not is_full else not words & _NOT and "n't" not in clause):
                return True
        elif lost and any(counts) and all(map(_belongs, words)):  # "0 on TPU:0, 500 on TPU:1"
            return True
        named |= what
    return False


def _belongs(word: str) -> bool:
    """Whether a clause of such words only goes on counting what the one before has named."""
    return word[0].isdigit() or word in _WHO or word in _LIMIT or _WHAT.fullmatch(word) is not None


def _counts(tokens: list[str]) -> Iterator[float]:
    """The numbers of a clause that count what was lost."""
    for before, number, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        if number[0].isdigit() and before not in _LIMIT and after not in _TIME and after not in _WHO:
            try:
                yield float(number.rstrip(".,").replace(",", ""))
            except ValueError:  # an address, a version
                continue
        elif number == "zero":
            yield 0.0

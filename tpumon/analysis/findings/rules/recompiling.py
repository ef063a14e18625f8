"""recompiling: the program that runs is a new one again and again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tpumon.analysis.findings.rule import Member, Observation, Rule, TooFew
from tpumon.model import Evidence, FindingDetail

_COMPILE_RATIO = 0.10
_SAMPLES, _OF_THEM = 3, 2
_MOST_PROGRAMS, _MOST_FUNCTIONS = 256, 32


@dataclass(slots=True)
class CompiledPrograms:
    """Programs that ran, and samples that showed compiling.

    Attributes:
        programs: ids of the programs of each function, the latest last.
        compiled: of the last samples that showed steps, whether they showed a new program or much compiling.
        function: the function that had a new program last.
        new: how many new programs it had since the job began.
    """

    programs: dict[str, dict[str, None]] = field(default_factory=dict)
    compiled: deque[bool] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    function: str | None = None
    new: int = 0


class Recompiling(Rule[CompiledPrograms, None]):
    """In two of three samples the heaviest function has a program not seen before, or the host compiles amid steps."""

    finding = "recompiling"
    of_training = True
    memory_type = CompiledPrograms
    remedy = (
        "keep shapes and static arguments the same from step to step: drop_remainder=True, batches and sequences "
        "padded to a few sizes, no changing static_argnums, no functions made anew; JAX_LOG_COMPILES=1 and "
        "JAX_EXPLAIN_CACHE_MISSES=1 say what is new"
    )
    samples = 1  # two of the last three are looked at
    leaves_below = 0.5  # none of them
    hidden_by = frozenset({"hang"})

    def remember(self, memory: CompiledPrograms, seen: Observation) -> None:
        """Looks for a program that is new, of a function that ran before."""
        figures = seen.figures
        if seen.state != "live" or (not figures.programs and figures.compile_ratio is None):
            return
        is_new = False
        if figures.programs and figures.functions:
            function, program = figures.functions[0].name, figures.programs[0]
            known = memory.programs.get(function, {})
            if is_new := bool(known) and program not in known:
                memory.function, memory.new = function, memory.new + 1
            memory.programs[function] = _latest(known, program, _MOST_PROGRAMS)
            if len(memory.programs) > _MOST_FUNCTIONS:
                del memory.programs[next(iter(memory.programs))]
        # Compiling without steps is how every job begins.
        compiles = figures.step_time_s is not None and (figures.compile_ratio or 0.0) > _COMPILE_RATIO
        memory.compiled.append(is_new or compiles)

    def severity_ratio(self, member: Member[CompiledPrograms, None]) -> float | str:
        """Number of the last samples that showed it."""
        compiled = member.memory.compiled
        if not compiled:
            return "neither programs nor the host's compiling are known: only traces show them"
        if len(compiled) < _SAMPLES and sum(compiled) < _OF_THEM:
            return TooFew(f"too few samples: it takes {_SAMPLES} to see new programs")
        return sum(compiled) / (_OF_THEM - 0.5)

    def detail(self, member: Member[CompiledPrograms, None]) -> FindingDetail:
        """Says which function, and how much of the time the host compiles, where that is known."""
        memory, figures = member.memory, member.seen.figures
        share = figures.compile_ratio
        evidence = {"compiling_samples": Evidence(value=sum(memory.compiled), threshold=_OF_THEM)}
        words, sentence = "compiles again", "the job compiles again and again while it trains"
        if memory.new:
            # Only names of the last sample are known to whoever marks what servers said.
            ran = memory.function in {function.name for function in figures.functions}
            evidence["new_programs"] = Evidence(value=memory.new)
            words = f"{memory.new} new programs"
            sentence = f"{memory.function if ran else 'a function'} was compiled anew {memory.new} times"
        if share is not None:
            evidence["compile_ratio"] = Evidence(value=share, threshold=_COMPILE_RATIO)
            words = f"compiles {share:.0%}"
            sentence += f"; the host compiles {share:.0%} of the time"
        return FindingDetail(words=words, sentence=f"{{who}}, {sentence}.", evidence=evidence)


def _latest(known: dict[str, None], program: str, most: int) -> dict[str, None]:
    """The known programs with one more, the oldest left out if there are too many."""
    programs = [each for each in known if each != program]
    return dict.fromkeys([*programs[-most + 1 :], program])

"""Feeds one reader of foreign input with whatever atheris makes up, and prints what it should not have done.

Outside CI, in an environment of its own: pip install atheris ., with Python 3.11. Findings are told once
for each place in the code; inputs that lead to them are kept as DIR/finding-*. A corpus goes on where it ended.

python tests/fuzz/fuzz.py TARGET [--seconds 300] [--corpus DIR] [--seed N]; without TARGET, lists them.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

import atheris

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]
sys.path += [str(REPOSITORY), str(REPOSITORY / "exporters")]  # a tree named in PYTHONPATH comes before this one

with atheris.instrument_imports(include=["tpumon", "tpumon_exporters"]):
    from checks import Findings, check_cost
    from mutations import mutated
    from targets import TARGETS


def main() -> None:
    """Fuzzes one target; ends as libFuzzer does, with its statistics."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", nargs="?", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="0: a random one")
    given = parser.parse_args()
    if given.target is None:
        print("\n".join(sorted(TARGETS)))
        return
    target = TARGETS[given.target]
    corpus: Path = given.corpus or Path(tempfile.mkdtemp(prefix=f"fuzz-{given.target}-"))
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    findings = Findings(given.target, corpus.with_name(f"{corpus.name}-findings"))

    def one_input(data: bytes) -> None:
        with findings.of(data), check_cost(len(data)):
            target.run(data)

    options = ["fuzz", str(corpus), f"-max_total_time={given.seconds}", f"-max_len={target.longest}",
               f"-seed={given.seed}", f"-artifact_prefix={corpus}-", "-timeout=60", "-rss_limit_mb=4096",
               "-print_final_stats=1", "-verbosity=0", "-len_control=0", "-close_fd_mask=2"]  # fmt: skip
    atheris.Setup(options, one_input, custom_mutator=lambda *asked: mutated(target.message, atheris.Mutate, *asked))
    print(f"{given.target}: corpus in {corpus}", flush=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""Golden files: what others depend on, as it is today, in `tests/golden/`.

`pytest --update-golden` writes the files; review the changes as you review code.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

import pytest

from support import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden"


class Golden:
    """Compares texts with the files of one directory, and remembers which files were compared.

    Args:
        update: write the files instead.
        directory: where they are.

    Attributes:
        checked: names of the files that were compared.
        changed: names of the files that were written or removed.
    """

    def __init__(self, *, update: bool, directory: Path = GOLDEN) -> None:
        self._update = update
        self._directory = directory
        self.checked: set[str] = set()
        self.changed: list[str] = []

    def check(self, name: str, text: str) -> None:
        """Fails the test with a unified diff unless the file contains exactly this text.

        Args:
            name: of the file, with its folder and ending: `help/serve.txt`.
            text: what it should contain; a missing newline at the end is added.
        """
        __tracebackhide__ = True
        assert name not in self.checked, f"two tests check the golden file {name}"
        self.checked.add(name)
        path = self._directory / name
        text = text if text.endswith("\n") else f"{text}\n"
        # Bytes, because text mode would hide a change of line ends.
        expected = path.read_bytes().decode() if path.exists() else None
        if text == expected:
            return
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            self.changed.append(name)
            return
        diff = "\n".join(
            difflib.unified_diff(
                (expected or "").splitlines(), text.splitlines(), f"tests/golden/{name}", "now", lineterm=""
            )
        )
        pytest.fail(f"{name} differs; if that is intended, run pytest --update-golden\n{diff}", pytrace=False)

    def take(self, checked: Iterable[str], changed: Iterable[str]) -> None:
        """Adds what another process, which ran some of the tests, has compared and changed."""
        self.checked.update(checked)
        self.changed.extend(changed)

    def stale(self) -> list[str]:
        """Names of the files that no test compared; with `update`, removes them and gives none."""
        names = {path.relative_to(self._directory).as_posix() for path in self._directory.rglob("*") if path.is_file()}
        stale = sorted(names - self.checked)
        if not self._update:
            return stale
        for name in stale:
            (self._directory / name).unlink()
            self.changed.append(name)
        return []

"""The fuzzers of the C library over the golden vectors and their mutations, with any compiler.

`tools/fuzz` runs them with clang's libFuzzer.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kit.machine.cprograms import LIBRARY, SANITIZERS, can_sanitize, link, require_cmake, run
from kit.machine.fuzz_seeds import SEEDS, write
from kit.scale import times

MUTATIONS = times(100, 20_000)
LONGEST_S = times(60, 1_200)


@pytest.mark.parametrize("part", SEEDS)
def test_vectors_and_their_mutations_keep_all_promises(part: str, tmp_path: Path, rng: random.Random) -> None:
    require_cmake()
    fuzz, source = LIBRARY / "fuzz", LIBRARY / "src"
    sources = [
        fuzz / f"{part}.c",
        fuzz / "replay.c",
        *(source / f"{name}.c" for name in ("codec", "shapes", "msgpack", "batch", "errors", "key_file")),
    ]
    link(sources, *(SANITIZERS if can_sanitize() else ()), program=tmp_path / "fuzz")
    seeds = write(tmp_path / "seeds")[part]
    tried = run(tmp_path / "fuzz", str(rng.getrandbits(32)), str(MUTATIONS), *seeds, seconds=LONGEST_S)
    assert int(tried) == len(seeds) * (1 + MUTATIONS)

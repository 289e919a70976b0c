"""Run the self-checks: python tests/ports/check.py [--only WORD] [--seeds N]."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ports.selfcheck import check
from ports.tables import all_ports


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    good, bad, start = 0, 0, time.perf_counter()
    for port in all_ports().values():
        for formulation in port.formulations:
            name = f"{port.name}/{formulation.name}"
            if options.only not in name:
                continue
            for seed in port.seeds[: options.seeds]:
                try:
                    made = check(port, formulation, seed)
                except Exception:  # the list must show it and go on
                    bad += 1
                    print(f"{name} seed {seed}: {traceback.format_exc(limit=-3)}")
                    continue
                if made.passes(port.tolerance):
                    good += 1
                else:
                    bad += 1
                    print(f"{name} seed {seed}: {made}")
    print(f"{good} self-checks pass, {bad} fail; {time.perf_counter() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())

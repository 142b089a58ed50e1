"""Fits of six abilities, 1000 x 60, beside mirt's MHRM (`six_abilities.R`).

Seconds are of the processor; the second fit of a kind is warm.

    python experiments/several_abilities/six_abilities.py [--write FOLDER]
"""

import argparse
import time
from pathlib import Path

import numpy as np
from parts import data

from irtcat import fit


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="write the answers there for mirt, fit nothing")
    arguments = parser.parse_args()
    for kind in ("confirmatory", "exploratory"):
        answers, options = data("2pl", 1000, 60, 6, kind)
        if arguments.write:
            np.savetxt(arguments.write / "answers.csv", answers, fmt="%d", delimiter=",")
            return
        for name in ("first", "warm"):
            start = time.process_time()
            result = fit(answers, "2pl", standard_errors="none", **options)
            seconds = time.process_time() - start
            error = result.bank.provenance["integration_error"]
            print(
                f"{kind} {name}: {seconds:.1f} s, {result.n_iterations} iterations, "
                f"log-likelihood {result.log_likelihood:.2f} (integration error {error:.2f})"
            )


if __name__ == "__main__":
    main()

"""`make mutants`: puts small faults into the core, one at a time, and runs the tests that run that line.

    python -m tests.mutants --each 25 --seed 1 [--room planning] [--only tests/unit]

Prints a table by room, and every mutant that no test noticed with its diff. Exit code 1 where a room is below --bar.
"""

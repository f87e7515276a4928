"""`make mutants`: puts small faults into the core, one at a time, and runs the tests that run that line.

    python -m tests.mutants --each 25 --seed 1 [--room planning] [--only tests/unit]

Prints a table by room, and every mutant that no test noticed with its diff. Exit code 1 where a room is below --bar.
Which test runs which line is kept in `.mutants/`: a test file is measured again when it, or source that it runs, is
changed. That takes far longer than the mutants, above all for tests/engine; with --as-measured only test files that are
new or changed are measured, so that engine tests are counted at the price of one measurement.

A mutant that nobody could notice is named in `equivalent.py` with the reason, and left out of the table.
"""

"""`make mutants`: puts small faults into the core, one at a time, and runs the tests that run that line.

    python -m tests.mutants --each 25 --seed 1 [--room planning] [--only tests/unit] [--survivors]
    python -m tests.mutants --module forebay/net/tls.py

Prints how the sample was drawn, every mutant that no test noticed with its diff, and a table by room. Exit code 1 where
a room is below --bar.

Which test runs which line is measured once and kept in the user's cache by the text of the test file, so that checkouts
share it. Source that changes afterwards does not make it wrong: blocks are known by their function, and tests of a
function that was changed are asked as before. --measure-again measures everything anew.

A mutant that nobody could notice is named in `equivalent.py` with the reason, printed when drawn, and replaced by the
next of the sample.
"""

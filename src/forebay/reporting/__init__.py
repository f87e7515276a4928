"""What users are shown, as values: status, explanations, plans, budgets, machines, offers.

Belongs here: pure functions from an observed cluster to what is shown; the text output of the command line and its
`--output json` both use them. Does not belong here: reading a cluster (`cli`, `engine`), colours, columns and widths
(`cli`), and any I/O.
"""

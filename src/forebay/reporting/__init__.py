"""What people are shown, as values: status, explanations, plans, budgets, machines, offers.

Belongs here: pure functions from what was observed to what is shown, used by the command line and by `--output json`
alike. Does not belong here: reading a cluster (`cli`, `engine`), colours, columns and widths (`cli`), and any I/O.
"""

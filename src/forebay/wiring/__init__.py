"""Assembles the rooms: the only one that knows all of them. It makes no decisions.

Belongs here: what settings and the environment mean to the other rooms (`run_settings`), where log lines go (`logs`),
connections to the cluster (`cluster`), and the operator with its ports and signals (`operator`, `signals`). Heavy
modules are imported inside functions, so that commands which do not need them start quickly.
Does not belong here: commands and what they print (cli), the default of a setting (settings).
"""

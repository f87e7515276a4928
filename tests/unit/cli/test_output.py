"""Tables of the command line."""

from forebay.cli.output import print_table


def test_a_table_is_neither_truncated_nor_wrapped_where_a_program_reads_it(capsys):
    print_table(("A", "WHY"), [("x", "word " * 60)])

    assert len(capsys.readouterr().out.splitlines()) == 2

"""`forebay simulate`: its inputs, and what it prints."""

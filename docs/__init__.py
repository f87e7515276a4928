"""What users read, and what writes the parts of it that come from the code."""

"""Programs of others that machines join with: what Forebay writes is shown to them (`make parts`)."""

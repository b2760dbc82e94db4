"""What ``benchmarks.transfer`` measures: a snapshot of a stage, fetched from several peers at once."""

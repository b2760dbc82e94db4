"""What the benchmarks of codecs share."""

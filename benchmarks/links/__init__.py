"""What ``benchmarks.link`` measures: links of this program, bare TLS, and another program's remote call."""

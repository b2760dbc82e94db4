"""The decisions: state machines without input, output or clocks."""

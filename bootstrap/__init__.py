"""The bootstrap program: a long-running peer without torch."""

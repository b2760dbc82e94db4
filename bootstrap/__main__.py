"""``python -m bootstrap``: run a bootstrap node."""

from bootstrap.main import main

main()

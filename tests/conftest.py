"""One thread for the operators of torch in each process of a test, as peers have.

Workers, and what they start, share the processor; threads that wait for each other where it is busy take many
times as long.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

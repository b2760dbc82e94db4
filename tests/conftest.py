"""How every test runs: on a machine that others may share.

Operators of torch have one thread in each process of a test, as peers have: workers, and what they start,
share the processor, and threads that wait for each other where it is busy take many times as long. No example
of hypothesis has a deadline or is too slow, for the same reason.
"""

import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

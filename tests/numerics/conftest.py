"""How long the nightly run looks for a cut that changes a bit."""

from hypothesis import settings

settings.register_profile("nightly", max_examples=40, deadline=None)

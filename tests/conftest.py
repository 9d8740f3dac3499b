"""Settings for all tests: Hypothesis profiles.

`ci` (the default) draws the same examples in every run, so a red run can be repeated; `long` searches wider and at
random.  Choose with HYPOTHESIS_PROFILE=long.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: one slow example on a busy machine says nothing about the rule under test.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=25, database=None)
settings.register_profile(
    "long", deadline=None, max_examples=1000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

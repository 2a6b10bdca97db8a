"""How much hypothesis tries: by default what a test run can bear; with `--hypothesis-profile=deep`, more."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("usual", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", settings.get_profile("usual"), max_examples=3_000)
settings.load_profile("usual")

"""`refflow bench accel`: finds the comparison, which comes with the back end "numba", and says what is missing for it.

Implements CLI-BENCH-ACCEL of spec/text/jobs.md; what is measured is `refflow_accel.bench`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import AttributeValueError, BackendError


def accel(chosen: Sequence[str], threads: Sequence[int], json_to: str | None = None, profile: str | None = None) -> int:
    """The comparison of these sections (none: all), or a profile of the models whose names contain `profile`; exit code 0.

    Errors: `BackendError` without Numba, `AttributeValueError` for sections that need PyTorch without it, or for a profile
    of nothing.
    """
    try:
        from refflow_accel.bench import command, sections, twins
    except ImportError as error:
        raise BackendError(
            f"bench accel measures the back end 'numba', which cannot be loaded: {error};"
            " install refflow with the extra 'accel': pip install 'refflow[accel]'"
        ) from error
    if profile is not None and not any(profile.lower() in twin.name.lower() for twin in twins.TWINS):
        names = ", ".join(twin.name for twin in twins.TWINS)
        raise AttributeValueError(f"--profile: no model's name contains '{profile}'; there are: {names}")
    rivals = [name for name in chosen if name in sections.NEEDS_TORCH]
    if rivals and profile is None and not sections.has_torch():
        raise AttributeValueError(
            f"--section {rivals[0]}: the rival is PyTorch, which is not installed: pip install torch"
        )
    if profile is not None:
        command.profiled(profile)
    else:
        command.bench(chosen, threads, json_to)
    return 0

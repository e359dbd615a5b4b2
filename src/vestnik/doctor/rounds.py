"""Which checks there are: of the whole installation, and of one workspace."""

from __future__ import annotations

from vestnik.doctor.database import DATABASE
from vestnik.doctor.findings import Check
from vestnik.doctor.machine import Installation
from vestnik.doctor.platforms import PLATFORMS
from vestnik.doctor.work import PROCESSES, WORK

OF_A_WORKSPACE: tuple[Check, ...] = (*PLATFORMS, *WORK)


def of_everything(installation: Installation) -> tuple[Check, ...]:
    return (*DATABASE, *installation.checks(), *PROCESSES, *OF_A_WORKSPACE)

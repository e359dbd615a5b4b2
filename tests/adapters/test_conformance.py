"""The built-in adapters keep the contract."""

from __future__ import annotations

import pytest
from conformance import Conformance
from conformance_media import MediaConformance
from conformance_series import SeriesConformance
from sandbox_rig import SandboxRig


class TestTelegram(Conformance, MediaConformance, SeriesConformance):
    @pytest.fixture
    def rig(self, telegram_rig: SandboxRig) -> SandboxRig:
        return telegram_rig


class TestMax(Conformance, MediaConformance, SeriesConformance):
    @pytest.fixture
    def rig(self, max_rig: SandboxRig) -> SandboxRig:
        return max_rig

"""The pause between two looks of the sensors that make data flow."""

import pytest

from de_resources.sensor_interval import DEFAULT, VARIABLE, UnusableInterval, sensor_seconds


def test_it_is_the_default_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert sensor_seconds() == DEFAULT
    monkeypatch.setenv(VARIABLE, "5")
    assert sensor_seconds() == 5


@pytest.mark.parametrize("said", ["0", "-1", "soon", "1.5", "³"])
def test_what_is_no_pause_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv(VARIABLE, said)
    with pytest.raises(UnusableInterval, match=VARIABLE):
        sensor_seconds()

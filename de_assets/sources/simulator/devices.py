"""The provider's reference set of devices, and what a browser says about the device that it runs on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from de_assets.sources.simulator.content import BROWSERS, NETWORKS
from de_assets.sources.simulator.world import World

_MODELS = (
    ("lenovo", "Lenovo ThinkPad T{}"),
    ("galaxy", "Galaxy S{}"),
    ("htc", "HTC Desire {}"),
    ("lg", "LG G{}"),
    ("iphone", "iPhone {}"),
    ("mac", "MacBook Pro M{}"),
)
_VERSIONS_AT_EPOCH = 8
_BETWEEN_NEW_DEVICES = timedelta(days=5)


@dataclass(frozen=True, slots=True)
class Device:
    """One device; (type, version) is unique, and so is (full_name, version)."""

    type: str
    full_name: str
    version: str


def devices(world: World, at: datetime) -> list[Device]:
    """The complete set at a moment: 48 devices at the epoch, one more every five days."""
    new = max(0, (at - world.epoch) // _BETWEEN_NEW_DEVICES)
    known = [_device(index) for index in range(_VERSIONS_AT_EPOCH * len(_MODELS) + new)]
    return sorted(known, key=lambda device: (device.type, device.full_name))


def _device(index: int) -> Device:
    version, model = divmod(index, len(_MODELS))
    kind, name = _MODELS[model]
    return Device(kind, name.format(version + 1), f"v{version + 1}")


@lru_cache(maxsize=1)
def technical_contexts() -> tuple[str, ...]:
    """JSON of `context.technical` for people's devices; one in 48 is of a type that the reference set lacks."""
    known = [_device(index) for index in range(_VERSIONS_AT_EPOCH * len(_MODELS))]
    known[-1] = Device("pinephone", "PinePhone", "v1")
    return tuple(
        _technical(*BROWSERS[n % len(BROWSERS)], NETWORKS[n % len(NETWORKS)], device, is_bot=False)
        for n, device in enumerate(known * 4)
    )


@lru_cache(maxsize=1)
def bot_context() -> str:
    """JSON of `context.technical` for a well-behaved robot."""
    return _technical("Googlebot", "2.1", "LAN", Device("spider", "Spider", "v1"), is_bot=True)


def _technical(browser: str, browser_version: str, network: str, device: Device, *, is_bot: bool) -> str:
    return json.dumps(
        {
            "browser": browser,
            "browser_version": browser_version,
            "network_type": network,
            "device_type": device.type,
            "device_version": device.version,
            "is_bot": is_bot,
        },
        separators=(",", ":"),
    )

"""What the blog offers and where its readers come from: pages, referrals, advertisements, browsers, networks."""

from __future__ import annotations

PAGES = (
    *("index", "contact", "home", "main", "about", "categories"),
    *(f"category_{n}" for n in range(1, 21)),
    *(f"page_{n}" for n in range(1, 21)),
)
REFERRALS: tuple[str | None, ...] = (
    None,
    *("Google Search", "Twitter", "Facebook", "LinkedIn", "YouTube", "Medium", "Google Ads", "StackOverflow"),
)
ADS: tuple[str | None, ...] = (None, None, None, "ad 1", "ad 2", "ad 3", "ad 4", "ad 5")
BROWSERS = (("Chrome", "132.0"), ("Chrome", "131.0"), ("Firefox", "134.0"), ("Safari", "18.2"), ("Safari", "17.6"))
NETWORKS = ("5G", "4G", "Wi-Fi", "LAN")
COUNTRIES = ("PL", "FR", "DE", "US", "IN", "BR", "GB", "JP", "ES", "CA")

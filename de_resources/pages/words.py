"""Text and numbers as a page shows them."""

from __future__ import annotations

from html import escape

LONGEST = 400
_INVISIBLE = "\N{REPLACEMENT CHARACTER}"


def visible(value: object, longest: int = LONGEST) -> str:
    """One line of signs that people see, cut where it is too long. Not yet escaped."""
    lines = " ".join(str(value).splitlines())
    # Most text is: looked at sign by sign, it took a third of the time of a page.
    plain = lines if lines.isprintable() else "".join(c if c.isprintable() else _INVISIBLE for c in lines)
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def text(value: object) -> str:
    """Text that is no markup, whatever it was, and has no sign that nobody sees."""
    return escape(visible(value))


def short(value: float) -> str:
    """A number for people, in a few signs."""
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e12):
        return f"{int(value):,}"
    return f"{value:,.3g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.3g}"

"""What is captured from the operational database."""

from de_resources.capture.source import CaptureSource

USERS_CAPTURE = CaptureSource("users", ("public.users",), "users")
CAPTURES = (USERS_CAPTURE,)

"""A real web server's log as landed visits: any Apache or nginx access log in combined format.

`read_access_log` yields every line as a visit, a rejected line or a blank one; `land_access_log` lands them by hour
and reports. Grammar in `grammar`, rotated and compressed files in `files`, who visited with what in `visitors`.
"""

from de_assets.sources.access_log.files import NoAccessLogError, access_log_files
from de_assets.sources.access_log.landing_log import AccessLogReport, DeadLetter, land_access_log
from de_assets.sources.access_log.reader import Blank, Rejected, Visit, read_access_log
from de_assets.sources.access_log.visitors import WeakKeyError

__all__ = [
    "AccessLogReport",
    "Blank",
    "DeadLetter",
    "NoAccessLogError",
    "Rejected",
    "Visit",
    "WeakKeyError",
    "access_log_files",
    "land_access_log",
    "read_access_log",
]

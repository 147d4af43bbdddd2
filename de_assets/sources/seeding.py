"""Feeding every source that is reachable: the drop folder always, broker and database where they run."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer

from de_assets.calendar import Calendar, CalendarOrigin, RecordedCalendar
from de_assets.sources.access_log import AccessLogReport, land_access_log
from de_assets.sources.capture import USERS_CAPTURE
from de_assets.sources.landing import DEVICES, Progress, is_ready, landing_alone, set_aside
from de_assets.sources.simulator import (
    EVERYDAY,
    VisitMessage,
    World,
    announcements,
    create_tables,
    feed_database,
    feed_hours,
    feed_topic,
    hours_between,
    land_devices,
    land_visits,
    showings,
)
from de_assets.sources.topics import ADS, FEATURES, TOPICS, VISITS
from de_resources.capture import prepare
from de_resources.errors import PermanentError
from de_resources.kafka import KafkaBroker
from de_resources.kafka.topic import Topic
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.postgres import PostgresDatabase
from de_resources.secrets import Secrets
from de_resources.settings import Settings

LOG_KEY = "access_log_pseudonyms"
LONGEST_GAP = timedelta(days=366)
RELEASE_DAYS = 7
"""A feature is released every so many days."""
Say = Callable[[str], None]


@dataclass
class Seeded:
    """What was fed, and why some source was left out."""

    calendar: Calendar
    visits: int = 0
    messages: int = 0
    releases: int = 0
    user_changes: int = 0
    legacy_visits: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    took_the_place: bool = False
    """Whether a simulation gave way: what there is of it in other sources is outside the calendar now."""


class FarFromOtherLogs(PermanentError):
    """Between a log and those that were landed before lies more than a year: its partitions would be empty, all of them."""

    def __init__(self, log: Calendar, logs: Calendar) -> None:
        self.log, self.logs = log, logs
        super().__init__(
            f"The log covers {log}, and this home holds the logs of {logs}: more than {LONGEST_GAP.days} days between them "
            "have no log. Nothing was landed. Land what lies between them first, or set DE_HOME to another home for this one."
        )


class EmptyLog(PermanentError):
    """An access log without a single line that parses, or without a line where no other log says which hours there are."""

    def __init__(self, paths: Sequence[str], *, has_lines: bool) -> None:
        self.paths = tuple(paths)
        names = ", ".join(paths)
        why = (
            f"No line of {names} is in the combined log format of Apache or nginx."
            if has_lines
            else f"{names} has no line yet."
        )
        super().__init__(
            f"{why} Nothing was landed. Pass the server's access log: `de run --log /var/log/nginx/access.log`."
        )


def seed_simulation(
    settings: Settings,
    calendar: Calendar,
    *,
    seed: int,
    visits: int,
    progress: Progress,
    say: Say,
    services_are_up: Callable[[], object] = lambda: None,
) -> Seeded:
    """Land simulated visits and devices for the calendar's hours, and feed database and broker where they answer.

    `services_are_up` is asked between the files and the rest; it returns when the services may be talked to.

    Feeding the same again changes nothing: folders keep their bytes, rows their state, and a topic that holds records
    is not fed a second time. The calendar is recorded for all later processes.
    """
    if calendar.end is None:
        raise PermanentError("The simulator needs a calendar with an end. Pass `--days`, or DE_CALENDAR as start/end.")
    # Users change in the year after the world's epoch; the calendar lies in the middle of it.
    world = World(seed=seed, epoch=calendar.start - timedelta(days=180))
    hours = hours_between(calendar.start, calendar.end)
    done = Seeded(calendar)
    say("landing visits")
    landed = land_visits(settings.landing, world, hours, total=visits, irregularities=EVERYDAY, progress=progress)
    done.visits = sum(hour.visits for hour in landed)
    land_devices(settings.landing, world, calendar.end)
    services_are_up()
    say("feeding the database")
    with _left_out(done, "postgres"), closing(PostgresDatabase().open()) as connection:
        create_tables(connection)
        # Before the first row, so that the capture hears of every change and not of the last state only.
        prepare(PostgresDatabase(), USERS_CAPTURE)
        fed = feed_database(connection, world, calendar.start, calendar.end)
        done.user_changes, done.legacy_visits = fed.user_changes, fed.legacy_states
    say("feeding the broker")
    with _left_out(done, "kafka"):
        # The live stream has a tenth of the landed volume, and is of today: the broker's clock says what is late in it.
        now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        live = hours_between(now - timedelta(hours=6), now)
        done.messages = _feed_live(KafkaBroker(), world, live, max(visits // 10, 1))
        per_hour = max(visits // 10 // len(live), 1)
        done.messages += _feed_once(KafkaBroker(), ADS, showings(world, live, per_hour).messages)
        days = hours_between(calendar.start, calendar.end)[:: 24 * RELEASE_DAYS]
        done.releases = _feed_once(KafkaBroker(), FEATURES, announcements(world, days).messages)
    calendar.save(settings)
    return done


def seed_access_log(settings: Settings, paths: Sequence[str], progress: Progress) -> tuple[Seeded, AccessLogReport]:
    """Land a web server's log; the calendar of this home grows by the hours that it covers. Landing it again changes nothing.

    Visitors become keyed hashes; the key is a generated secret of this home. Visits that were simulated here are set aside. A
    log without a line yet changes nothing where other logs are landed. A log that is refused leaves nothing behind.
    Raises `EmptyLog`, `FarFromOtherLogs`, and `TableBusy` while somebody else lands.
    """
    key = Secrets.from_settings(settings).generate(LOG_KEY).encode()
    with landing_alone(settings.landing):
        recorded = RecordedCalendar.find(settings)
        logs = recorded.calendar if recorded and recorded.of == CalendarOrigin.LOGS else None

        def accept(report: AccessLogReport) -> None:
            has_lines = report.lines > report.blank
            if not report.per_day and (has_lines or logs is None):
                raise EmptyLog(paths, has_lines=has_lines)
            if not report.per_day:
                return
            _require_near(_hours_of(report), logs)
            if recorded and recorded.of == CalendarOrigin.SIMULATION:
                set_aside(settings.landing)

        report = land_access_log(settings.landing, [Path(p) for p in paths], key, progress, before_landing=accept)
        calendar = _grown(logs, report)
        calendar.save(settings, CalendarOrigin.LOGS)
        if not is_ready(settings.landing / DEVICES):
            land_devices(settings.landing, World(seed=0), calendar.start)
    gave_way = recorded is not None and recorded.of == CalendarOrigin.SIMULATION
    return Seeded(calendar, visits=report.visits, took_the_place=gave_way), report


def _grown(logs: Calendar | None, report: AccessLogReport) -> Calendar:
    """The calendar of all logs; `logs` is that of those before."""
    if logs is None:
        return _hours_of(report)
    return _hours_of(report).union(logs) if report.hours else logs


def _hours_of(report: AccessLogReport) -> Calendar:
    return Calendar(report.hours[0], report.hours[-1] + timedelta(hours=1))


def _require_near(log: Calendar, logs: Calendar | None) -> None:
    if logs is None or log.end is None:
        return
    silent_before = logs.end is not None and log.start - logs.end > LONGEST_GAP
    if silent_before or logs.start - log.end > LONGEST_GAP:
        raise FarFromOtherLogs(log, logs)


@contextmanager
def _left_out(seeded: Seeded, service: str) -> Iterator[None]:
    """Note a service that does not answer, and go on without it."""
    try:
        yield
    except ServiceUnavailable as error:
        seeded.left_out[service] = str(error)


def _feed_live(broker: KafkaBroker, world: World, hours: Sequence[datetime], visits: int) -> int:
    """Feed the topic of visits hour by hour, unless it holds records."""
    broker.ensure_topics(TOPICS)
    if _holds_records(broker, VISITS):
        return 0
    return sum(feed_hours(_producer(broker), VISITS, world, hours, total=visits, irregularities=EVERYDAY))


def _producer(broker: KafkaBroker) -> Producer:
    return Producer({**broker.client_config(), "enable.idempotence": True, "log_level": 0})


def _feed_once(broker: KafkaBroker, topic: str, messages: Iterable[VisitMessage]) -> int:
    """Feed the topic unless it holds records: producing is not idempotent."""
    broker.ensure_topics(TOPICS)
    if _holds_records(broker, topic):
        return 0
    return feed_topic(_producer(broker), topic, messages)


def _holds_records(broker: KafkaBroker, topic: str) -> bool:
    return any(Topic(broker.client_config(), topic).ends().values())

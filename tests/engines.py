"""How the engines of the tests are started: options for every JVM, by `JDK_JAVA_OPTIONS`."""

from de_resources.engine.plans import INTERPRETED

# Thousands of tiny queries never repay the optimising compiler, which would take half of a small machine's time, nor a
# collector with threads of its own: the same tests took 114 CPU seconds instead of 121.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
# For the same reason plans are interpreted instead of being compiled to Java first: a third of an engine's time.
INTERPRETED_PLANS = " ".join(f"-D{name}={value}" for name, value in INTERPRETED.items())

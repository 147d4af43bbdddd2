"""How the engines of the tests are started: options for every JVM, by `JDK_JAVA_OPTIONS`."""

# Thousands of tiny queries never repay the optimising compiler, which would take half of a small machine's time, nor a
# collector with threads of its own: the same tests took 114 CPU seconds instead of 121.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
# For the same reason plans are interpreted instead of being compiled to Java first: a third of an engine's time.
INTERPRETED_PLANS = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"

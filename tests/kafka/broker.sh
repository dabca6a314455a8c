#!/usr/bin/env bash
# Apache Kafka on this machine without containers: one node (KRaft), plain text, on the loopback interface, for trying out and
# for tests. Needs Java 17 or newer; Maven, once.
#
#   broker.sh fetch                             downloads Kafka into the cache beside the build directory; again, does nothing
#   broker.sh start DIR [PORT] [KEY=VALUE...]   starts a broker with its data in DIR; prints HOST:PORT when it answers
#   broker.sh stop DIR                          stops it; DIR stays, and `start DIR` continues with it
#   broker.sh tool NAME ARGUMENT...             runs a tool of Kafka's own: topics, console-consumer, console-producer,
#                                               consumer-groups, configs, transactions
#   broker.sh java                              prints the Java that it takes
#   broker.sh prepare DIR [PORT] [KEY=VALUE...] as start, but starts nothing: prints HOST:PORT, then the command that would, a
#                                               word a line
#
# Without PORT, that of DIR's last start, else a free one. KEY=VALUE is a broker setting; {port} in a value stands for the port.
# PORT or settings make it forget the settings of earlier starts. DIR/broker.log has the warnings and errors.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# How long a start or a stop may take, in seconds: a busy machine is slow.
patience=120

fail() {
    printf 'error: %s\nhelp: %s\n' "$1" "$2" >&2
    exit "${3:-1}"
}

have() { command -v "$1" >/dev/null 2>&1; }

version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/pom.xml")
target=$("$here/../../.ci/setup.sh" target-dir)
cache=$(dirname "$(realpath -m "$target")")/kafka-$version

# Sets `java` and `java_version`: the first of $JAVA_HOME, PATH and the system's folder that is new enough. A test looks elsewhere.
find_java() {
    local candidate
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
        "${LOCKGATE_JVM_DIR:-/usr/lib/jvm}"/*/bin/java; do
        [ -x "$candidate" ] || continue
        java_version=$("$candidate" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p')
        if [ "${java_version%%.*}" -ge 17 ] 2>/dev/null; then
            java=$candidate
            return
        fi
    done
    fail "Kafka $version needs Java 17 or newer, and there is none" \
        "run .ci/setup.sh kafka, or install one and put it in PATH or name its folder in JAVA_HOME"
}

# Small and quick to start. What it needs to log is what went wrong, and that it is up.
java_words() {
    # The order of the jars is a part of what the archive of classes is valid for.
    local LC_ALL=C
    printf '%s\n' "$java" -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        "-XX:SharedArchiveFile=$cache/classes-$java_version.jsa" -Xshare:auto -Xlog:disable -Xlog:all=error:stderr \
        -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true \
        '-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS' \
        -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info \
        -cp "$(printf '%s:' "$cache"/libs/*.jar)"
}

# Brings what is missing into the cache; one at a time, as tests may ask for it at the same moment.
fetch() {
    find_java
    ! is_fetched || return 0
    mkdir -p "$(dirname "$cache")" || fail "cannot create $(dirname "$cache")" "name a folder that you may write to in CARGO_TARGET_DIR"
    (
        flock 9
        cmp -s "$here/pom.xml" "$cache/pom.xml" || fetch_jars
        [ -d "$cache/formatted" ] || format_storage
        [ -e "$cache/classes-$java_version.jsa" ] || archive_classes
    ) 9>"$cache.lock"
}

is_fetched() {
    cmp -s "$here/pom.xml" "$cache/pom.xml" && [ -d "$cache/formatted" ] && [ -e "$cache/classes-$java_version.jsa" ]
}

fetch_jars() {
    have mvn || fail "Kafka $version is not here yet, and there is no Maven to fetch it with" \
        "run .ci/setup.sh kafka, or install Maven"
    printf 'Fetching Kafka %s (45 MB, once) into %s\n' "$version" "$cache" >&2
    rm -rf "$cache"
    mkdir "$cache"
    # It colours even what nobody sees.
    mvn -B -q -f "$here/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$cache/libs" 2>&1 |
        sed 's/\x1b\[[0-9;]*m//g; /^$/d' >&2 ||
        fail "Maven could not fetch Kafka $version" "its messages are above; a proxy or mirror is set in ~/.m2/settings.xml"
    # Last: it says that the jars are complete.
    cp "$here/pom.xml" "$cache/pom.xml"
}

# An empty data folder, to be copied: formatting takes longer than starting.
format_storage() {
    local partial words
    partial=$(mktemp -d "$cache/formatted.XXXXXX")
    write_properties "$partial" 9092 9093
    mapfile -t words < <(java_words)
    "${words[@]}" kafka.tools.StorageTool format --cluster-id "$(new_id)" --config "$partial/server.properties" \
        >"$partial/log" 2>&1 || fail "Kafka cannot format its storage" "see $partial/log"
    mv "$partial/data" "$cache/formatted"
    rm -rf "$partial"
}

# Classes as Java keeps them in memory, saved from one run: a start is a third shorter. For one version of Java only.
archive_classes() {
    local dir words
    dir=$(mktemp -d "$cache/archive.XXXXXX")
    prepare "$dir" "" >/dev/null
    mapfile -t words < <(java_words | sed "s|^-XX:SharedArchiveFile=.*|-XX:ArchiveClassesAtExit=$dir/classes.jsa|")
    launch "$dir" "${words[@]}" kafka.Kafka "$dir/server.properties"
    wait_for_start "$dir"
    stop "$dir"
    # A Java that can't do this starts without.
    mv "$dir/classes.jsa" "$cache/classes-$java_version.jsa" 2>/dev/null || : >"$cache/classes-$java_version.jsa"
    rm -rf "$dir"
}

# 22 characters, as Kafka wants them.
new_id() { head -c 200 /dev/urandom | base64 | tr -dc 'A-Za-z0-9' | cut -c 1-22; }

# Below the ports that systems give to connections, so that a stopped broker finds its own free again.
free_port() {
    local port
    while true; do
        port=$((20000 + RANDOM % 12000))
        (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    printf '%s\n' "$port"
}

# write_properties DIR PORT CONTROLLER_PORT [KEY=VALUE...]
write_properties() {
    local dir=$1 port=$2 controller=$3 setting
    shift 3
    {
        cat <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
log.dirs=$dir/data
# One node: nothing to replicate to. Few partitions: a quick start.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# Topics are created on purpose, and records stay however old their timestamps are.
auto.create.topics.enable=false
log.retention.ms=-1
# What happens after a time happens soon after it.
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
offsets.retention.check.interval.ms=1000
# A killed broker may come back after this time, not after the 9 s that its registration is valid by default.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.cleaner.backoff.ms=1000
# A small process.
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=4
PROPERTIES
        for setting in "$@"; do printf '%s\n' "${setting//'{port}'/"$port"}"; done
    } >"$dir/server.properties"
}

# The first listener's port, or the controller's, of a folder that was prepared before.
old_port() {
    [ -e "$2/server.properties" ] || return 0
    sed -n "s/.*[=,]$1:\/\/127.0.0.1:\([0-9]*\).*/\1/p" "$2/server.properties" | head -n 1
}

# Prints the address, then the command.
prepare() {
    local dir port= controller
    [ $# -ge 1 ] && [ -n "$1" ] || fail "no folder is named" "say: broker.sh start DIR [PORT] [KEY=VALUE...]" 2
    dir=$1
    shift
    case ${1-} in
    *=*) ;;
    *)
        port=${1-}
        [ $# = 0 ] || shift
        ;;
    esac
    [[ $port =~ ^[0-9]*$ ]] || fail "'$port' is no port" "give a number between 1 and 65535, or none" 2
    local setting
    for setting in "$@"; do
        [[ $setting =~ ^[A-Za-z0-9._-]+= ]] || fail "'$setting' is no broker setting" "write KEY=VALUE" 2
    done
    mkdir -p "$dir" || fail "cannot create $dir" "name a folder that you may write to"
    dir=$(cd "$dir" && pwd)
    local old
    old=$(old_port PLAINTEXT "$dir")
    controller=$(old_port CONTROLLER "$dir")
    controller=${controller:-$(free_port)}
    if [ -n "$port" ] || [ $# -gt 0 ] || [ -z "$old" ]; then
        port=${port:-${old:-$(free_port)}}
        write_properties "$dir" "$port" "$controller" "$@"
    fi
    if ! [ -d "$dir/data" ]; then
        rm -rf "$dir/data.partial"
        cp -r "$cache/formatted" "$dir/data.partial"
        # A cluster of its own, not that of all others.
        sed -i -e '/^directory.id=/d' -e "s/^cluster.id=.*/cluster.id=$(new_id)/" "$dir/data.partial/meta.properties"
        mv "$dir/data.partial" "$dir/data"
    fi
    printf '127.0.0.1:%s\n' "${port:-$old}"
    java_words
    printf '%s\n' kafka.Kafka "$dir/server.properties"
}

# Whether the process that was started in the folder is there. Its number may have gone to another program since.
is_running() {
    local pid dir
    dir=$(cd "$1" 2>/dev/null && pwd) && [ -e "$dir/pid" ] || return 1
    pid=$(cat "$dir/pid")
    kill -0 "$pid" 2>/dev/null || return 1
    ! [ -r "/proc/$pid/cmdline" ] || tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF "$dir/server.properties"
}

# launch DIR COMMAND...
launch() {
    local dir=$1
    shift
    : >"$dir/broker.log"
    # A session of its own: Ctrl-C in this terminal is not for the broker.
    setsid "$@" >>"$dir/broker.log" 2>&1 </dev/null 9>&- &
    printf '%s\n' $! >"$dir/pid"
    # It is a copy of this script at first, and would be taken for another program.
    while kill -0 $! 2>/dev/null && ! is_running "$dir"; do sleep 0.01; done
}

wait_for_start() {
    local dir=$1 end=$((SECONDS + patience))
    until grep -q 'Kafka Server started' "$dir/broker.log"; do
        if ! is_running "$dir"; then
            tail -n 20 "$dir/broker.log" >&2
            fail "the broker in $dir ended while it started" "the end of $dir/broker.log is above"
        fi
        [ $SECONDS -lt $end ] || fail "the broker in $dir has not started in $patience s" "see $dir/broker.log"
        sleep 0.05
    done
}

start() {
    local address words
    if [ -n "${1-}" ] && is_running "$1"; then
        fail "a broker is running in $1 already" "run: broker.sh stop $1"
    fi
    fetch
    prepare "$@" >/dev/null
    mapfile -t words < <(prepare "$1")
    address=${words[0]}
    if (: <>"/dev/tcp/127.0.0.1/${address#*:}") 2>/dev/null; then
        fail "port ${address#*:} is in use" "name another one: broker.sh start $1 PORT"
    fi
    launch "$(cd "$1" && pwd)" "${words[@]:1}"
    wait_for_start "$1"
    printf '%s\n' "$address"
}

stop() {
    local dir=${1-} pid end=$((SECONDS + patience))
    [ -n "$dir" ] || fail "no folder is named" "say: broker.sh stop DIR" 2
    [ -e "$dir/pid" ] || fail "no broker was started in $dir" "name the folder that it was started with"
    pid=$(cat "$dir/pid")
    ! is_running "$dir" || kill "$pid"
    while is_running "$dir"; do
        [ $SECONDS -lt $end ] || { kill -9 "$pid" 2>/dev/null || true; }
        sleep 0.05
    done
    rm -f "$dir/pid"
}

tool() {
    local class words
    case ${1-} in
    topics) class=TopicCommand ;;
    console-consumer) class=consumer.ConsoleConsumer ;;
    console-producer) class=ConsoleProducer ;;
    consumer-groups) class=consumer.group.ConsumerGroupCommand ;;
    configs) class=ConfigCommand ;;
    transactions) class=TransactionsCommand ;;
    *) fail "there is no tool '${1-}'" \
        "name one of: topics console-consumer console-producer consumer-groups configs transactions" 2 ;;
    esac
    shift
    fetch
    mapfile -t words < <(java_words)
    exec "${words[@]}" "org.apache.kafka.tools.$class" "$@"
}

verb=${1-}
[ $# = 0 ] || shift
case $verb in
fetch) fetch ;;
start) start "$@" ;;
stop) stop "$@" ;;
tool) tool "$@" ;;
java)
    find_java
    printf '%s\n' "$java"
    ;;
prepare)
    fetch
    prepare "$@"
    ;;
-h | --help) sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
*) fail "there is no verb '$verb'" "say one of: fetch start stop tool java prepare (--help explains them)" 2 ;;
esac

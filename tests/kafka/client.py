"""The tests' view into Kafka: does what standard input asks, a line of JSON each, and answers in a line of JSON.

A line with "bytes": N is followed by that many bytes of records; see records.py. Uses kafka-python only, so that no error of the
library that the host uses can hide itself. Every request connects anew: a broker may have been replaced since the last one.

Invariant: what `read` gives was complete when it was asked for, or it is an error.
"""

import json
import os
import sys
import time

try:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import (
        ACL, AbortTransactionSpec, ACLOperation, ACLPermissionType, ACLResourcePatternType, ConfigResource, KafkaAdminClient,
        NewTopic, ResourcePattern, ResourceType,
    )  # fmt: skip
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata
    from records import decode, encode, send_late, send_plain, target
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in ("kafka", "crc32c"):
        raise
    sys.exit(
        f"error: {sys.executable} has no module '{error.name}'\n"
        "help: `.ci/setup.sh kafka` installs kafka-python into a Python of its own, and `.ci/setup.sh kafka-python` prints that one"
    )

ADDRESS = sys.argv[1]
# How long anything may take that a broker on this machine should do at once, in seconds.
PATIENCE = 60

# What is over soon, and has done nothing.
NOT_READY = ("CoordinatorNotAvailableError", "CoordinatorLoadInProgressError", "NotCoordinatorError")

# Producers by transactional id whose transactions are open.
open_transactions = {}


def admin():
    return KafkaAdminClient(bootstrap_servers=ADDRESS)


def wait_until(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {PATIENCE} s in vain for: {what}")
        time.sleep(0.02)


def ready_partitions(client, topic):
    found = client.describe_topics([topic])[0]
    partitions = [p for p in found["partitions"] if p["error_code"] == 0 and p["leader_id"] >= 0]
    return len(partitions) if found["error_code"] == 0 else 0


def cluster_id(client, request):
    return client.describe_cluster()["cluster_id"]


def topics(client, request):
    return sorted(name for name in client.list_topics() if not name.startswith("__"))


def create_topic(client, request):
    topic, count = request["topic"], request["partitions"]
    client.create_topics([NewTopic(topic, count, 1, topic_configs=request["configs"])])
    wait_until(f"topic {topic}", lambda: ready_partitions(client, topic) == count)


def delete_topic(client, request):
    client.delete_topics([request["topic"]])
    wait_until("the end of the topic", lambda: request["topic"] not in client.list_topics())


def add_partitions(client, request):
    topic, count = request["topic"], request["partitions"]
    client.create_partitions({topic: count})
    wait_until(f"partitions of {topic}", lambda: ready_partitions(client, topic) == count)


def partition_count(client, request):
    return len(partitions_of(client, request["topic"]))


def partitions_of(client, topic):
    found = client.describe_topics([topic])[0]
    if found["error_code"] != 0:
        raise LookupError(f"topic {topic}: error {found['error_code']}")
    return sorted(TopicPartition(topic, p["partition_index"]) for p in found["partitions"])


def topic_configs(client, request):
    topic = request["topic"]
    found = client.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
    return {key: entry["value"] or "" for key, entry in found["topic"][topic].items()}


def consumer(read_committed, partitions):
    level = "read_committed" if read_committed else "read_uncommitted"
    made = KafkaConsumer(
        bootstrap_servers=ADDRESS,
        isolation_level=level,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=100,
        max_partition_fetch_bytes=16 << 20,
        fetch_max_bytes=64 << 20,
    )
    made.assign(partitions)
    return made


def end_offsets(client, request):
    partitions = partitions_of(client, request["topic"])
    reader = consumer(request["read_committed"], partitions)
    found = reader.end_offsets(partitions)
    reader.close()
    return {p.partition: found[p] for p in partitions}


def begin_offsets(client, request):
    partitions = partitions_of(client, request["topic"])
    reader = consumer(False, partitions)
    found = reader.beginning_offsets(partitions)
    reader.close()
    return {p.partition: found[p] for p in partitions}


def read(client, request):
    partitions = partitions_of(client, request["topic"])
    if request["partition"] is not None:
        partitions = [p for p in partitions if p.partition == request["partition"]]
    reader = consumer(request["read_committed"], partitions)
    # The ends before the beginnings: what is deleted in between is then skipped.
    ends = reader.end_offsets(partitions)
    begins = {p: max(at, request["offset"]) for p, at in reader.beginning_offsets(partitions).items()}
    unread = [p for p in partitions if begins[p] < ends[p]]
    reader.assign(unread)
    for p in unread:
        reader.seek(p, begins[p])
    found = {p: [] for p in partitions}
    # A reader that has lost its connection may give again what it has given: an offset is one record.
    nexts = dict(begins)
    last_progress = time.monotonic()
    while unread:
        for p, records in reader.poll(timeout_ms=100, max_records=100000).items():
            new = [record for record in records if nexts[p] <= record.offset < ends[p]]
            if new:
                nexts[p] = new[-1].offset + 1
            found[p].append(b"".join(encode(record) for record in new))
            last_progress = time.monotonic()
        still = [p for p in unread if reader.position(p) < ends[p]]
        if len(still) < len(unread):
            last_progress = time.monotonic()
            reader.pause(*(p for p in unread if p not in still))
        unread = still
        if time.monotonic() - last_progress > PATIENCE:
            raise TimeoutError(f"nothing came for {PATIENCE} s from {unread}, which end at {ends}")
    reader.close()
    return b"".join(b"".join(found[p]) for p in partitions)


def leaders_of(client, topic):
    """Leaders by partition; an error if there is no such topic."""
    partitions_of(client, topic)
    return {p["partition_index"]: p["leader_id"] for p in client.describe_topics([topic])[0]["partitions"]}


def produce(client, request):
    return send_plain(client, request["topic"], leaders_of(client, request["topic"]), request["data"])


def delete_records(client, request):
    client.delete_records({TopicPartition(request["topic"], request["partition"]): request["offset"]})


def group_offsets(client, request):
    found = client.list_group_offsets(request["group"])[request["group"]]
    return [[p.topic, p.partition, at.offset, at.metadata or ""] for p, at in found.items() if at.offset >= 0]


def commit_group_offset(client, request):
    where = TopicPartition(request["topic"], request["partition"])
    done = client.alter_group_offsets(request["group"], {where: OffsetAndMetadata(request["offset"], "", -1)})
    for error in done.values():
        if error.errno != 0:
            raise error(f"committing {where} for group {request['group']}")


def delete_group(client, request):
    done = client.delete_groups([request["group"]])
    if done[request["group"]] != "OK":
        raise RuntimeError(f"deleting group {request['group']}: {done[request['group']]}")


def allow(client, request):
    name, prefixed = request["name"].removesuffix("*"), request["name"].endswith("*")
    pattern = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
    resource = ResourcePattern(ResourceType[request["resource"].upper()], name, pattern)
    user, allowed = f"User:{request['user']}", ACLPermissionType.ALLOW
    acls = [ACL(user, "*", ACLOperation[each.upper()], allowed, resource) for each in request["operations"]]
    failed = client.create_acls(acls)["failed"]
    if failed:
        raise RuntimeError(f"allowing {request}: {failed}")


def begin_transaction(client, request):
    topic, count = request["topic"], len(partitions_of(client, request["topic"]))
    producer = KafkaProducer(
        bootstrap_servers=ADDRESS,
        transactional_id=request["id"],
        transaction_timeout_ms=request["timeout_ms"],
        delivery_timeout_ms=PATIENCE * 1000,
        max_request_size=64 << 20,
    )
    producer.init_transactions()
    producer.begin_transaction()
    sent = []
    for partition, timestamp, key, value, headers in decode(request["data"]):
        where = target(partition, key, len(sent), count)
        sent.append(producer.send(topic, value, key, headers, where, timestamp if timestamp >= 0 else None))
    producer.flush(PATIENCE)
    for each in sent:
        each.get(PATIENCE)
    open_transactions[request["id"]] = producer


def end_transaction(client, request):
    producer = open_transactions.pop(request["id"])
    try:
        if request["commit"]:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    finally:
        producer.close(0)


def leave_hanging(client, request):
    topic, id = request["topic"], request["id"]
    producer = client.describe_transactions([id])[id]
    where = TopicPartition(topic, request["partition"])
    known = client.describe_producers([where])[where].active_producers
    is_same = lambda one: (one.producer_id, one.producer_epoch) == (producer.producer_id, producer.producer_epoch)
    last = [each.last_sequence for each in known if is_same(each)]
    return send_late(client, where, leaders_of(client, topic), request["data"], id, producer, max(last, default=-1) + 1)


def abort_hanging(client, request):
    where = TopicPartition(request["topic"], request["partition"])
    for producer in client.describe_producers([where])[where].active_producers:
        if producer.current_transaction_start_offset >= 0:
            found = (producer.producer_id, producer.producer_epoch, max(producer.coordinator_epoch, 0))
            client.abort_transaction(AbortTransactionSpec(where, *found))


def transactions(client, request):
    known = [each for listed in client.list_transactions().values() for each in listed]
    return [[each.transactional_id, each.producer_id, each.state.value] for each in known]


REQUESTS = {
    request.__name__: request
    for request in (
        abort_hanging, add_partitions, allow, begin_offsets, begin_transaction, cluster_id, commit_group_offset, create_topic,
        delete_group, delete_records, delete_topic, end_offsets, end_transaction, group_offsets, leave_hanging, partition_count, produce,
        read, topic_configs, topics, transactions,
    )
}  # fmt: skip


def perform(request):
    client = admin()
    end = time.monotonic() + PATIENCE
    try:
        while True:
            try:
                return REQUESTS[request["do"]](client, request)
            except KafkaError as error:
                # A broker that has just started says that its coordinators are not ready yet.
                if not type(error).__name__ in NOT_READY or time.monotonic() > end:
                    raise
                time.sleep(0.05)
    finally:
        client.close()


def answer(line):
    request = json.loads(line)
    # Read in any case, so that the next line begins where it should.
    request["data"] = sys.stdin.buffer.read(request["bytes"]) if "bytes" in request else b""
    data = b""
    try:
        result = perform(request)
        if isinstance(result, bytes):
            data, result = result, None
        reply = {"ok": result, "bytes": len(data)}
    except Exception as error:  # Whatever it is, the test says it.
        reply = {"error": f"{type(error).__name__}: {error}", "bytes": 0}
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n" + data)
    sys.stdout.buffer.flush()


for line in iter(sys.stdin.buffer.readline, b""):
    answer(line)
# Nothing is closed in good order: an open transaction stays open, as when a program dies.
os._exit(0)

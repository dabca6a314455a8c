"""Records as bytes between the tests and client.py, and how they are produced.

Little-endian: partition (4 bytes, -1: any), offset (8), timestamp (8, -1: now), key, value, number of headers (4), and name and
value of each. A key, value or name is its length (4 bytes, -1: none) and its bytes.
"""

import struct
import time

from kafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError, for_code
from kafka.partitioner.default import murmur2
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

FIXED = struct.Struct("<iqqi")
LENGTH = struct.Struct("<i")
BATCH_BYTES_MAX = 512 << 10
# How long a partition may take to get a leader, in seconds.
PATIENCE = 60


def nullable(data):
    return LENGTH.pack(-1) if data is None else LENGTH.pack(len(data)) + data


def encode(record):
    """Partition, offset, timestamp, key, value, headers: little-endian, a length before each string, -1 for none."""
    key = record.key
    parts = [FIXED.pack(record.partition, record.offset, record.timestamp, -1 if key is None else len(key))]
    if key:
        parts.append(key)
    parts.append(nullable(record.value))
    headers = record.headers
    parts.append(LENGTH.pack(len(headers)))
    for name, value in headers:
        parts.append(nullable(name.encode()))
        parts.append(nullable(value))
    return b"".join(parts)


def decode(data):
    """The same the other way: (partition, timestamp, key, value, headers); -1 for a partition or timestamp is none."""
    at = 0

    def take_nullable():
        nonlocal at
        (length,) = LENGTH.unpack_from(data, at)
        at += 4
        if length < 0:
            return None
        at += length
        return data[at - length : at]

    while at < len(data):
        partition, _, timestamp, _ = FIXED.unpack_from(data, at)
        # The length of the key is a part of the fixed fields and of the key.
        at += FIXED.size - 4
        key, value = take_nullable(), take_nullable()
        (count,) = LENGTH.unpack_from(data, at)
        at += 4
        headers = [(take_nullable().decode(), take_nullable()) for _ in range(count)]
        yield partition, timestamp, key, value, headers


def target(partition, key, number, count):
    """The partition of a record: its own, else by key as Java's client does, else in turn."""
    if partition >= 0:
        return partition
    return (murmur2(key) & 0x7FFFFFFF) % count if key is not None else number % count


def send_plain(client, topic, leaders, data):
    """Without a transaction, a batch at a time, each acknowledged before the next; partition and offset of each record.

    Not by KafkaProducer: it has no headers without value, and no records without key and value.
    """
    places, batches = [], {}
    now = int(time.time() * 1000)

    def send(partition):
        builder, numbers = batches.pop(partition)
        base = produce_batch(client, topic, partition, leaders[partition], builder.build())
        for offset, number in enumerate(numbers, base):
            places[number] = (partition, offset)

    for partition, timestamp, key, value, headers in decode(data):
        partition = target(partition, key, len(places), len(leaders))
        timestamp = timestamp if timestamp >= 0 else now
        if partition not in batches:
            batches[partition] = (new_batch(), [])
        builder, numbers = batches[partition]
        if builder.append(len(numbers), timestamp, key, value, headers) is None:
            send(partition)
            builder, numbers = batches[partition] = (new_batch(), [])
            builder.append(0, timestamp, key, value, headers)
        numbers.append(len(places))
        places.append(None)
    for partition in list(batches):
        send(partition)
    return places


def send_late(client, where, leaders, data, transactional_id, producer, sequence):
    """One batch to a partition, as if it belonged to a transaction of this producer that has ended before."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=True, producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch, base_sequence=sequence, batch_size=BATCH_BYTES_MAX,
    )  # fmt: skip
    for number, (_, _, key, value, headers) in enumerate(decode(data)):
        builder.append(number, int(time.time() * 1000), key, value, headers)
    topic, partition = where.topic, where.partition
    return produce_batch(client, topic, partition, leaders[partition], builder.build(), transactional_id)


def new_batch():
    return DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=BATCH_BYTES_MAX,
    )  # fmt: skip


def produce_batch(client, topic, partition, leader, batch, transactional_id=None):
    Topic = ProduceRequest.TopicProduceData
    data = Topic(name=topic, partition_data=[Topic.PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=30000, topic_data=[data], max_version=9
    )

    async def exchange():
        return await client._manager.send(request, node_id=leader)

    end = time.monotonic() + PATIENCE
    while True:
        answer = client._manager.run(exchange).responses[0].partition_responses[0]
        if answer.error_code == 0:
            return answer.base_offset
        error = for_code(answer.error_code)
        # A leader of a new partition may not know yet that it is one, and takes nothing meanwhile.
        if error not in (NotLeaderForPartitionError, UnknownTopicOrPartitionError) or time.monotonic() > end:
            raise error(f"producing to {topic}, partition {partition}: {answer.error_message}")
        time.sleep(0.01)

// Values by key: those of a batch are read at once, and written at once.
//
// Invariant: each key of a batch is read and written once, however many of its records have it.

#include <stdlib.h>
#include <string.h>

#include "lockgate.h"

#define NO_KEY UINT32_MAX

size_t lg_encode_u64(uint64_t number, uint8_t *bytes) {
    size_t length = 0;
    while (number > 0x7f) {
        bytes[length++] = (uint8_t)(number & 0x7f) | 0x80;
        number >>= 7;
    }
    bytes[length++] = (uint8_t)number;
    return length;
}

bool lg_decode_u64(struct lg_bytes bytes, uint64_t *number) {
    *number = 0;
    for (size_t index = 0; index < bytes.length && index < 10; index++) {
        const uint64_t bits = bytes.data[index] & 0x7f;
        // The tenth byte holds the last bit.
        if (index == 9 && bits > 1) return false;
        *number |= bits << (7 * index);
        if (bytes.data[index] < 0x80) return index + 1 == bytes.length;
    }
    return false;
}

static uint32_t hash(struct lg_bytes key) {
    uint32_t hash = 2166136261u;
    for (size_t index = 0; index < key.length; index++) hash = (hash ^ key.data[index]) * 16777619u;
    return hash ^ hash >> 15;
}

static struct lg_bytes row_of(const struct lg_column *column, uint32_t row) {
    const uint32_t start = column->offsets[row];
    return (struct lg_bytes){.data = column->data + start, .length = column->offsets[row + 1] - start};
}

// Fills `keys` with each key once, and `key_of_row`.
static void collect_keys(struct lg_numbers *numbers, const struct lg_batch *batch) {
    uint32_t slots = 16;
    while (slots < batch->rows * 2) slots *= 2;
    // Which key is in a slot, plus one.
    uint32_t *index = calloc(slots, sizeof *index);
    if (index == NULL) __builtin_trap();
    for (uint32_t row = 0; row < batch->rows; row++) {
        const struct lg_bytes key = lg_key(batch, row);
        numbers->key_of_row[row] = NO_KEY;
        if (key.is_missing) continue;
        uint32_t slot = hash(key) & (slots - 1);
        for (;; slot = (slot + 1) & (slots - 1)) {
            if (index[slot] == 0) {
                lg_append(&numbers->keys, key.data, key.length);
                lg_end_row(&numbers->keys);
                index[slot] = numbers->keys.rows;
                break;
            }
            const struct lg_bytes known = row_of(&numbers->keys, index[slot] - 1);
            if (known.length == key.length && memcmp(known.data, key.data, key.length) == 0) break;
        }
        numbers->key_of_row[row] = index[slot] - 1;
    }
    free(index);
}

static lockgate_operator_state_column_t column_of(const struct lg_column *column) {
    return (lockgate_operator_state_column_t){
        .data = {column->data, column->length},
        .offsets = {(uint8_t *)column->offsets, 4 * ((size_t)column->rows + 1)},
    };
}

bool lg_read_numbers(struct lg_call *call, struct lg_numbers *numbers, uint32_t table, const struct lg_batch *batch) {
    *numbers = (struct lg_numbers){.table = table};
    numbers->key_of_row = lg_allocate(NULL, batch->rows * sizeof(uint32_t));
    collect_keys(numbers, batch);
    const uint32_t count = numbers->keys.rows;
    numbers->numbers = calloc(count + 1, sizeof(uint64_t));
    if (numbers->numbers == NULL) __builtin_trap();
    if (count == 0) return true;
    lockgate_operator_state_column_t keys = column_of(&numbers->keys), no_user_keys = {0};
    lockgate_operator_state_entries_t entries;
    lockgate_operator_state_get_many(table, &keys, &no_user_keys, &entries);
    bool is_good = true;
    for (uint32_t key = 0; key < count && is_good; key++) {
        if (!(entries.found.ptr[key / 8] >> (key % 8) & 1)) continue;
        uint32_t ends[2];
        memcpy(ends, entries.values.offsets.ptr + 4 * (size_t)key, sizeof ends);
        const struct lg_bytes value = {.data = entries.values.data.ptr + ends[0], .length = ends[1] - ends[0]};
        is_good = lg_decode_u64(value, &numbers->numbers[key]);
    }
    lockgate_operator_state_entries_free(&entries);
    return is_good || lg_fail(call, LOCKGATE_OPERATOR_TYPES_ERROR_KIND_FATAL, "a value in state is no u64");
}

uint64_t *lg_number(struct lg_numbers *numbers, uint32_t row) {
    return &numbers->numbers[numbers->key_of_row[row]];
}

void lg_write_numbers(struct lg_numbers *numbers) {
    if (numbers->keys.rows > 0) {
        struct lg_column values = {0};
        for (uint32_t key = 0; key < numbers->keys.rows; key++) {
            uint8_t bytes[10];
            lg_append(&values, bytes, lg_encode_u64(numbers->numbers[key], bytes));
            lg_end_row(&values);
        }
        lockgate_operator_state_column_t keys = column_of(&numbers->keys), no_user_keys = {0}, written = column_of(&values);
        stream_operator_list_u8_t no_deletes = {0};
        lockgate_operator_state_write_many(numbers->table, &keys, &no_user_keys, &written, &no_deletes);
        lg_free(&values);
    }
    lg_free(&numbers->keys);
    free(numbers->numbers);
    free(numbers->key_of_row);
}

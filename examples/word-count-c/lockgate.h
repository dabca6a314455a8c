// Write a Lockgate operator in C: fill in one `lg_operator`. lockgate.c makes the exports of wit/operator.wit of it.
//
//     static bool process(struct lg_call *call, const struct lg_batch *batch) {
//         for (uint32_t row = 0; row < batch->rows; row++) {
//             lg_emit(call, 0, batch, row, lg_key(batch, row), lg_value(batch, row));
//         }
//         return true;
//     }
//
//     const struct lg_operator lg_operator = {.name = "copy", .version = "0.1.0", .process = process};
//
// What the contract offers beside this (maps, lists, timers, several inputs) can be called through wit-bindgen's
// stream_operator.h.
//
// Invariant: after a call that fails the instance is of no more use. A record is rejected before anything is emitted or
// written for it, for here nothing is undone.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stream_operator.h"

#define LG_TABLES_MAX 8
#define LG_OUTPUTS_MAX 8

// Bytes that belong to somebody else. `is_missing`: there are none, which isn't the same as empty.
struct lg_bytes {
    const uint8_t *data;
    size_t length;
    bool is_missing;
};

#define LG_MISSING ((struct lg_bytes){.is_missing = true})

// The records of a call.
struct lg_batch {
    uint32_t rows;
    const exports_lockgate_operator_operator_batch_t *columns;
};

struct lg_bytes lg_key(const struct lg_batch *batch, uint32_t row);
struct lg_bytes lg_value(const struct lg_batch *batch, uint32_t row);

// A call of the operator: why it failed, what it rejects.
struct lg_call {
    bool may_reject;
    exports_lockgate_operator_operator_op_error_t *error;
    exports_lockgate_operator_operator_list_rejection_t rejections;
    size_t rejections_room;
};

// What an operator is. What isn't needed may be left out, but for name, version and `process`.
struct lg_operator {
    const char *name, *version;
    // Names of tables with one value for each key. With any, every record has a key.
    const char *tables[LG_TABLES_MAX];
    // Names of outputs; "out" unless said.
    const char *outputs[LG_OUTPUTS_MAX];
    // `config` is a JSON object of `length` bytes. Like the others it gives `lg_fail` where it fails, else true.
    bool (*open)(struct lg_call *call, const char *config, size_t length);
    bool (*process)(struct lg_call *call, const struct lg_batch *batch);
    // The state that isn't in tables: bytes of `malloc`, and how it is handed back.
    bool (*snapshot)(struct lg_call *call, uint8_t **bytes, size_t *length);
    bool (*restore)(struct lg_call *call, const uint8_t *bytes, size_t length);
};

extern const struct lg_operator lg_operator;

// Ends the call with an error: `return lg_fail(call, LOCKGATE_OPERATOR_TYPES_ERROR_KIND_FATAL, "no such thing")`.
bool lg_fail(struct lg_call *call, lockgate_operator_types_error_kind_t kind, const char *message);

// Leaves a record out. Gives false if the job doesn't allow that; then the call ends with the error: `return false`.
bool lg_reject(struct lg_call *call, uint32_t row, const char *message);

// Memory, or the end of the instance.
void *lg_allocate(void *old, size_t size);

// A column that grows by rows.
struct lg_column {
    uint8_t *data;
    size_t length, room;
    // Little-endian as in the contract, for that is what WebAssembly is: `rows + 1` of them once there is a row.
    uint32_t *offsets;
    uint32_t rows, offsets_room;
};

void lg_append(struct lg_column *column, const void *data, size_t length);
void lg_end_row(struct lg_column *column);
void lg_clear(struct lg_column *column);
void lg_free(struct lg_column *column);

// Sends a record to an output, with the event time and the headers of row `row` of `batch`.
void lg_emit(struct lg_call *call, uint32_t port, const struct lg_batch *batch, uint32_t row, struct lg_bytes key,
             struct lg_bytes value);

// The u64 values that a batch's keys have in a table: read, changed through `lg_number`, and written again.
struct lg_numbers {
    uint32_t table;
    struct lg_column keys;
    uint64_t *numbers;
    // By row of the batch: which of the keys it has.
    uint32_t *key_of_row;
};

// False: what is stored is no u64, and the call ends with that error. Rows without a key have no number.
bool lg_read_numbers(struct lg_call *call, struct lg_numbers *numbers, uint32_t table, const struct lg_batch *batch);
uint64_t *lg_number(struct lg_numbers *numbers, uint32_t row);
void lg_write_numbers(struct lg_numbers *numbers);

// The encoding of unsigned integers in state (guest-sdk/src/encoding.rs): the length of what is written, at most 10 bytes; and
// the number that the bytes are, unless they are none.
size_t lg_encode_u64(uint64_t number, uint8_t *bytes);
bool lg_decode_u64(struct lg_bytes bytes, uint64_t *number);

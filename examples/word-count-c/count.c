// Counts the records of each key: for each one it sends the key with `key<tab>count`.

#include "lockgate.h"

#define COUNTS 0

// The number in decimal digits.
static void append_decimal(struct lg_column *line, uint64_t number) {
    char digits[20];
    size_t start = sizeof digits;
    do {
        digits[--start] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    lg_append(line, digits + start, sizeof digits - start);
}

static bool process(struct lg_call *call, const struct lg_batch *batch) {
    struct lg_numbers counts;
    if (!lg_read_numbers(call, &counts, COUNTS, batch)) return false;
    struct lg_column line = {0};
    for (uint32_t row = 0; row < batch->rows; row++) {
        const struct lg_bytes key = lg_key(batch, row);
        if (key.is_missing) {
            if (!lg_reject(call, row, "state is kept by key, and the record has no key")) return false;
            continue;
        }
        uint64_t *count = lg_number(&counts, row);
        *count += 1;
        lg_clear(&line);
        lg_append(&line, key.data, key.length);
        lg_append(&line, "\t", 1);
        append_decimal(&line, *count);
        lg_emit(call, 0, batch, row, key, (struct lg_bytes){.data = line.data, .length = line.length});
    }
    lg_free(&line);
    lg_write_numbers(&counts);
    return true;
}

const struct lg_operator lg_operator = {
    .name = "count-c",
    .version = "0.1.0",
    .tables = {"counts"},
    .process = process,
};

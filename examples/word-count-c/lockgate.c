// The exports of wit/operator.wit over one `lg_operator`, and the columns that go in and out.
//
// Invariant: what a call is given is freed before it returns, and all that it emits has been sent by then.

#include "lockgate.h"

#include <stdlib.h>
#include <string.h>

// A batch leaves when it has this many records, or this many bytes.
#define OUTPUT_ROWS_MAX 4096
#define OUTPUT_BYTES_MAX (256 << 10)
#define HEADER_NONE ((struct lg_bytes){0})

// Records on their way to one output.
struct output {
    struct lg_column keys, values, headers;
    int64_t times[OUTPUT_ROWS_MAX];
    uint8_t no_keys[OUTPUT_ROWS_MAX / 8], no_values[OUTPUT_ROWS_MAX / 8];
    bool has_nulls, has_headers;
};

static struct output *outputs[LG_OUTPUTS_MAX];
static bool may_reject;

void *lg_allocate(void *old, size_t size) {
    void *memory = realloc(old, size > 0 ? size : 1);
    if (memory == NULL) __builtin_trap();
    return memory;
}

// Columns.

void lg_append(struct lg_column *column, const void *data, size_t length) {
    if (column->length + length > column->room) {
        column->room = 2 * column->room > column->length + length ? 2 * column->room : column->length + length + 64;
        column->data = lg_allocate(column->data, column->room);
    }
    if (length > 0) memcpy(column->data + column->length, data, length);
    column->length += length;
}

void lg_end_row(struct lg_column *column) {
    if (column->rows + 2 > column->offsets_room) {
        column->offsets_room = 2 * column->offsets_room + 64;
        column->offsets = lg_allocate(column->offsets, column->offsets_room * sizeof(uint32_t));
        column->offsets[0] = 0;
    }
    column->rows++;
    column->offsets[column->rows] = (uint32_t)column->length;
}

void lg_clear(struct lg_column *column) {
    column->length = 0;
    column->rows = 0;
}

void lg_free(struct lg_column *column) {
    free(column->data);
    free(column->offsets);
    *column = (struct lg_column){0};
}

static bool bit(const uint8_t *bitmap, uint32_t index) {
    return bitmap[index / 8] >> (index % 8) & 1;
}

// Rows that come in.

static struct lg_bytes slice(const uint8_t *offsets, const uint8_t *data, uint32_t row) {
    uint32_t ends[2];
    memcpy(ends, offsets + 4 * (size_t)row, sizeof ends);
    return (struct lg_bytes){.data = data + ends[0], .length = ends[1] - ends[0]};
}

static struct lg_bytes field(const struct lg_batch *batch, const lockgate_operator_types_column_t *column, uint32_t row,
                             size_t nulls_at) {
    const stream_operator_list_u8_t *nulls = &batch->columns->nulls;
    if (nulls->len > 0 && bit(nulls->ptr + nulls_at, row)) return LG_MISSING;
    return slice(column->offsets.ptr, column->data.ptr, row);
}

struct lg_bytes lg_key(const struct lg_batch *batch, uint32_t row) {
    return field(batch, &batch->columns->keys, row, 0);
}

struct lg_bytes lg_value(const struct lg_batch *batch, uint32_t row) {
    return field(batch, &batch->columns->values, row, ((size_t)batch->rows + 7) / 8);
}

static struct lg_bytes headers(const struct lg_batch *batch, uint32_t row) {
    const uint8_t *ext = batch->columns->ext.ptr;
    return slice(ext, ext + 4 * ((size_t)batch->rows + 1), row);
}

// Rows that go out.

static lockgate_operator_types_column_t column_of(const struct lg_column *column) {
    return (lockgate_operator_types_column_t){
        .data = {column->data, column->length},
        .offsets = {(uint8_t *)column->offsets, 4 * ((size_t)column->rows + 1)},
    };
}

static void send(uint32_t port) {
    struct output *output = outputs[port];
    if (output == NULL || output->keys.rows == 0) return;
    const uint32_t rows = output->keys.rows;
    const size_t half = (rows + 7) / 8;
    uint8_t nulls[2 * sizeof output->no_keys];
    memcpy(nulls, output->no_keys, half);
    memcpy(nulls + half, output->no_values, half);
    struct lg_column ext = {0};
    if (output->has_headers) {
        lg_append(&ext, output->headers.offsets, 4 * ((size_t)rows + 1));
        lg_append(&ext, output->headers.data, output->headers.length);
    }
    lockgate_operator_output_batch_t batch = {
        .rows = rows,
        .keys = column_of(&output->keys),
        .values = column_of(&output->values),
        .timestamps = {(uint8_t *)output->times, 8 * (size_t)rows},
        .nulls = {nulls, output->has_nulls ? 2 * half : 0},
        .ext = {ext.data, ext.length},
    };
    lockgate_operator_output_emit(port, &batch);
    lg_free(&ext);
    lg_clear(&output->keys);
    lg_clear(&output->values);
    lg_clear(&output->headers);
    memset(output->no_keys, 0, sizeof output->no_keys);
    memset(output->no_values, 0, sizeof output->no_values);
    output->has_nulls = output->has_headers = false;
}

static void push(struct lg_column *column, uint8_t *nulls, bool *has_nulls, struct lg_bytes bytes) {
    if (bytes.is_missing) {
        nulls[column->rows / 8] |= (uint8_t)(1 << (column->rows % 8));
        *has_nulls = true;
    } else {
        lg_append(column, bytes.data, bytes.length);
    }
    lg_end_row(column);
}

void lg_emit(struct lg_call *call, uint32_t port, const struct lg_batch *batch, uint32_t row, struct lg_bytes key,
             struct lg_bytes value) {
    (void)call;
    if (outputs[port] == NULL) outputs[port] = memset(lg_allocate(NULL, sizeof(struct output)), 0, sizeof(struct output));
    struct output *output = outputs[port];
    const struct lg_bytes own = batch->columns->ext.len > 0 ? headers(batch, row) : HEADER_NONE;
    memcpy(&output->times[output->keys.rows], batch->columns->timestamps.ptr + 8 * (size_t)row, 8);
    push(&output->keys, output->no_keys, &output->has_nulls, key);
    push(&output->values, output->no_values, &output->has_nulls, value);
    lg_append(&output->headers, own.data, own.length);
    lg_end_row(&output->headers);
    output->has_headers |= own.length > 0;
    const size_t bytes = output->keys.length + output->values.length + output->headers.length;
    if (output->keys.rows == OUTPUT_ROWS_MAX || bytes >= OUTPUT_BYTES_MAX) send(port);
}

// Errors.

bool lg_fail(struct lg_call *call, lockgate_operator_types_error_kind_t kind, const char *message) {
    call->error->kind = kind;
    call->error->row.is_some = false;
    stream_operator_string_dup(&call->error->message, message);
    return false;
}

bool lg_reject(struct lg_call *call, uint32_t row, const char *message) {
    if (!call->may_reject) {
        lg_fail(call, LOCKGATE_OPERATOR_TYPES_ERROR_KIND_BAD_RECORD, message);
        call->error->row.is_some = true;
        call->error->row.val = row;
        return false;
    }
    if (call->rejections.len == call->rejections_room) {
        call->rejections_room = 2 * call->rejections_room + 8;
        call->rejections.ptr = lg_allocate(call->rejections.ptr, call->rejections_room * sizeof *call->rejections.ptr);
    }
    exports_lockgate_operator_operator_rejection_t *rejection = &call->rejections.ptr[call->rejections.len++];
    rejection->row = row;
    stream_operator_string_dup(&rejection->message, message);
    return true;
}

// The exports.

static size_t names(const char *const *names, size_t names_max) {
    size_t count = 0;
    while (count < names_max && names[count] != NULL) count++;
    return count;
}

void exports_lockgate_operator_operator_describe(exports_lockgate_operator_operator_descriptor_t *ret) {
    memset(ret, 0, sizeof *ret);
    stream_operator_string_dup(&ret->name, lg_operator.name);
    stream_operator_string_dup(&ret->version, lg_operator.version);
    ret->inputs.ptr = lg_allocate(NULL, sizeof *ret->inputs.ptr);
    ret->inputs.len = 1;
    ret->inputs.ptr[0].broadcast = false;
    stream_operator_string_dup(&ret->inputs.ptr[0].name, "in");
    const size_t named = names(lg_operator.outputs, LG_OUTPUTS_MAX);
    ret->outputs.len = named > 0 ? named : 1;
    ret->outputs.ptr = lg_allocate(NULL, ret->outputs.len * sizeof *ret->outputs.ptr);
    for (size_t output = 0; output < ret->outputs.len; output++) {
        stream_operator_string_dup(&ret->outputs.ptr[output], named > 0 ? lg_operator.outputs[output] : "out");
    }
    ret->tables.len = names(lg_operator.tables, LG_TABLES_MAX);
    ret->tables.ptr = ret->tables.len > 0 ? lg_allocate(NULL, ret->tables.len * sizeof *ret->tables.ptr) : NULL;
    for (size_t table = 0; table < ret->tables.len; table++) {
        stream_operator_string_dup(&ret->tables.ptr[table].name, lg_operator.tables[table]);
        ret->tables.ptr[table].kind = LOCKGATE_OPERATOR_TYPES_TABLE_KIND_VALUE;
        ret->tables.ptr[table].version = 1;
    }
    ret->redistribution = LOCKGATE_OPERATOR_TYPES_REDISTRIBUTION_SPLIT;
}

bool exports_lockgate_operator_operator_open(exports_lockgate_operator_operator_context_t *context,
                                             exports_lockgate_operator_operator_op_error_t *err) {
    struct lg_call call = {.error = err};
    may_reject = context->rejections;
    const bool is_good = lg_operator.open == NULL
        || lg_operator.open(&call, (const char *)context->config.ptr, context->config.len);
    exports_lockgate_operator_operator_context_free(context);
    return is_good;
}

bool exports_lockgate_operator_operator_restore(stream_operator_list_list_u8_t *states,
                                                exports_lockgate_operator_operator_op_error_t *err) {
    struct lg_call call = {.error = err};
    bool is_good = true;
    for (size_t state = 0; state < states->len && is_good && lg_operator.restore != NULL; state++) {
        is_good = lg_operator.restore(&call, states->ptr[state].ptr, states->ptr[state].len);
    }
    stream_operator_list_list_u8_free(states);
    return is_good;
}

bool exports_lockgate_operator_operator_process(uint32_t port, exports_lockgate_operator_operator_batch_t *rows,
                                                exports_lockgate_operator_operator_list_rejection_t *ret,
                                                exports_lockgate_operator_operator_op_error_t *err) {
    (void)port;
    struct lg_call call = {.error = err, .may_reject = may_reject};
    const struct lg_batch batch = {.rows = rows->rows, .columns = rows};
    const bool is_good = lg_operator.process(&call, &batch);
    if (is_good) {
        for (uint32_t output = 0; output < LG_OUTPUTS_MAX; output++) send(output);
        *ret = call.rejections;
    } else {
        free(call.rejections.ptr);
    }
    exports_lockgate_operator_operator_batch_free(rows);
    return is_good;
}

bool exports_lockgate_operator_operator_timers(exports_lockgate_operator_operator_clock_t clock,
                                               exports_lockgate_operator_operator_batch_t *rows,
                                               exports_lockgate_operator_operator_list_rejection_t *ret,
                                               exports_lockgate_operator_operator_op_error_t *err) {
    (void)clock, (void)ret;
    struct lg_call call = {.error = err};
    exports_lockgate_operator_operator_batch_free(rows);
    return lg_fail(&call, LOCKGATE_OPERATOR_TYPES_ERROR_KIND_FATAL, "this operator sets no timers");
}

bool exports_lockgate_operator_operator_watermark(int64_t timestamp,
                                                  exports_lockgate_operator_operator_op_error_t *err) {
    (void)timestamp, (void)err;
    return true;
}

bool exports_lockgate_operator_operator_snapshot(uint64_t epoch, stream_operator_list_u8_t *ret,
                                                 exports_lockgate_operator_operator_op_error_t *err) {
    (void)epoch;
    struct lg_call call = {.error = err};
    *ret = (stream_operator_list_u8_t){0};
    return lg_operator.snapshot == NULL || lg_operator.snapshot(&call, &ret->ptr, &ret->len);
}

// Nothing is kept from one call to the next but the buffers of the outputs.
bool exports_lockgate_operator_operator_trim(uint64_t target_bytes, exports_lockgate_operator_operator_op_error_t *err) {
    (void)target_bytes, (void)err;
    for (uint32_t port = 0; port < LG_OUTPUTS_MAX; port++) {
        if (outputs[port] == NULL) continue;
        lg_free(&outputs[port]->keys);
        lg_free(&outputs[port]->values);
        lg_free(&outputs[port]->headers);
        free(outputs[port]);
        outputs[port] = NULL;
    }
    return true;
}

bool exports_lockgate_operator_operator_close(exports_lockgate_operator_operator_op_error_t *err) {
    (void)err;
    return true;
}

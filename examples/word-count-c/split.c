// Splits values into words: sends each word as a key, without a value.
//
// A word is a run of letters, digits and apostrophes (not at its ends). Bytes that are not UTF-8 separate words, like any other
// character. Configuration: `lowercase` (true unless said).

#include <string.h>

#include "letters.h"
#include "lockgate.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define NO_CHARACTER UINT32_MAX

static bool lowercase = true;

// The character at the beginning of a text that isn't empty, and how many bytes it has; `NO_CHARACTER` for a byte that
// begins none.
static uint32_t character(const uint8_t *text, size_t length, size_t *bytes) {
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t first = text[0];
    const size_t wanted = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 0;
    *bytes = 1;
    if (wanted == 1) return first;
    if (wanted == 0 || wanted > length) return NO_CHARACTER;
    uint32_t code = first & (0x7f >> wanted);
    for (size_t index = 1; index < wanted; index++) {
        if ((text[index] & 0xc0) != 0x80) return NO_CHARACTER;
        code = code << 6 | (text[index] & 0x3f);
    }
    const bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if (code < smallest[wanted] || code > 0x10ffff || is_surrogate) return NO_CHARACTER;
    *bytes = wanted;
    return code;
}

static void append_character(struct lg_column *word, uint32_t code) {
    uint8_t bytes[4];
    size_t length = 0;
    if (code < 0x80) {
        bytes[length++] = (uint8_t)code;
    } else {
        const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        bytes[length++] = (uint8_t)((0xf0 << (3 - more) & 0xff) | code >> (6 * more));
        for (int index = more - 1; index >= 0; index--) bytes[length++] = (uint8_t)(0x80 | (code >> (6 * index) & 0x3f));
    }
    lg_append(word, bytes, length);
}

static bool is_letter(uint32_t code) {
    if (code < 0x80) return (code >= '0' && code <= '9') || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
    size_t low = 0, high = COUNT(letters);
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (letters[middle].last < code) low = middle + 1;
        else high = middle;
    }
    return low < COUNT(letters) && letters[low].first <= code;
}

static bool is_apostrophe(uint32_t code) {
    return code == '\'' || code == 0x2019;
}

static void append_letter(struct lg_column *word, uint32_t code) {
    if (lowercase && code == 0x130) {
        // The one letter that becomes two: i, and the dot above.
        append_character(word, 'i');
        code = 0x307;
    } else if (lowercase) {
        size_t low = 0, high = COUNT(capitals);
        while (low < high) {
            const size_t middle = (low + high) / 2;
            if (capitals[middle].last < code) low = middle + 1;
            else high = middle;
        }
        const bool is_capital = low < COUNT(capitals) && capitals[low].first <= code
            && (code - capitals[low].first) % capitals[low].step == 0;
        if (is_capital) code += (uint32_t)capitals[low].delta;
    }
    append_character(word, code);
}

// Sends what is in `word` up to its last letter, if there is one.
static void end_word(struct lg_call *call, const struct lg_batch *batch, uint32_t row, struct lg_column *word, size_t length) {
    if (length > 0) lg_emit(call, 0, batch, row, (struct lg_bytes){.data = word->data, .length = length}, LG_MISSING);
    lg_clear(word);
}

static bool process(struct lg_call *call, const struct lg_batch *batch) {
    struct lg_column word = {0};
    for (uint32_t row = 0; row < batch->rows; row++) {
        const struct lg_bytes text = lg_value(batch, row);
        // How long the word is up to its last letter.
        size_t letters_end = 0;
        for (size_t at = 0, bytes = 0; at < text.length; at += bytes) {
            const uint32_t code = character(text.data + at, text.length - at, &bytes);
            if (code != NO_CHARACTER && is_letter(code)) {
                append_letter(&word, code);
                letters_end = word.length;
            } else if (code != NO_CHARACTER && is_apostrophe(code)) {
                if (letters_end > 0) append_character(&word, code);
            } else {
                end_word(call, batch, row, &word, letters_end);
                letters_end = 0;
            }
        }
        end_word(call, batch, row, &word, letters_end);
    }
    lg_free(&word);
    return true;
}

// The configuration is `{}` or `{"lowercase": true}`: no library for JSON is needed for that.
struct text {
    const char *at, *end;
};

static bool skip(struct text *text, const char *words) {
    while (text->at < text->end && strchr(" \t\r\n", *text->at) != NULL) text->at++;
    const size_t length = strlen(words);
    if ((size_t)(text->end - text->at) < length || memcmp(text->at, words, length) != 0) return false;
    text->at += length;
    return true;
}

static bool open(struct lg_call *call, const char *config, size_t length) {
    struct text text = {config, config + length};
    bool is_good = skip(&text, "{");
    if (is_good && !skip(&text, "}")) {
        is_good = skip(&text, "\"lowercase\"") && skip(&text, ":");
        lowercase = is_good && skip(&text, "true");
        is_good = is_good && (lowercase || skip(&text, "false")) && skip(&text, "}");
    }
    if (is_good && skip(&text, "") && text.at == text.end) return true;
    return lg_fail(call, LOCKGATE_OPERATOR_TYPES_ERROR_KIND_FATAL,
                   "the only setting is `lowercase`, and it is true or false: unknown field or another type");
}

const struct lg_operator lg_operator = {
    .name = "split-c",
    .version = "0.1.0",
    .open = open,
    .process = process,
};

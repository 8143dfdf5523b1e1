/* Fuzzes the native scanner (libFuzzer, AddressSanitizer, UndefinedBehaviorSanitizer).
 *
 * The first two bytes of an input say where the text is cut in two and which tables are wanted. The same text is
 * scanned whole and in two pieces: both must give the same rows. Every piece lies in memory of exactly its size, so
 * that a read beyond its end is seen. What the scanner does not take is skipped up to the next brace, as a caller
 * that decodes one entry would.
 */
#include "../traceanalyzer/ingest/_scan.c"

#include <stdio.h>

enum { KERNELS, OPS, SLICES, FLOWS, COUNTERS, COLLECTIVES, FUZZED_TABLES };

#define CHECK(condition)                                            \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "failed: %s (line %d)\n", #condition, __LINE__); \
            abort();                                                \
        }                                                           \
    } while (0)

static int added_slot(scanner *s, int kind, int narrow, const char *key, const char *other)
{
    int slot = scan_add_slot(s, kind, narrow);
    CHECK(slot >= 0);
    CHECK(!key || scan_add_key(s, slot, 0, key, strlen(key)) == 0);
    CHECK(!other || scan_add_key(s, slot, 1, other, strlen(other)) == 0);
    return slot;
}

static void add_column(scanner *s, int table, int type, int slot, int part)
{
    CHECK(scan_add_column(s, table, type, slot, part) == 0);
    CHECK(scan_use_slot(s, table, slot) == 0);
}

static void add_category(scanner *s, const char *name, int table, int kind)
{
    CHECK(scan_add_category(s, name, name ? strlen(name) : 0, table, kind) >= 0);
}

static void add_columns(scanner *s)
{
    int correlation = added_slot(s, INTEGER, 0, "correlation", "correlationId");
    int collective = added_slot(s, TEXT, 0, "Collective name", NULL);
    int grid = added_slot(s, DIM3, 0, "grid", NULL);
    int series;
    add_column(s, KERNELS, WIDE, correlation, 0);
    add_column(s, KERNELS, CODE, added_slot(s, LABEL, 0, "stream", "streamId"), 0);
    for (int part = 0; part < 3; part++) {
        add_column(s, KERNELS, NARROW, grid, part);
    }
    add_column(s, KERNELS, NARROW, added_slot(s, INTEGER, 1, "registers", NULL), 0);
    add_column(s, KERNELS, DOUBLE, added_slot(s, NUMBER, 0, "blocks per SM", NULL), 0);
    add_column(s, OPS, CODE, added_slot(s, JSON, 0, "Input Dims", "Input dims"), 0);
    add_column(s, COLLECTIVES, CODE, collective, 0);
    add_column(s, COLLECTIVES, WIDE, correlation, 0);
    scan_use_slot(s, KERNELS, collective);
    scan_use_slot(s, OPS, collective);
    scan_use_slot(s, OPS, correlation);
    series = added_slot(s, NUMBER, 0, "Bytes", NULL);
    scan_use_slot(s, COUNTERS, series);
    scan_use_slot(s, COUNTERS, added_slot(s, NUMBER, 0, "Total Allocated", NULL));
    scan_set_role(s, FIRST_SERIES_SLOT, series);
    scan_set_role(s, SERIES_COUNT, 2);
    scan_set_role(s, DEVICE_TYPE_SLOT, added_slot(s, INTEGER, 0, "Device Type", NULL));
    scan_set_role(s, DEVICE_ID_SLOT, added_slot(s, INTEGER, 0, "Device Id", NULL));
    scan_use_slot(s, COUNTERS, s->roles[DEVICE_TYPE_SLOT]);
    scan_use_slot(s, COUNTERS, s->roles[DEVICE_ID_SLOT]);
    scan_set_role(s, COLLECTIVE_SLOT, collective);
    add_column(s, SLICES, WIDE, added_slot(s, INTEGER, 0, NULL, NULL), 0);
    add_column(s, FLOWS, WIDE, added_slot(s, INTEGER, 0, NULL, NULL), 0);
    add_column(s, COUNTERS, DOUBLE, added_slot(s, NUMBER, 0, NULL, NULL), 0);
}

static scanner *new_scanner(unsigned wanted)
{
    scanner *s = scan_new();
    CHECK(s != NULL);
    for (int table = 0; table < FUZZED_TABLES; table++) {
        CHECK(scan_add_table(s, wanted >> table & 1, table == KERNELS ? 1 : table == OPS ? 0 : -1) == table);
    }
    scan_set_role(s, SLICE_TABLE, SLICES);
    scan_set_role(s, FLOW_TABLE, FLOWS);
    scan_set_role(s, MEMORY_TABLE, COUNTERS);
    scan_set_role(s, COLLECTIVE_TABLE, COLLECTIVES);
    add_columns(s);
    CHECK(scan_add_phase(s, 'X', SPAN, 0) == 0);
    CHECK(scan_add_phase(s, 's', FLOW, 0) == 0);
    CHECK(scan_add_phase(s, 'f', FLOW, 2) == 0);
    CHECK(scan_add_phase(s, 'i', INSTANT, 0) == 0);
    add_category(s, NULL, SLICES, 0);
    add_category(s, "kernel", KERNELS, 0);
    add_category(s, "gpu_memcpy", KERNELS, 1);
    add_category(s, "cpu_op", OPS, 0);
    add_category(s, "ac2g", SLICES, 0);
    add_category(s, "cpu_instant_event", SLICES, 0);
    return s;
}

/* Scan a text that ends where its memory ends. Gives how much of it is done with: all, unless more may follow. */
static size_t scan_text(scanner *s, const uint8_t *data, size_t length, int final)
{
    uint8_t *copy = malloc(length ? length : 1);
    size_t done = 0;
    CHECK(copy != NULL);
    memcpy(copy, data, length);
    for (;;) {
        int64_t taken = scan_take(s, (const char *)copy + done, length - done);
        const uint8_t *brace;
        CHECK(taken >= 0 && (size_t)taken <= length - done);
        done += (size_t)taken;
        if (!final || done == length) {
            break;
        }
        brace = memchr(copy + done + 1, '{', length - done - 1);
        if (!brace) {
            break;
        }
        done = (size_t)(brace - copy);
    }
    free(copy);
    return done;
}

static void compare_column(const scanner *a, const scanner *b, int table, int which)
{
    size_t rows = (size_t)scan_rows(a)[table];
    int added = which - FIXED_COLUMNS;
    size_t size = which < FIXED_COLUMNS ? FIXED_SIZES[which] : COLUMN_SIZES[a->tables[table].columns[added].type];
    uint8_t *ours = malloc(rows * size + 1), *theirs = malloc(rows * size + 1);
    CHECK(ours && theirs);
    CHECK(scan_copy(a, table, which, ours, NULL) == scan_copy(b, table, which, theirs, NULL));
    int is_code = which < FIXED_COLUMNS ? which >= CATEGORY && which <= TID : a->tables[table].columns[added].type == CODE;
    for (size_t row = 0; is_code && row < rows; row++) {
        uint32_t code;
        memcpy(&code, ours + row * size, 4);
        int is_json = table == OPS && which == FIXED_COLUMNS, is_device = table == COUNTERS && which == NAME;
        CHECK(code <= a->dictionaries[is_json ? VALUES : is_device ? DEVICES : WRITTEN].count);
    }
    /* codes differ where one of the two met text of an entry that it did not take, so only numbers are compared */
    CHECK(is_code || !memcmp(ours, theirs, rows * size));
    free(ours);
    free(theirs);
}

static void compare(const scanner *a, const scanner *b)
{
    for (int table = 0; table < FUZZED_TABLES; table++) {
        CHECK(scan_rows(a)[table] == scan_rows(b)[table]);
        for (int which = 0; which < FIXED_COLUMNS + a->tables[table].column_count; which++) {
            compare_column(a, b, table, which);
        }
    }
    for (uint32_t i = 0; i <= a->category_names.count; i++) {
        CHECK(!memcmp(scan_counts(a, (int)i), scan_counts(b, (int)i), sizeof a->categories[i].counts));
    }
    CHECK(a->args_length == b->args_length && (!a->args_length || !memcmp(a->args_text, b->args_text, a->args_length)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    size_t cut, done;
    scanner *whole, *pieces;
    if (length < 2) {
        return 0;
    }
    whole = new_scanner(data[1] ^ 0x3Fu);
    pieces = new_scanner(data[1] ^ 0x3Fu);
    cut = (length - 2) * data[0] / 255;
    data += 2;
    length -= 2;
    done = scan_text(pieces, data, cut, 0);
    scan_text(pieces, data + done, length - done, 1);
    done = scan_text(whole, data, length, 0);
    scan_text(whole, data + done, length - done, 1);
    compare(whole, pieces);
    scan_clear(whole, SLICES);
    scan_free(whole);
    scan_free(pieces);
    return 0;
}

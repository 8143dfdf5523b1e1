/* The scanner's state: what the caller describes (tables, columns, slots, keys, categories), and the rows. */
#ifndef TRACEANALYZER_SCAN_STATE_H
#define TRACEANALYZER_SCAN_STATE_H

#include "_scan_dictionary.h"

enum {
    GUESS_BYTES = 48, /* text from one value to the next that is compared at once */
    LABEL_BYTES = 16, /* the same of a label */
    MOST_TABLES = 16,
    MOST_COLUMNS = 48,
    MOST_SLOTS = 64,
    MOST_KEYS = 64,
    MOST_OTHER_KEYS = 128,
    KEY_PLACES = 512, /* of a hash table for all keys */
    MOST_PHASES = 8,
    MOST_CATEGORIES = 1024
};

enum slot_kind { INTEGER, NUMBER, LABEL, TEXT, JSON, DIM3 };
enum column_type { CODE, WIDE, NARROW, DOUBLE };
enum dictionaries { WRITTEN, VALUES, DEVICES, DICTIONARIES };
enum fixed_column { KIND, CATEGORY, NAME, PID, TID, TIME, DURATION, FIXED_COLUMNS };
/* What the events of a phase are: complete ones, ends of arrows, instants. */
enum shape { SPAN, FLOW, INSTANT };
/* Numbers of the tables and slots that are not ordinary. */
enum role {
    SLICE_TABLE,
    FLOW_TABLE,
    MEMORY_TABLE,
    COLLECTIVE_TABLE,
    COLLECTIVE_SLOT, /* has a value: the event is a collective */
    DEVICE_TYPE_SLOT,
    DEVICE_ID_SLOT,
    FIRST_SERIES_SLOT, /* of SERIES_COUNT in a row: the figures of a memory event */
    SERIES_COUNT,
    ROLES
};

static const size_t FIXED_SIZES[FIXED_COLUMNS] = {1, 4, 4, 4, 4, 8, 8};
static const size_t COLUMN_SIZES[] = {4, 8, 4, 8};

/* The label met last at some place, as written, quotes included: the next one mostly equals it. */
typedef struct {
    unsigned char bytes[LABEL_BYTES];
    uint32_t length; /* 0: none yet */
    uint32_t code;
} label_cache;

/* A value of `args` that columns are filled from. */
typedef struct {
    int kind;
    int narrow; /* a column of 32 bits is filled from it */
    label_cache last;
} slot;

typedef union {
    int64_t integer;
    double number;
    int32_t parts[3];
    uint32_t code;
} value;

typedef struct {
    int type, slot, part;
    void *data;
} column;

typedef struct {
    int wanted;
    int collective_kind; /* kind of its rows in the table of collectives, -1: never there */
    uint64_t slots;      /* bit i: slot i fills a column of this table or of collectives */
    size_t room;
    void *fixed[FIXED_COLUMNS];
    column columns[MOST_COLUMNS];
    int column_count;
} table;

/* The text between two values, as it stood the last time at this place of an event. */
typedef struct {
    unsigned char bytes[GUESS_BYTES];
    uint8_t length, key;
    uint8_t unused[14];
} guess;

/* Keys of an event. OPENING and CLOSING stand for the braces. */
enum { PH, CAT, NAME_KEY, PID_KEY, TID_KEY, TS, DUR, ID, ARGS, OTHER, OPENING, CLOSING, KEYS_ROOM = 16 };
/* Keys of args: those of slots, then others as they are met, then these. */
enum { ARG_OTHER = 253, ARG_OPENING, ARG_CLOSING, ARG_KEYS };

typedef struct {
    int table, kind;
    uint32_t code;
    uint64_t counts[MOST_PHASES];
    label_cache pid, tid;
    guess *guesses; /* [ARG_KEYS] */
} category;

typedef struct {
    unsigned char *bytes; /* NULL: free */
    size_t length;
    uint8_t id, slot, rank;
} arg_key;

typedef struct {
    int failed; /* no memory was left */
    dictionary dictionaries[DICTIONARIES];
    unsigned char *canonical; /* for every text of VALUES from the first on: whether it is spelled canonically */
    size_t canonical_room;
    table tables[MOST_TABLES];
    uint64_t rows[MOST_TABLES];
    int table_count;
    int roles[ROLES];
    slot slots[MOST_SLOTS];
    int slot_count;
    arg_key keys[KEY_PLACES]; /* hash table */
    const arg_key *by_id[MOST_KEYS];
    int key_count, other_keys;
    uint8_t phase_of[256]; /* letter -> number, from 1 on */
    uint8_t phase_kind[MOST_PHASES + 1];
    enum shape phase_shape[MOST_PHASES + 1];
    int phase_count;
    dictionary category_names;
    category categories[MOST_CATEGORIES]; /* [0]: events without one */
    guess guesses[MOST_PHASES + 1][KEYS_ROOM];
    unsigned char *args_text;
    size_t args_length, args_room;
    label_cache pids[MOST_PHASES + 1], tids[MOST_PHASES + 1]; /* by phase, for events whose category comes later */
    value values[MOST_SLOTS];
    uint8_t ranks[MOST_SLOTS];
    uint64_t present;
} scanner;

static uint32_t key_hash(span key)
{
    unsigned char first[4] = {0}, last[4] = {0};
    size_t n = key.length < 4 ? key.length : 4;
    uint32_t a, b;
    memcpy(first, key.at, n);
    memcpy(last, key.at + key.length - n, n);
    memcpy(&a, first, 4);
    memcpy(&b, last, 4);
    a = (a ^ (uint32_t)key.length * 0x9E3779B1u) * 0x85EBCA77u;
    return ((a ^ a >> 15 ^ b) * 0xC2B2AE3Du >> 16) % KEY_PLACES;
}

/* The entry of a key of args, or the free one where it belongs. */
static arg_key *find_key(scanner *s, span key)
{
    uint32_t at = key_hash(key);
    while (s->keys[at].bytes &&
           (s->keys[at].length != key.length || memcmp(s->keys[at].bytes, key.at, key.length) != 0)) {
        at = (at + 1) % KEY_PLACES;
    }
    return &s->keys[at];
}

static int keep_key(arg_key *entry, span key, int id)
{
    entry->bytes = malloc(key.length + 1);
    if (!entry->bytes) {
        return 0;
    }
    memcpy(entry->bytes, key.at, key.length);
    entry->length = key.length;
    entry->id = (uint8_t)id;
    return 1;
}

/* The number of a key of args. Keys of no slot get one too, for the guesses, as long as there are any. */
static int arg_key_of(scanner *s, span key)
{
    arg_key *entry = find_key(s, key);
    if (!entry->bytes) {
        if (s->other_keys >= MOST_OTHER_KEYS || key.length > GUESS_BYTES ||
            !keep_key(entry, key, MOST_KEYS + s->other_keys)) {
            return ARG_OTHER;
        }
        s->other_keys++;
    }
    return entry->id;
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

static size_t rows_of(const scanner *s, const table *t)
{
    return (size_t)s->rows[t - s->tables];
}

static int has_room(scanner *s, table *t, size_t rows)
{
    size_t need = rows_of(s, t) + rows;
    if (LIKELY(need <= t->room)) {
        return 1;
    }
    for (int i = 0; i < FIXED_COLUMNS; i++) {
        size_t room = t->room;
        if (!grown(&t->fixed[i], &room, need, FIXED_SIZES[i])) {
            s->failed = 1;
            return 0;
        }
    }
    for (int i = 0; i < t->column_count; i++) {
        size_t room = t->room;
        if (!grown(&t->columns[i].data, &room, need, COLUMN_SIZES[t->columns[i].type])) {
            s->failed = 1;
            return 0;
        }
    }
    while (t->room < need) {
        t->room = t->room ? t->room * 2 : 64;
    }
    return 1;
}

static void put_column(const scanner *s, const column *c, size_t row)
{
    int present = (int)(s->present >> c->slot & 1);
    const value *from = &s->values[c->slot];
    switch (c->type) {
    case CODE:
        ((uint32_t *)c->data)[row] = present ? from->code : 0;
        break;
    case WIDE:
        ((int64_t *)c->data)[row] = present ? from->integer : INT64_MIN;
        break;
    case DOUBLE:
        ((double *)c->data)[row] = present ? from->number : NAN;
        break;
    default:
        ((int32_t *)c->data)[row] = !present                             ? INT32_MIN
                                    : s->slots[c->slot].kind == DIM3     ? from->parts[c->part]
                                                                         : (int32_t)from->integer;
    }
}

typedef struct {
    uint8_t kind;
    uint32_t category, name, pid, tid;
    int64_t time, duration;
} row_head;

/* A row of a table that has room for it. */
static void put_row(scanner *s, table *t, const row_head *head)
{
    size_t row = rows_of(s, t);
    ((uint8_t *)t->fixed[KIND])[row] = head->kind;
    ((uint32_t *)t->fixed[CATEGORY])[row] = head->category;
    ((uint32_t *)t->fixed[NAME])[row] = head->name;
    ((uint32_t *)t->fixed[PID])[row] = head->pid;
    ((uint32_t *)t->fixed[TID])[row] = head->tid;
    ((int64_t *)t->fixed[TIME])[row] = head->time;
    ((int64_t *)t->fixed[DURATION])[row] = head->duration;
    for (int i = 0; i < t->column_count; i++) {
        put_column(s, &t->columns[i], row);
    }
    s->rows[t - s->tables] = row + 1;
}

#endif

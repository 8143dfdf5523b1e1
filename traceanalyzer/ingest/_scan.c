/* The native scanner: takes ordinary entries of a trace's event array from JSON text straight into columns.
 *
 * It never judges. Whatever is not plainly what Kineto writes (damage, odd types, escapes in keys, numbers beyond
 * 18 digits, ...) is left where it stands, and the caller decodes that one entry in Python. So NULL stands both for
 * text that ends too early and for text that is not taken, and neither leaves a row behind.
 *
 * Plain C99 with no part of Python in it: loaded with ctypes, one scanner a file, no globals that change.
 * Every read lies in [p, end). Recursion is nowhere; nesting has a limit.
 */
#include "_scan_canonical.h"
#include "_scan_dictionary.h"
#include "_scan_json.h"
#include "_scan_state.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

/* A checksum of these sources, given by the build; a library that was built from other sources is not used. */
#ifndef SCAN_SOURCES
#define SCAN_SOURCES 0u
#endif

/* ---- one event ------------------------------------------------------------------------------------------------ */

/* What was found to be odd; it matters only where the event's table wants it. */
enum { ODD_NAME = 1, ODD_PID = 2, ODD_TID = 4, ODD_TS = 8, ODD_DUR = 16, ODD_ID = 32, ODD_ARGS = 64 };

/* A label of an event; no cache: it is null or missing. */
typedef struct {
    span written;
    label_cache *cache;
} label;

typedef struct {
    int phase;
    int category; /* 0: none given */
    unsigned seen, odd;
    span name; /* `at` is NULL: null or missing */
    uint32_t name_code; /* 0: not looked up yet */
    uint32_t *recent_name;
    label pid, tid;
    int64_t time, duration, id;
    int has_id;
    text args;     /* NULL: missing */
    text args_end;
    int args_read; /* whether the slots hold its args */
} event;

#if defined(__SSE2__)
/* Bit i is set where byte i of 16 differs. */
static inline unsigned differing16(const unsigned char *a, text b)
{
    __m128i same = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)a), _mm_loadu_si128((const __m128i *)b));
    return (unsigned)_mm_movemask_epi8(same) ^ 0xFFFFu;
}
#endif

/* Whether the text up to the next value is the guessed one. */
static inline int guessed(const guess *g, text p, text end)
{
    if (!(g->length && end - p > GUESS_BYTES)) {
        return 0;
    }
#if defined(__SSE2__)
    uint64_t differing = (uint64_t)(differing16(g->bytes, p) | differing16(g->bytes + 16, p + 16) << 16);
    if (g->length > 32) {
        differing |= (uint64_t)differing16(g->bytes + 32, p + 32) << 32;
    }
    return !(differing << (64 - g->length));
#else
    return !memcmp(g->bytes, p, g->length);
#endif
}

/* At the value behind a guessed text: there may be more space before it than there was the last time. */
static inline text at_value(text p, text end)
{
    if (LIKELY(*p > ' ')) {
        return p;
    }
    p = skip_space(p, end);
    return p < end ? p : NULL;
}

/* Whether the label at `p` is the one met last. */
static inline int repeated(const label_cache *last, text p, text end)
{
    if (!last->length || end - p <= LABEL_BYTES) {
        return 0;
    }
#if defined(__SSE2__)
    if (differing16(last->bytes, p) << (32 - last->length)) {
        return 0;
    }
#else
    if (memcmp(last->bytes, p, last->length) != 0) {
        return 0;
    }
#endif
    p += last->length;
    return *p == ',' || *p == '}' || *p == ' ' || *p == '\n';
}

static void remember(guess *g, text from, text to, int key)
{
    size_t length = (size_t)(to - from);
    if (length <= GUESS_BYTES) {
        memcpy(g->bytes, from, length);
        g->length = (uint8_t)length;
        g->key = (uint8_t)key;
    }
}

/* From behind a value (or an opening brace, if `first`) to the next value; or behind the closing brace, with no key.
   Keys with escapes are not taken: two spellings of a key are one key. */
static text next_value(text p, text end, int first, span *key)
{
    int escapes = 0;
    text closing;
    key->at = NULL;
    p = skip_space(p, end);
    if (p < end && *p == '}') {
        return p + 1;
    }
    if (!first) {
        if (p >= end || *p != ',') {
            return NULL;
        }
        p = skip_space(p + 1, end);
    }
    if (p >= end || *p != '"' || !(closing = string_end(p + 1, end, &escapes)) || escapes) {
        return NULL;
    }
    key->at = p + 1;
    key->length = (size_t)(closing - p - 1);
    p = skip_space(closing + 1, end);
    if (p >= end || *p != ':') {
        return NULL;
    }
    p = skip_space(p + 1, end);
    return p < end ? p : NULL;
}

static int event_key_of(span key)
{
    static const char NAMES[ARGS + 1][5] = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"};
    for (int i = 0; i <= ARGS; i++) {
        if (strlen(NAMES[i]) == key.length && !memcmp(NAMES[i], key.at, key.length)) {
            return i;
        }
    }
    return OTHER;
}

/* A string or an integer as a label; null is a label that is missing. */
static text read_label(text p, text end, span *label)
{
    text q;
    if (*p == '"') {
        int escapes = 0;
        q = string_end(p + 1, end, &escapes);
        label->at = p + 1;
        label->length = q ? (size_t)(q - p - 1) : 0;
        return q ? q + 1 : NULL;
    }
    if (*p == 'n') {
        label->at = NULL;
        return skip_word(p, end);
    }
    int64_t number;
    q = read_integer(p, end, &number);
    label->at = p;
    label->length = q ? (size_t)(q - p) : 0;
    return q && !(*p == '-' && number == 0) ? q : NULL;
}

/* The code of a text, 0 for none. */
static uint32_t written_code(scanner *s, span word)
{
    uint32_t code = word.at ? code_of(&s->dictionaries[WRITTEN], word) : 0;
    s->failed |= word.at && !code;
    return code;
}

/* The code of a label, which becomes the one met last. `written` has its quotes. */
static uint32_t label_code(scanner *s, label_cache *last, span written)
{
    size_t quote = *written.at == '"';
    span word;
    word.at = written.at + quote;
    word.length = written.length - 2 * quote;
    last->code = written_code(s, word);
    last->length = 0;
    if (last->code && written.length <= LABEL_BYTES) {
        memcpy(last->bytes, written.at, written.length);
        last->length = (uint32_t)written.length;
    }
    return last->code;
}

/* A label of an event: read on now, looked up when it is wanted. */
static text read_event_label(label *into, label_cache *last, text p, text end)
{
    span word;
    text q;
    into->written.at = p;
    into->cache = last;
    if (LIKELY(repeated(last, p, end))) {
        into->written.length = last->length;
        return p + last->length;
    }
    last->length = 0;
    if ((q = read_label(p, end, &word))) {
        into->written.length = (size_t)(q - p);
        into->cache = word.at ? last : NULL;
    }
    return q;
}

static uint32_t event_label_code(scanner *s, const label *of)
{
    if (!of->cache) {
        return 0;
    }
    return of->cache->length ? of->cache->code : label_code(s, of->cache, of->written);
}

static text read_parts(text p, text end, int32_t parts[3])
{
    for (int i = 0; i < 3; i++) {
        int64_t number;
        p = skip_space(p, end);
        if (p >= end || *p != (i ? ',' : '[')) {
            return NULL;
        }
        p = skip_space(p + 1, end);
        if (!(p = read_integer(p, end, &number)) || number > INT32_MAX || number <= INT32_MIN) {
            return NULL;
        }
        parts[i] = (int32_t)number;
    }
    p = skip_space(p, end);
    return p < end && *p == ']' ? p + 1 : NULL;
}

/* The code of a JSON value. */
static uint32_t value_code(scanner *s, span word)
{
    dictionary *d = &s->dictionaries[VALUES];
    uint32_t known = d->count, code = code_of(d, word);
    if (code > known) {
        s->failed |= !grown((void **)&s->canonical, &s->canonical_room, code, 1);
        if (!s->failed) {
            s->canonical[code - 1] = (unsigned char)is_canonical(word.at, word.at + word.length);
        }
    }
    s->failed |= !code;
    return code;
}

/* Behind a string whose code is wanted at once. */
static text read_string(scanner *s, uint32_t *code, text p, text end)
{
    dictionary *d = &s->dictionaries[WRITTEN];
    span word;
    text q = read_plain_string(p, end, &word);
    if (LIKELY(q != NULL)) {
        uint32_t *recent = recent_word(d, word);
        if (!has_code(d, *recent, word)) {
            *recent = written_code(s, word);
        }
        *code = *recent;
        return q;
    }
    if ((q = skip_string(p, end))) {
        word.length = (size_t)(q - p) - 2;
        *code = written_code(s, word);
    }
    return q;
}

/* Behind any JSON value, whose code is wanted at once. */
static text read_json(scanner *s, uint32_t *code, text p, text end)
{
    dictionary *d = &s->dictionaries[VALUES];
    uint32_t *recent = end - p > RECENT_BYTES ? recent_place(d, p, 0) : NULL;
    size_t length = recent ? begins_with(d, *recent, p, end) : 0;
    span word;
    text q;
    if (LIKELY(length && (*p == '[' || *p == '{' || *p == '"'))) {
        *code = *recent;
        return p + length;
    }
    if (!(q = skip_value(p, end))) {
        return NULL;
    }
    word.at = p;
    word.length = (size_t)(q - p);
    *code = value_code(s, word);
    if (recent) {
        *recent = *code;
    }
    return q;
}

/* The value of a slot; NULL where it is of another type. */
static text read_slot(scanner *s, slot *of, value *into, text p, text end)
{
    span word, label;
    switch (of->kind) {
    case INTEGER:
        p = read_integer(p, end, &into->integer);
        return p && of->narrow && (into->integer > INT32_MAX || into->integer <= INT32_MIN) ? NULL : p;
    case NUMBER:
        return read_double(p, end, &into->number);
    case LABEL:
        if (LIKELY(repeated(&of->last, p, end))) {
            into->code = of->last.code;
            return p + of->last.length;
        }
        word.at = p;
        if ((p = read_label(p, end, &label))) {
            word.length = (size_t)(p - word.at);
            into->code = label_code(s, &of->last, word);
        }
        return p;
    case TEXT:
        return *p == '"' ? read_string(s, &into->code, p, end) : NULL;
    case JSON:
        return read_json(s, &into->code, p, end);
    default:
        return read_parts(p, end, into->parts);
    }
}

/* One value of args, for the slot of its key. */
static text read_arg(scanner *s, const arg_key *key, text p, text end, unsigned *odd)
{
    uint64_t bit = (uint64_t)1 << key->slot;
    text q;
    if (*p == 'n' || (s->present & bit && s->ranks[key->slot] < key->rank)) {
        return skip_value(p, end); /* null counts as missing; another key of the slot goes before this one */
    }
    s->present |= bit;
    s->ranks[key->slot] = key->rank;
    if ((q = read_slot(s, &s->slots[key->slot], &s->values[key->slot], p, end))) {
        return q;
    }
    *odd |= ODD_ARGS;
    return skip_value(p, end);
}

/* The args of an event, into the slots of its table. */
static text read_args(scanner *s, category *c, uint64_t slots, text p, text end, unsigned *odd)
{
    uint64_t seen = 0;
    int previous = ARG_OPENING;
    if (*p != '{') {
        *odd |= ODD_ARGS;
        return skip_value(p, end);
    }
    if (!c->guesses && !(c->guesses = calloc(ARG_KEYS, sizeof *c->guesses))) {
        s->failed = 1;
        return NULL;
    }
    s->present = 0;
    p++;
    for (;;) {
        guess *g = &c->guesses[previous];
        if (LIKELY(guessed(g, p, end))) {
            p += g->length;
            previous = g->key;
        } else {
            span name;
            text from = p;
            if (!(p = next_value(p, end, previous == ARG_OPENING, &name))) {
                return NULL;
            }
            previous = name.at ? arg_key_of(s, name) : ARG_CLOSING;
            remember(g, from, p, previous);
        }
        if (previous == ARG_CLOSING) {
            return p;
        }
        if (!(p = at_value(p, end))) {
            return NULL;
        }
        if (previous < MOST_KEYS && slots >> s->by_id[previous]->slot & 1) {
            if (seen >> previous & 1) {
                return NULL;
            }
            seen |= (uint64_t)1 << previous;
            p = read_arg(s, s->by_id[previous], p, end, odd);
        } else {
            p = skip_value(p, end);
        }
        if (!p) {
            return NULL;
        }
    }
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

static int seen_all(const event *e, unsigned keys)
{
    return (e->seen & keys) == keys;
}

static row_head head_of(scanner *s, const event *e, const category *c)
{
    row_head head;
    head.kind = (uint8_t)c->kind;
    head.category = c->code;
    head.name = e->name_code ? e->name_code : written_code(s, e->name);
    if (e->recent_name) {
        *e->recent_name = head.name;
    }
    head.pid = event_label_code(s, &e->pid);
    head.tid = event_label_code(s, &e->tid);
    head.time = e->time;
    head.duration = e->duration;
    return head;
}

/* Rows of some tables have no name, or another. */
static void forget_name(event *e)
{
    e->name.at = NULL;
    e->name_code = 0;
    e->recent_name = NULL;
}

/* Fill the slots from the args, if that was not done on the way. */
static int args_are_read(scanner *s, category *c, uint64_t slots, event *e)
{
    if (!e->args_read) {
        s->present = 0;
        if (e->args && !read_args(s, c, slots, e->args, e->args_end, &e->odd)) {
            return 0;
        }
    }
    return !(e->odd & ODD_ARGS);
}

static int takes_span(const scanner *s, const table *t)
{
    return t->wanted || (t->collective_kind >= 0 && s->tables[s->roles[COLLECTIVE_TABLE]].wanted);
}

static int take_span(scanner *s, category *c, table *t, event *e)
{
    table *collectives = &s->tables[s->roles[COLLECTIVE_TABLE]];
    row_head head;
    int is_collective;
    if (!takes_span(s, t)) {
        return 1;
    }
    if (e->odd & (ODD_NAME | ODD_PID | ODD_TID | ODD_TS | ODD_DUR) || !seen_all(e, 1 << TS | 1 << DUR) ||
        e->duration < 0 || !args_are_read(s, c, t->slots, e)) {
        return 0;
    }
    is_collective = t->collective_kind >= 0 && collectives->wanted && (s->present >> s->roles[COLLECTIVE_SLOT] & 1);
    if (!has_room(s, t, 1) || (is_collective && !has_room(s, collectives, 1))) {
        return 0;
    }
    head = head_of(s, e, c);
    if (t->wanted) {
        put_row(s, t, &head);
    }
    if (is_collective) {
        head.kind = (uint8_t)t->collective_kind;
        put_row(s, collectives, &head);
    }
    return 1;
}

/* A complete event of no table of its own: its args are kept as text, behind those of the row before. */
static int take_slice(scanner *s, category *c, table *t, event *e)
{
    size_t length = e->args ? (size_t)(e->args_end - e->args) : 0;
    row_head head;
    if (!t->wanted) {
        return 1;
    }
    if (e->odd & (ODD_NAME | ODD_PID | ODD_TID | ODD_TS | ODD_DUR) || !seen_all(e, 1 << TS | 1 << DUR) ||
        e->duration < 0 || (e->args && *e->args != '{')) {
        return 0;
    }
    if (!has_room(s, t, 1) || !grown((void **)&s->args_text, &s->args_room, s->args_length + length, 1)) {
        s->failed = 1;
        return 0;
    }
    head = head_of(s, e, c);
    head.kind = (uint8_t)(length && is_canonical(e->args, e->args_end));
    if (length) {
        memcpy(s->args_text + s->args_length, e->args, length);
        s->args_length += length;
    }
    s->present = (uint64_t)1 << t->columns[0].slot;
    s->values[t->columns[0].slot].integer = (int64_t)s->args_length;
    put_row(s, t, &head);
    return 1;
}

static int take_flow(scanner *s, category *c, table *t, event *e)
{
    row_head head;
    int slot = t->columns[0].slot;
    if (!t->wanted) {
        return 1;
    }
    if (e->odd & (ODD_PID | ODD_TID | ODD_TS | ODD_ID) || !seen_all(e, 1 << TS) || !has_room(s, t, 1)) {
        return 0;
    }
    forget_name(e);
    head = head_of(s, e, c);
    head.kind = s->phase_kind[e->phase];
    s->present = (uint64_t)e->has_id << slot;
    s->values[slot].integer = e->id;
    put_row(s, t, &head);
    return 1;
}

/* The name of a memory counter, "<device type> <device id>" for the caller to spell out; the id may be missing. */
static uint32_t device_code(scanner *s)
{
    int64_t key[2];
    span word;
    key[0] = s->values[s->roles[DEVICE_TYPE_SLOT]].integer;
    key[1] = s->present >> s->roles[DEVICE_ID_SLOT] & 1 ? s->values[s->roles[DEVICE_ID_SLOT]].integer : INT64_MIN;
    word.at = (text)key;
    word.length = sizeof key;
    return code_of(&s->dictionaries[DEVICES], word);
}

/* A [memory] event: one row for each of its figures. Other instant events are only counted. */
static int take_instant(scanner *s, category *c, table *t, event *e)
{
    static const char MEMORY_NAME[] = "[memory]";
    uint64_t slots;
    row_head head;
    if (e->odd & ODD_NAME || (e->name.at && memchr(e->name.at, '\\', e->name.length))) {
        return 0;
    }
    if (!t->wanted || e->name.length != sizeof MEMORY_NAME - 1 || !e->name.at ||
        memcmp(e->name.at, MEMORY_NAME, e->name.length)) {
        return 1;
    }
    if (e->odd & (ODD_PID | ODD_TID | ODD_TS) || !seen_all(e, 1 << TS) || !args_are_read(s, c, t->slots, e) ||
        !(s->present >> s->roles[DEVICE_TYPE_SLOT] & 1) || 
        !has_room(s, t, (size_t)s->roles[SERIES_COUNT])) {
        return 0;
    }
    forget_name(e);
    head = head_of(s, e, c);
    if (!(head.name = device_code(s))) {
        s->failed = 1;
        return 0;
    }
    slots = s->present;
    s->present |= (uint64_t)1 << t->columns[0].slot;
    for (int i = 0; i < s->roles[SERIES_COUNT]; i++) {
        int slot = s->roles[FIRST_SERIES_SLOT] + i;
        if (slots >> slot & 1) {
            head.kind = (uint8_t)i;
            s->values[t->columns[0].slot] = s->values[slot];
            put_row(s, t, &head);
        }
    }
    return 1;
}

/* ---- entries -------------------------------------------------------------------------------------------------- */

static text read_phase(const scanner *s, event *e, text p, text end)
{
    if (end - p < 3 || p[0] != '"' || p[2] != '"' || !s->phase_of[p[1]]) {
        return NULL;
    }
    e->phase = s->phase_of[p[1]];
    return p + 3;
}

static text read_category(scanner *s, event *e, text p, text end)
{
    dictionary *d = &s->category_names;
    uint32_t *recent = end - p > RECENT_BYTES ? recent_place(d, p + 1, 1) : NULL;
    size_t length = recent ? begins_with(d, *recent, p + 1, end) : 0;
    span name;
    if (*p != '"') {
        return NULL;
    }
    if (LIKELY(length && p[1 + length] == '"')) {
        e->category = (int)*recent;
        return p + length + 2;
    }
    if (!(p = read_label(p, end, &name))) {
        return NULL;
    }
    e->category = (int)known_code(d, name, hash_of(name.at, name.length));
    if (recent) {
        *recent = (uint32_t)e->category;
    }
    return e->category ? p : NULL;
}

static text read_name(scanner *s, event *e, text p, text end)
{
    dictionary *d = &s->dictionaries[WRITTEN];
    text q = *p == '"' ? read_plain_string(p, end, &e->name) : NULL;
    if (LIKELY(q != NULL)) {
        uint32_t *recent = recent_word(d, e->name);
        if (LIKELY(has_code(d, *recent, e->name))) {
            e->name_code = *recent;
        } else {
            e->recent_name = recent;
        }
        return q;
    }
    return read_label(p, end, &e->name);
}

/* The table whose slots the args fill, if that is known by now. */
static const table *table_of_args(const scanner *s, const event *e)
{
    const table *t;
    if (!e->phase || s->phase_shape[e->phase] == FLOW) {
        return NULL;
    }
    if (s->phase_shape[e->phase] == INSTANT) {
        t = &s->tables[s->roles[MEMORY_TABLE]];
        return t->wanted ? t : NULL;
    }
    if (!seen_all(e, 1 << CAT) || s->categories[e->category].table == s->roles[SLICE_TABLE]) {
        return NULL;
    }
    t = &s->tables[s->categories[e->category].table];
    return takes_span(s, t) ? t : NULL;
}

static text read_event_args(scanner *s, event *e, text p, text end)
{
    const table *t = table_of_args(s, e);
    e->args = p;
    if (t && t->slots) {
        p = read_args(s, &s->categories[e->category], t->slots, p, end, &e->odd);
        e->args_read = 1;
    } else {
        p = skip_value(p, end);
    }
    e->args_end = p;
    return p;
}

/* `q` is what a reader gave for the value at `p`: where it took nothing, the value is odd. */
static text or_odd(text q, text p, text end, event *e, unsigned odd)
{
    if (LIKELY(q != NULL)) {
        return q;
    }
    e->odd |= odd;
    return skip_value(p, end);
}

static text read_field(scanner *s, event *e, int key, text p, text end)
{
    label_cache *last;
    switch (key) {
    case PH:
        return read_phase(s, e, p, end);
    case CAT:
        return read_category(s, e, p, end);
    case NAME_KEY:
        return or_odd(read_name(s, e, p, end), p, end, e, ODD_NAME);
    case PID_KEY:
        last = e->category ? &s->categories[e->category].pid : &s->pids[e->phase];
        return or_odd(read_event_label(&e->pid, last, p, end), p, end, e, ODD_PID);
    case TID_KEY:
        last = e->category ? &s->categories[e->category].tid : &s->tids[e->phase];
        return or_odd(read_event_label(&e->tid, last, p, end), p, end, e, ODD_TID);
    case TS:
        return or_odd(read_time_within(p, end, LATEST_NS, &e->time), p, end, e, ODD_TS);
    case DUR:
        return or_odd(read_time_within(p, end, LONGEST_NS, &e->duration), p, end, e, ODD_DUR);
    case ID:
        e->has_id = *p != 'n';
        return *p == 'n' ? skip_value(p, end) : or_odd(read_integer(p, end, &e->id), p, end, e, ODD_ID);
    case ARGS:
        return read_event_args(s, e, p, end);
    default:
        return skip_value(p, end);
    }
}

/* Rows and count of an event that was read to its end; 0 where it is not taken. */
static int take_event(scanner *s, event *e)
{
    category *c = &s->categories[e->category];
    table *t;
    int taken;
    switch (s->phase_shape[e->phase]) {
    case FLOW:
        taken = take_flow(s, c, &s->tables[s->roles[FLOW_TABLE]], e);
        break;
    case INSTANT:
        taken = take_instant(s, c, &s->tables[s->roles[MEMORY_TABLE]], e);
        break;
    default:
        t = &s->tables[c->table];
        taken = c->table == s->roles[SLICE_TABLE] ? take_slice(s, c, t, e) : take_span(s, c, t, e);
    }
    c->counts[e->phase - 1] += (uint64_t)taken;
    return taken;
}

/* From behind one entry to behind the next, which is taken; NULL where it is not. */
static text scan_entry(scanner *s, text p, text end)
{
    event e;
    guess *guesses = s->guesses[0];
    int key = OPENING;
    e.phase = e.category = 0;
    e.seen = e.odd = 0;
    e.name_code = 0;
    e.name.at = e.args = NULL;
    e.recent_name = NULL;
    e.pid.cache = e.tid.cache = NULL;
    e.has_id = e.args_read = 0;
    e.time = e.duration = e.id = 0;
    for (;;) {
        guess *g = &guesses[key];
        if (LIKELY(guessed(g, p, end))) {
            p += g->length;
            key = g->key;
        } else {
            span name;
            text from = p;
            int first = key == OPENING;
            if (first) {
                p = skip_separators(p, end);
                if (p >= end || *p++ != '{') {
                    return NULL;
                }
            }
            if (!(p = next_value(p, end, first, &name))) {
                return NULL;
            }
            key = name.at ? event_key_of(name) : CLOSING;
            remember(g, from, p, key);
        }
        if (key == CLOSING) {
            return e.phase && take_event(s, &e) ? p : NULL;
        }
        if (!(p = at_value(p, end))) {
            return NULL;
        }
        if (key < OTHER) {
            if (e.seen >> key & 1) {
                return NULL;
            }
            e.seen |= 1u << key;
        }
        if (!(p = read_field(s, &e, key, p, end))) {
            return NULL;
        }
        guesses = s->guesses[e.phase];
    }
}

/* ---- interface ------------------------------------------------------------------------------------------------ */

EXPORT uint32_t scan_sources(void)
{
    return SCAN_SOURCES;
}

EXPORT void scan_free(scanner *s)
{
    if (!s) {
        return;
    }
    for (int i = 0; i <= DICTIONARIES; i++) {
        dictionary *d = i < DICTIONARIES ? &s->dictionaries[i] : &s->category_names;
        free(d->places);
        free(d->bytes);
        free(d->ends);
    }
    for (int i = 0; i < s->table_count; i++) {
        for (int k = 0; k < FIXED_COLUMNS; k++) {
            free(s->tables[i].fixed[k]);
        }
        for (int k = 0; k < s->tables[i].column_count; k++) {
            free(s->tables[i].columns[k].data);
        }
    }
    for (int i = 0; i < MOST_CATEGORIES; i++) {
        free(s->categories[i].guesses);
    }
    for (int i = 0; i < KEY_PLACES; i++) {
        free(s->keys[i].bytes);
    }
    free(s->canonical);
    free(s->args_text);
    free(s);
}

EXPORT scanner *scan_new(void)
{
    scanner *s = calloc(1, sizeof *s);
    int started = s && dictionary_start(&s->category_names);
    for (int i = 0; started && i < DICTIONARIES; i++) {
        started = dictionary_start(&s->dictionaries[i]);
    }
    if (!started) {
        scan_free(s);
        return NULL;
    }
    return s;
}

/* The number of a new slot, or -1. */
EXPORT int scan_add_slot(scanner *s, int kind, int narrow)
{
    if (s->slot_count >= MOST_SLOTS || kind < INTEGER || kind > DIM3) {
        return -1;
    }
    s->slots[s->slot_count].kind = kind;
    s->slots[s->slot_count].narrow = narrow;
    return s->slot_count++;
}

/* A key of args that a slot is read from; of several, the one with the lowest rank goes first. 0, or -1. */
EXPORT int scan_add_key(scanner *s, int slot, int rank, const char *key, size_t length)
{
    span name;
    arg_key *entry;
    name.at = (text)key;
    name.length = length;
    entry = find_key(s, name);
    if (slot < 0 || slot >= s->slot_count || s->key_count >= MOST_KEYS || entry->bytes || rank < 0 || rank > 255 ||
        !keep_key(entry, name, s->key_count)) {
        return -1;
    }
    entry->slot = (uint8_t)slot;
    entry->rank = (uint8_t)rank;
    s->by_id[s->key_count++] = entry;
    return 0;
}

/* The number of a new table, or -1. */
EXPORT int scan_add_table(scanner *s, int wanted, int collective_kind)
{
    if (s->table_count >= MOST_TABLES) {
        return -1;
    }
    s->tables[s->table_count].wanted = wanted;
    s->tables[s->table_count].collective_kind = collective_kind;
    return s->table_count++;
}

static int is_table(const scanner *s, int number)
{
    return number >= 0 && number < s->table_count;
}

/* The events of a table fill this slot. 0, or -1. */
EXPORT int scan_use_slot(scanner *s, int number, int slot)
{
    if (!is_table(s, number) || slot < 0 || slot >= s->slot_count) {
        return -1;
    }
    s->tables[number].slots |= (uint64_t)1 << slot;
    return 0;
}

/* A column of a table, filled from a slot; no rows may be there yet. 0, or -1. */
EXPORT int scan_add_column(scanner *s, int number, int type, int slot, int part)
{
    table *t = is_table(s, number) ? &s->tables[number] : NULL;
    column *c;
    if (!t || t->room || t->column_count >= MOST_COLUMNS || type < CODE || type > DOUBLE || slot < 0 ||
        slot >= s->slot_count || part < 0 || part > 2) {
        return -1;
    }
    c = &t->columns[t->column_count++];
    c->type = type;
    c->slot = slot;
    c->part = part;
    return 0;
}

EXPORT int scan_set_role(scanner *s, int role, int number)
{
    if (role < 0 || role >= ROLES || number < 0) {
        return -1;
    }
    s->roles[role] = number;
    return 0;
}

/* A phase (the letter in `ph`) whose events are taken. 0, or -1. */
EXPORT int scan_add_phase(scanner *s, int letter, int shape, int kind)
{
    if (s->phase_count >= MOST_PHASES || letter <= ' ' || letter > 126 || letter == '"' || letter == '\\' ||
        shape < SPAN || shape > INSTANT) {
        return -1;
    }
    s->phase_count++;
    s->phase_of[letter] = (uint8_t)s->phase_count;
    s->phase_shape[s->phase_count] = (enum shape)shape;
    s->phase_kind[s->phase_count] = (uint8_t)kind;
    return 0;
}

/* A category (as written in the file) and where its complete events go; with no text, events without a category.
   Gives its number, or -1: no more are kept. */
EXPORT int scan_add_category(scanner *s, const char *name, size_t length, int table, int kind)
{
    span word;
    uint32_t number = 0;
    word.at = (text)name;
    word.length = length;
    if (!is_table(s, table)) {
        return -1;
    }
    if (name) {
        uint64_t hash = hash_of(word.at, word.length);
        number = known_code(&s->category_names, word, hash);
        if (number || s->category_names.count + 1 >= MOST_CATEGORIES) {
            return -1;
        }
        number = dictionary_add(&s->category_names, word, hash);
        s->categories[number].code = written_code(s, word);
        if (!number || s->failed) {
            return -1;
        }
    }
    s->categories[number].table = table;
    s->categories[number].kind = kind;
    return (int)number;
}

/* How many entries of a category were taken, by phase in the order of `scan_add_phase`. */
EXPORT const uint64_t *scan_counts(const scanner *s, int category)
{
    return s->categories[category].counts;
}

/* Take entries from the start of a text; gives the bytes taken, separators behind the last entry included, or -1
   where no memory is left. */
EXPORT int64_t scan_take(scanner *s, const char *start, size_t length)
{
    text p = (text)start, end = p + length, next;
    while (!s->failed && (next = scan_entry(s, p, end))) {
        p = next;
    }
    if (s->failed) {
        return -1;
    }
    return p == (text)start ? 0 : skip_separators(p, end) - (text)start;
}

/* The rows of each table; they may change with every call of `scan_take`. */
EXPORT const uint64_t *scan_rows(const scanner *s)
{
    return s->rows;
}

EXPORT void scan_clear(scanner *s, int table)
{
    s->rows[table] = 0;
    if (table == s->roles[SLICE_TABLE]) {
        s->args_length = 0;
    }
}

/* Whether a value of an added column is missing. */
static int is_missing(int type, const void *values, size_t row)
{
    switch (type) {
    case CODE:
        return ((const uint32_t *)values)[row] == 0;
    case WIDE:
        return ((const int64_t *)values)[row] == INT64_MIN;
    case NARROW:
        return ((const int32_t *)values)[row] == INT32_MIN;
    default:
        return ((const double *)values)[row] != ((const double *)values)[row];
    }
}

/* Copy a column: one of the fixed ones, or FIXED_COLUMNS + the number of an added one. Codes are looked up in
   `codes`, if it is given. Gives how many values are missing (of the fixed columns: of codes that were looked up). */
EXPORT uint64_t scan_copy(const scanner *s, int number, int which, void *into, const uint32_t *codes)
{
    const table *t = &s->tables[number];
    const column *added = which < FIXED_COLUMNS ? NULL : &t->columns[which - FIXED_COLUMNS];
    const void *from = added ? added->data : t->fixed[which];
    size_t rows = rows_of(s, t);
    uint64_t missing = 0;
    if (codes) {
        for (size_t i = 0; i < rows; i++) {
            uint32_t code = codes[((const uint32_t *)from)[i]];
            ((uint32_t *)into)[i] = code;
            missing += code == 0;
        }
        return missing;
    }
    if (rows) {
        memcpy(into, from, rows * (added ? COLUMN_SIZES[added->type] : FIXED_SIZES[which]));
    }
    for (size_t i = 0; added && i < rows; i++) {
        missing += (uint64_t)is_missing(added->type, from, i);
    }
    return missing;
}

/* The distinct texts of a dictionary so far: their number, their bytes, and where each ends (`ends[0]` is 0). */
EXPORT uint32_t scan_texts(const scanner *s, int which, const unsigned char **bytes, const uint64_t **ends)
{
    *bytes = s->dictionaries[which].bytes;
    *ends = s->dictionaries[which].ends;
    return s->dictionaries[which].count;
}

/* For every text of VALUES, whether it is spelled canonically. */
EXPORT const unsigned char *scan_canonical(const scanner *s)
{
    return s->canonical;
}

/* The args of all slices; where those of each end stands in its column, and in its kind whether they are canonical. */
EXPORT const unsigned char *scan_args_text(const scanner *s)
{
    return s->args_text;
}

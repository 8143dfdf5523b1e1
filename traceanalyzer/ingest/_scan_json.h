/* JSON text, read strictly: every function gives the place behind what it read, or NULL both for text that ends too
 * early and for text that it does not take. Every read lies in [p, end).
 */
#ifndef TRACEANALYZER_SCAN_JSON_H
#define TRACEANALYZER_SCAN_JSON_H

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#if defined(__GNUC__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#else
#define LIKELY(x) (x)
#endif

#if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define DIGITS_BY_WORD 1
#endif

enum {
    DEEPEST = 64,         /* nesting of a skipped value */
    LONGEST_NUMBER = 300, /* characters of a skipped number */
    LONGEST_INTEGER = 18  /* digits that surely fit 63 bits */
};

typedef const unsigned char *text;

typedef struct {
    text at;
    size_t length;
} span;

static text skip_space(text p, text end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) {
        p++;
    }
    return p;
}

/* Text between two entries: spaces and any number of commas, as the caller has it too. */
static text skip_separators(text p, text end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == ',' || *p == '\t' || *p == '\r')) {
        p++;
    }
    return p;
}

static int is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* The first byte of a string's rest that is a quote, a backslash, a control character or no ASCII. */
static text skip_plain(text p, text end)
{
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(0x20);
    for (; end - p >= 16; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        __m128i special = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
        special = _mm_or_si128(special, _mm_cmplt_epi8(bytes, space)); /* signed: bytes from 0x80 on are below */
        int found = _mm_movemask_epi8(special);
        if (found) {
            return p + __builtin_ctz((unsigned)found);
        }
    }
#else
    const uint64_t ones = UINT64_MAX / 255, high = ones * 0x80;
    for (; end - p >= 8; p += 8) {
        uint64_t bytes, quotes, backslashes;
        memcpy(&bytes, p, 8);
        quotes = bytes ^ ones * '"';
        backslashes = bytes ^ ones * '\\';
        if (((quotes - ones) | (backslashes - ones) | (bytes - ones * 0x20) | bytes) & high) {
            break;
        }
    }
#endif
    while (p < end && is_plain(*p)) {
        p++;
    }
    return p;
}

static int hex4(text p)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = p[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Behind an escape of a string, from its backslash on. Half a surrogate pair is not taken. */
static text skip_escape(text p, text end)
{
    int unit;
    if (end - p < 2) {
        return NULL;
    }
    if (p[1] != 'u') {
        return memchr("\"\\/bfnrt", p[1], 8) ? p + 2 : NULL;
    }
    if (end - p < 6 || (unit = hex4(p + 2)) < 0) {
        return NULL;
    }
    p += 6;
    if (unit < 0xD800 || unit > 0xDFFF) {
        return p;
    }
    if (unit > 0xDBFF || end - p < 6 || p[0] != '\\' || p[1] != 'u') {
        return NULL;
    }
    unit = hex4(p + 2);
    return unit >= 0xDC00 && unit <= 0xDFFF ? p + 6 : NULL;
}

/* Behind one UTF-8 sequence of two to four bytes; the shortest form, no surrogates, up to U+10FFFF. */
static text skip_utf8(text p, text end)
{
    unsigned char lead = p[0], low = 0x80, high = 0xBF;
    int more;
    if (lead >= 0xC2 && lead <= 0xDF) {
        more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        more = 2;
        low = lead == 0xE0 ? 0xA0 : low;
        high = lead == 0xED ? 0x9F : high;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        more = 3;
        low = lead == 0xF0 ? 0x90 : low;
        high = lead == 0xF4 ? 0x8F : high;
    } else {
        return NULL;
    }
    if (end - p <= more || p[1] < low || p[1] > high) {
        return NULL;
    }
    for (int i = 2; i <= more; i++) {
        if (p[i] < 0x80 || p[i] > 0xBF) {
            return NULL;
        }
    }
    return p + more + 1;
}

/* The closing quote of the string that begins behind `p - 1`; `*escapes` is set if it has any. */
static text string_end(text p, text end, int *escapes)
{
    for (;;) {
        p = skip_plain(p, end);
        if (p >= end || *p < 0x20) {
            return NULL;
        }
        if (*p == '"') {
            return p;
        }
        if (*p == '\\') {
            *escapes = 1;
            p = skip_escape(p, end);
        } else {
            p = skip_utf8(p, end);
        }
        if (!p) {
            return NULL;
        }
    }
}

/* Behind a string of nothing but printable ASCII without escapes, as most are; NULL for any other. */
static inline text read_plain_string(text p, text end, span *word)
{
    text closing = skip_plain(p + 1, end);
    word->at = p + 1;
    word->length = (size_t)(closing - p - 1);
    return closing < end && *closing == '"' ? closing + 1 : NULL;
}

static text skip_string(text p, text end)
{
    int escapes = 0;
    text closing = string_end(p + 1, end, &escapes);
    return closing ? closing + 1 : NULL;
}

static inline int is_digit(text p, text end)
{
    return p < end && (unsigned)*p - '0' < 10;
}

#if defined(DIGITS_BY_WORD)
/* Eight bytes of which digits are turned into their values, the first in the lowest byte. */
static inline uint64_t digit_word(text p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word ^ 0x3030303030303030u;
}

/* How many of the bytes, from the first on, are digits. */
static inline int leading_digits(uint64_t word)
{
    uint64_t others = ((word + 0x7676767676767676u) | word) & 0x8080808080808080u;
    return others ? __builtin_ctzll(others) >> 3 : 8;
}

/* The value of eight digits. */
static inline uint64_t eight_digits(uint64_t word)
{
    word = word * 10 + (word >> 8);
    return ((word & 0x000000FF000000FFu) * 0x000F424000000064u +
            ((word >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u) >> 32;
}

/* The value of the first one to eight digits. */
static inline uint64_t some_digits(uint64_t word, int count)
{
    return eight_digits(word << (64 - 8 * count));
}
#endif

static text skip_digits(text p, text end)
{
#if defined(DIGITS_BY_WORD)
    for (int count = 8; count == 8 && end - p >= 8; p += count) {
        count = leading_digits(digit_word(p));
    }
#endif
    while (is_digit(p, end)) {
        p++;
    }
    return p;
}

/* A number as JSON spells it. What follows it is for the caller to check. */
static text skip_number(text p, text end)
{
    text first = p, exponent;
    if (LIKELY(is_digit(p, end) && *p != '0')) {
        p = skip_digits(p, end);
        if (LIKELY(p < end && *p != '.' && (*p | 32) != 'e' && p - first <= LONGEST_NUMBER)) {
            return p;
        }
        p = first;
    }
    p += p < end && *p == '-';
    if (!is_digit(p, end)) {
        return NULL;
    }
    p = *p == '0' ? p + 1 : skip_digits(p, end);
    if (p < end && *p == '.') {
        if (!is_digit(p + 1, end)) {
            return NULL;
        }
        p = skip_digits(p + 1, end);
    }
    if (p < end && (*p | 32) == 'e') {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        exponent = p;
        p = skip_digits(p, end);
        if (p == exponent || p - exponent > 4) {
            return NULL;
        }
    }
    return p - first <= LONGEST_NUMBER ? p : NULL;
}

static text skip_word(text p, text end)
{
    if (end - p >= 4 && (!memcmp(p, "true", 4) || !memcmp(p, "null", 4))) {
        return p + 4;
    }
    return end - p >= 5 && !memcmp(p, "false", 5) ? p + 5 : NULL;
}

/* From the opening quote of a key to its value. */
static text skip_key(text p, text end)
{
    if (p >= end || *p != '"' || !(p = skip_string(p, end))) {
        return NULL;
    }
    p = skip_space(p, end);
    return p < end && *p == ':' ? skip_space(p + 1, end) : NULL;
}

/* Behind any value, checked to be JSON. */
static text skip_any_value(text p, text end)
{
    uint64_t objects = 0; /* one bit a level: whether it is an object */
    int depth = 0;
    for (;;) {
        if (p >= end) {
            return NULL;
        }
        if (*p == '{' || *p == '[') {
            unsigned char closing = *p == '{' ? '}' : ']';
            p = skip_space(p + 1, end);
            if (p >= end || depth == DEEPEST) {
                return NULL;
            }
            if (*p != closing) {
                objects = objects << 1 | (closing == '}');
                depth++;
                if (closing == '}' && !(p = skip_key(p, end))) {
                    return NULL;
                }
                continue;
            }
            p++;
        } else if (*p == '"') {
            p = skip_string(p, end);
        } else {
            p = *p == '-' || is_digit(p, end) ? skip_number(p, end) : skip_word(p, end);
        }
        for (;;) {
            if (!p || !depth) {
                return p;
            }
            p = skip_space(p, end);
            if (p >= end) {
                return NULL;
            }
            if (*p == ',') {
                p = skip_space(p + 1, end);
                if (objects & 1 && !(p = skip_key(p, end))) {
                    return NULL;
                }
                break;
            }
            if (*p != (objects & 1 ? '}' : ']')) {
                return NULL;
            }
            p++;
            depth--;
            objects >>= 1;
        }
    }
}

static inline text skip_value(text p, text end)
{
#if defined(DIGITS_BY_WORD)
    if (LIKELY(end - p > 8)) {
        int digits = leading_digits(digit_word(p));
        if (digits && digits < 8 && (digits == 1 || *p != '0') && p[digits] != '.' && (p[digits] | 32) != 'e') {
            return p + digits; /* a short whole number, the most common value of all */
        }
    }
#endif
    return skip_any_value(p, end);
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

static const uint64_t POWERS[20] = {
    1u, 10u, 100u, 1000u, 10000u, 100000u, 1000000u, 10000000u, 100000000u, 1000000000u, 10000000000u, 100000000000u,
    1000000000000u, 10000000000000u, 100000000000000u, 1000000000000000u, 10000000000000000u, 100000000000000000u,
    1000000000000000000u, 10000000000000000000u,
};

/* Digits from `p` on, onto `*value`; `*count` is how many. More than `most` are not taken. */
static inline text read_digits(text p, text end, int most, uint64_t *value, int *count)
{
    uint64_t sum = *value;
    text first = p;
#if defined(DIGITS_BY_WORD)
    while (end - p >= 8) {
        uint64_t word = digit_word(p);
        int digits = leading_digits(word);
        if (digits == 8) {
            sum = sum * 100000000u + eight_digits(word);
            p += 8;
            if (p - first <= most) {
                continue;
            }
        } else if (digits) {
            sum = sum * POWERS[digits] + some_digits(word, digits);
            p += digits;
        }
        *count = (int)(p - first);
        *value = sum;
        return *count <= most ? p : NULL;
    }
#endif
    for (; is_digit(p, end); p++) {
        if (p - first >= most) {
            return NULL;
        }
        sum = sum * 10 + (uint64_t)(*p - '0');
    }
    *count = (int)(p - first);
    *value = sum;
    return p;
}

/* The whole part of a number, and its sign. Leading zeros are not JSON. */
static text read_whole(text p, text end, int most, uint64_t *value, int *negative)
{
    int count = 0;
    text first;
    *value = 0;
    *negative = p < end && *p == '-';
    first = p += *negative;
    p = read_digits(p, end, most, value, &count);
    return p && count && (count == 1 || *first != '0') ? p : NULL;
}

static inline int goes_on_as_number(text p, text end)
{
    return p < end && (*p == '.' || (*p | 32) == 'e');
}

static inline text read_integer(text p, text end, int64_t *value)
{
    uint64_t size;
    int negative;
#if defined(DIGITS_BY_WORD)
    if (LIKELY(end - p > 8)) {
        uint64_t word = digit_word(p);
        int digits = leading_digits(word);
        if (LIKELY(digits && digits < 8)) {
            *value = (int64_t)some_digits(word, digits);
            return (digits == 1 || *p != '0') && !goes_on_as_number(p + digits, end) ? p + digits : NULL;
        }
    }
#endif
    p = read_whole(p, end, LONGEST_INTEGER, &size, &negative);
    if (!p || goes_on_as_number(p, end)) {
        return NULL;
    }
    *value = negative ? -(int64_t)size : (int64_t)size;
    return p;
}

#if defined(DIGITS_BY_WORD)
/* A time of 1 to 16 digits, and of no decimals or three: what Kineto writes. */
static inline text read_usual_time(text p, int64_t *nanoseconds)
{
    uint64_t word = digit_word(p), size;
    int count = leading_digits(word), rest;
    text q = p + count;
    if (!count || (*p == '0' && count > 1)) {
        return NULL;
    }
    size = some_digits(word, count);
    if (count == 8) {
        word = digit_word(q);
        rest = leading_digits(word);
        size = rest ? size * POWERS[rest] + some_digits(word, rest) : size;
        q += rest;
    }
    size *= 1000;
    if (*q == '.') {
        word = digit_word(q + 1);
        if (leading_digits(word) != 3) {
            return NULL;
        }
        size += (word & 0xFF) * 100 + (word >> 8 & 0xFF) * 10 + (word >> 16 & 0xFF);
        q += 4;
    }
    *nanoseconds = (int64_t)size;
    return (unsigned)*q - '0' < 10 || (*q | 32) == 'e' || size >= INT64_MAX / 2 ? NULL : q;
}
#endif

/* Microseconds with any decimals -> whole nanoseconds, half to even. */
static text read_any_time(text p, text end, int64_t *nanoseconds)
{
    uint64_t size, part = 0;
    int negative, decimals = 0;
    p = read_whole(p, end, LONGEST_INTEGER, &size, &negative);
    if (!p || size >= INT64_MAX / 1000) {
        return NULL;
    }
    if (p < end && *p == '.') {
        p = read_digits(p + 1, end, LONGEST_INTEGER, &part, &decimals);
        if (!p || !decimals) {
            return NULL;
        }
    }
    if (p < end && (*p | 32) == 'e') {
        return NULL;
    }
    if (decimals <= 3) {
        size = size * 1000 + part * POWERS[3 - decimals];
    } else {
        uint64_t unit = POWERS[decimals - 3], rest = part % unit;
        size = size * 1000 + part / unit;
        size += rest > unit / 2 || (rest == unit / 2 && (size & 1));
    }
    *nanoseconds = negative ? -(int64_t)size : (int64_t)size;
    return p;
}

static inline text read_time(text p, text end, int64_t *nanoseconds)
{
#if defined(DIGITS_BY_WORD)
    text q;
    if (LIKELY(end - p > 32) && LIKELY((q = read_usual_time(p, nanoseconds)) != NULL)) {
        return q;
    }
#endif
    return read_any_time(p, end, nanoseconds);
}

/* Limits of times, which must equal those of values.py: sums of a base, a start and a length fit 64 bits. */
#define LATEST_NS INT64_C(4000000000000000000)
#define LONGEST_NS INT64_C(1000000000000000000)

static inline text read_time_within(text p, text end, int64_t limit, int64_t *nanoseconds)
{
    p = read_time(p, end, nanoseconds);
    return p && *nanoseconds <= limit && *nanoseconds >= -limit ? p : NULL;
}

/* digits / 10^decimals as the nearest double. */
static int divided(uint64_t digits, int decimals, double *value)
{
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 0
    if (digits < (uint64_t)1 << 53 && decimals < 20) {
        *value = (double)digits / (double)POWERS[decimals]; /* both are exact, so this rounds once */
        return 1;
    }
#endif
#if defined(__SIZEOF_INT128__)
    if (decimals < 20 && digits) {
        __extension__ typedef unsigned __int128 wide;
        int shift = 63 + __builtin_clzll(digits), surplus = 0;
        wide numerator = (wide)digits << shift;
        wide quotient = numerator / POWERS[decimals]; /* 63 bits or more */
        uint64_t top;
        int sticky = numerator % POWERS[decimals] != 0;
        while (quotient >> surplus >> 54) {
            surplus++;
        }
        top = (uint64_t)(quotient >> surplus); /* 54 bits: one more than a double has */
        sticky |= (quotient & (((wide)1 << surplus) - 1)) != 0;
        top += (top & 1) && (sticky || (top & 2));
        *value = ldexp((double)(top >> 1), surplus + 1 - shift);
        return 1;
    }
#endif
    return 0;
}

/* A number of up to 18 digits as the nearest double, as Python reads it. */
static text read_double(text p, text end, double *value)
{
    uint64_t digits;
    int negative, decimals = 0;
    p = read_whole(p, end, LONGEST_INTEGER, &digits, &negative);
    if (!p) {
        return NULL;
    }
    if (p < end && *p == '.') {
        uint64_t part = 0;
        if (!(p = read_digits(p + 1, end, LONGEST_INTEGER, &part, &decimals)) || !decimals ||
            digits > UINT64_MAX / 2 / POWERS[decimals]) {
            return NULL;
        }
        digits = digits * POWERS[decimals] + part;
    } else if (negative && !digits) {
        return NULL; /* the integer -0 is 0, not the double -0.0 */
    }
    if (p < end && (*p | 32) == 'e') {
        uint64_t exponent = 0;
        int length = 0;
        if (end - p < 3 || p[1] != '-' || !(p = read_digits(p + 2, end, 2, &exponent, &length)) || !length) {
            return NULL;
        }
        decimals += (int)exponent;
    }
    if (digits == 0) {
        *value = 0.0;
    } else if (!divided(digits, decimals, value)) {
        return NULL;
    }
    *value = negative ? -*value : *value;
    return p;
}

#endif

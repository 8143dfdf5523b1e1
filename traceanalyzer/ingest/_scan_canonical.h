/* Whether JSON text is spelled as Python's json.dumps spells it, so that nobody needs to decode it to find out. */
#ifndef TRACEANALYZER_SCAN_CANONICAL_H
#define TRACEANALYZER_SCAN_CANONICAL_H

#include "_scan_json.h"

enum {
    MOST_COMPARED_KEYS = 64,
    SURE_DIGITS = 15 /* so many digits survive a double */
};

/* The closing quote of a string whose escapes are those of json.dumps (with ensure_ascii=False); else NULL. */
static text canonical_string_end(text p, text end)
{
    while (p < end && *p != '"') {
        if (*p == '\\') {
            if (end - p < 2 || !memchr("\"\\bfnrt", p[1], 7)) {
                return NULL;
            }
            p++;
        }
        p++;
    }
    return p < end ? p : NULL;
}

/* Behind a number that a double or an int of Python repeats digit by digit; else NULL. */
static text canonical_number(text p, text end)
{
    int negative = *p == '-';
    text whole = p + negative, part;
    p = skip_digits(whole, end);
    if (p == whole || !goes_on_as_number(p, end)) {
        return p == whole || (negative && *whole == '0') ? NULL : p;
    }
    if (*p != '.') {
        return NULL;
    }
    part = p + 1;
    p = skip_digits(part, end);
    if (p == part || goes_on_as_number(p, end) || (part - 1 - whole) + (p - part) > SURE_DIGITS + (*whole == '0') ||
        (p[-1] == '0' && p - part > 1) || (*whole == '0' && p - part >= 4 && !memcmp(part, "0000", 4))) {
        return NULL;
    }
    return p;
}

/* `p` to `end` is one JSON value. */
static int is_canonical(text p, text end)
{
    span keys[MOST_COMPARED_KEYS];
    size_t count = 0, first_of[DEEPEST + 1]; /* keys of the objects that are open, and where each object's begin */
    int depth = 0;
    first_of[0] = 0;
    while (p && p < end) {
        text first = p + 1;
        switch (*p) {
        case '"':
            if (!(p = canonical_string_end(first, end))) {
                return 0;
            }
            if (++p < end && *p == ':') {
                span key;
                key.at = first;
                key.length = (size_t)(p - 1 - first);
                for (size_t i = first_of[depth]; i < count; i++) {
                    if (keys[i].length == key.length && !memcmp(keys[i].at, key.at, key.length)) {
                        return 0;
                    }
                }
                if (count == MOST_COMPARED_KEYS || end - p < 2 || p[1] != ' ') {
                    return 0;
                }
                keys[count++] = key;
                p += 2;
            }
            break;
        case '{':
        case '[':
            if (depth == DEEPEST) {
                return 0;
            }
            first_of[++depth] = count;
            p++;
            break;
        case '}':
        case ']':
            if (!depth) {
                return 0;
            }
            count = first_of[depth--];
            p++;
            break;
        case ',':
            if (end - p < 2 || p[1] != ' ') {
                return 0;
            }
            p += 2;
            break;
        case 't':
        case 'f':
        case 'n':
            p = skip_word(p, end);
            break;
        default:
            p = canonical_number(p, end);
        }
    }
    return p != NULL;
}

#endif

/* Growing memory, and dictionaries of the distinct texts of a file. */
#ifndef TRACEANALYZER_SCAN_DICTIONARY_H
#define TRACEANALYZER_SCAN_DICTIONARY_H

#include <stdlib.h>

#include "_scan_json.h"

static int grown(void **memory, size_t *room, size_t need, size_t size)
{
    size_t more = *room ? *room : 64;
    void *moved;
    if (need <= *room) {
        return 1;
    }
    while (more < need) {
        if (more > SIZE_MAX / 2 / size) {
            return 0;
        }
        more *= 2;
    }
    if (!(moved = realloc(*memory, more * size))) {
        return 0;
    }
    *memory = moved;
    *room = more;
    return 1;
}

enum { RECENT_TEXTS = 4096, RECENT_BYTES = 32 };

typedef struct {
    uint64_t hash;
    uint32_t code; /* 0: free */
} place;

/* Distinct texts as written in the file, numbered from 1 in order of appearance. */
typedef struct {
    place *places;
    uint32_t mask, count;
    unsigned char *bytes;
    size_t bytes_room;
    uint64_t *ends; /* text number i is bytes[ends[i - 1] .. ends[i]) */
    size_t ends_room;
    uint32_t recent[RECENT_TEXTS]; /* codes met last, by some bytes of their text */
} dictionary;

static uint64_t word_at(text p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(text p, size_t length)
{
    uint64_t hash = mixed(0x243F6A8885A308D3u, length), lanes[4];
    text end = p + length;
    if (length >= 64) { /* four sums side by side, so that none waits for the multiplication of another */
        for (int i = 0; i < 4; i++) {
            lanes[i] = hash + (uint64_t)i;
        }
        for (; end - p >= 32; p += 32) {
            for (int i = 0; i < 4; i++) {
                lanes[i] = mixed(lanes[i], word_at(p + 8 * i));
            }
        }
        hash = mixed(mixed(lanes[0], lanes[1]), mixed(lanes[2], lanes[3]));
    }
    for (; end - p >= 8; p += 8) {
        hash = mixed(hash, word_at(p));
    }
    if (p < end) {
        uint64_t word = 0;
        if (length >= 8) {
            word = word_at(end - 8);
        } else {
            memcpy(&word, p, (size_t)(end - p));
        }
        hash = mixed(hash, word);
    }
    return hash;
}

static int dictionary_start(dictionary *d)
{
    d->mask = 1023;
    d->places = calloc((size_t)d->mask + 1, sizeof *d->places);
    if (!d->places || !grown((void **)&d->ends, &d->ends_room, 1, sizeof *d->ends)) {
        return 0;
    }
    d->ends[0] = 0;
    return 1;
}

static int dictionary_widen(dictionary *d)
{
    uint32_t mask = d->mask * 2 + 1;
    place *places = calloc((size_t)mask + 1, sizeof *places);
    if (!places) {
        return 0;
    }
    for (uint32_t i = 0; i <= d->mask; i++) {
        if (d->places[i].code) {
            uint32_t at = (uint32_t)d->places[i].hash & mask;
            while (places[at].code) {
                at = (at + 1) & mask;
            }
            places[at] = d->places[i];
        }
    }
    free(d->places);
    d->places = places;
    d->mask = mask;
    return 1;
}

static uint32_t dictionary_add(dictionary *d, span word, uint64_t hash)
{
    uint32_t at;
    uint64_t used = d->ends[d->count];
    if (d->count >= UINT32_MAX / 4 || (d->count * 2 >= d->mask && !dictionary_widen(d)) ||
        !grown((void **)&d->bytes, &d->bytes_room, (size_t)used + word.length, 1) ||
        !grown((void **)&d->ends, &d->ends_room, (size_t)d->count + 2, sizeof *d->ends)) {
        return 0;
    }
    for (at = (uint32_t)hash & d->mask; d->places[at].code; at = (at + 1) & d->mask) {
    }
    if (word.length) {
        memcpy(d->bytes + used, word.at, word.length);
    }
    d->count++;
    d->ends[d->count] = used + word.length;
    d->places[at].hash = hash;
    d->places[at].code = d->count;
    return d->count;
}

/* The code of a text that is known, else 0. */
static uint32_t known_code(const dictionary *d, span word, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & d->mask;
    for (; d->places[at].code; at = (at + 1) & d->mask) {
        if (d->places[at].hash == hash) {
            uint32_t code = d->places[at].code;
            uint64_t begin = d->ends[code - 1];
            if (d->ends[code] - begin == word.length && !memcmp(d->bytes + begin, word.at, word.length)) {
                return code;
            }
        }
    }
    return 0;
}

/* The code of a text, or 0 where no memory is left. */
static uint32_t code_of(dictionary *d, span word)
{
    uint64_t hash = hash_of(word.at, word.length);
    uint32_t code = known_code(d, word, hash);
    return LIKELY(code) ? code : dictionary_add(d, word, hash);
}

static inline uint32_t *place_of(dictionary *d, uint64_t sum)
{
    return &d->recent[(sum ^ sum >> 21) >> 40 & (RECENT_TEXTS - 1)];
}

/* Where a text is kept among the recent ones: by its length and by bytes from all over it, since many names (paths,
   templates) differ only somewhere in the middle. */
static inline uint32_t *recent_word(dictionary *d, span word)
{
    uint64_t sum = (uint64_t)word.length * 0x9E3779B97F4A7C15u, part = 0;
    if (LIKELY(word.length >= 8)) {
        size_t last = word.length - 8;
        sum = (sum ^ word_at(word.at + last)) * 0xC2B2AE3D27D4EB4Fu;
        part = word_at(word.at) * 0x165667B19E3779F9u + word_at(word.at + last / 2) * 0xD6E8FEB86659FD93u;
        part ^= (word_at(word.at + last / 4) + (word_at(word.at + last - last / 4) << 1)) * 0x9E3779B97F4A7C15u;
        part ^= part >> 32;
    } else {
        for (size_t i = 0; i < word.length; i++) {
            part = part << 8 | word.at[i];
        }
        part *= 0x165667B19E3779F9u;
    }
    return place_of(d, sum + part);
}

/* Whether a text has this code. */
static inline int has_code(const dictionary *d, uint32_t code, span word)
{
    uint64_t begin;
    if (!code) {
        return 0;
    }
    begin = d->ends[code - 1];
    return d->ends[code] - begin == word.length && !memcmp(d->bytes + begin, word.at, word.length);
}

/* Where a text that begins at `p` is kept among the recent ones: by its first 32 bytes, or by its first 8 if it is
   `brief`. What follows a short text counts too, which is mostly the same for equal texts. */
static inline uint32_t *recent_place(dictionary *d, text p, int brief)
{
    uint64_t sum = word_at(p) * 0x9E3779B97F4A7C15u;
    if (!brief) {
        sum ^= word_at(p + 8) * 0xC2B2AE3D27D4EB4Fu;
        sum = (sum ^ sum >> 32) + word_at(p + 16) * 0x165667B19E3779F9u + word_at(p + 24) * 0xD6E8FEB86659FD93u;
    }
    return place_of(d, sum);
}

/* The length of the text of a code, if the text at `p` begins with it and goes on behind it; else 0. */
static inline size_t begins_with(const dictionary *d, uint32_t code, text p, text end)
{
    uint64_t begin;
    size_t length;
    if (!code) {
        return 0;
    }
    begin = d->ends[code - 1];
    length = (size_t)(d->ends[code] - begin);
    return (size_t)(end - p) > length && !memcmp(d->bytes + begin, p, length) ? length : 0;
}

#endif

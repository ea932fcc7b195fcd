/* The walker of stored properties: see stored_properties.py. Both extensions have it. */

#include "../_speedups.h"

#define MAX_WANTED 16
enum {TAGS, UNIQ_KEY, KEYS, FIRST_WANTED};

/* Names that a walk looks for. `letters` has a bit for what each begins with, as most names begin otherwise. */
typedef struct {
    Bytes names[MAX_WANTED];
    int count;
    uint32_t letters;
} Wanted;

/* What a walk over properties finds: the values of three names and of those in `wanted`, and which names there are. */
typedef struct {
    const Wanted *wanted;
    Bytes found[FIRST_WANTED + MAX_WANTED], names[MAX_PROPERTIES];
    int pairs, is_repeated;
} Noted;

static inline int is_same(Bytes one, Bytes other)
{
    return one.size == other.size && memcmp(one.at, other.at, (size_t)one.size) == 0;
}

/* The size of a literal is a constant here, so that no function is called to compare it. */
static inline int is_name(Bytes name, const char *text)
{
    return name.size == (Py_ssize_t)strlen(text) && memcmp(name.at, text, strlen(text)) == 0;
}

static inline uint32_t letter_bit(Bytes name)
{
    return name.size == 0 ? 0 : 1u << (name.at[0] & 31);
}

static inline void add_wanted(Wanted *wanted, Bytes name)
{
    wanted->letters |= letter_bit(name);
    wanted->names[wanted->count++] = name;
}

/* Find the next pair that has both a name and a value, and move `*at` past it. Return where it begins, NULL when there
   is no further one. */
static inline const unsigned char *next_pair(const unsigned char **at, const unsigned char *stop, Bytes *name, Bytes *value)
{
    while (*at < stop) {
        const unsigned char *pair = *at, *end = memchr(pair, 2, (size_t)(stop - pair));
        if (end == NULL)
            end = stop;
        *at = end + 1;
        const unsigned char *separator = memchr(pair, 1, (size_t)(end - pair));
        if (separator != NULL && separator != pair && separator + 1 != end) {
            *name = (Bytes){pair, separator - pair};
            *value = (Bytes){separator + 1, end - separator - 1};
            return pair;
        }
    }
    return NULL;
}

static inline void begin_walk(Noted *noted, const Wanted *wanted)
{
    noted->wanted = wanted;
    memset(noted->found, 0, sizeof(Bytes) * (size_t)(FIRST_WANTED + wanted->count));
    noted->pairs = noted->is_repeated = 0;
}

/* Of repeated names the last one wins. */
static inline void note_pair(Noted *noted, Bytes name, Bytes value)
{
    for (int i = 0; i < noted->pairs && !noted->is_repeated; i++)
        noted->is_repeated = is_same(noted->names[i], name);
    if (noted->pairs == MAX_PROPERTIES)
        noted->is_repeated = 1;  /* for all that is known */
    else
        noted->names[noted->pairs++] = name;
    if (is_name(name, "TAGS"))
        noted->found[TAGS] = value;
    else if (is_name(name, "UNIQ_KEY"))
        noted->found[UNIQ_KEY] = value;
    else if (is_name(name, "KEYS"))
        noted->found[KEYS] = value;
    if (noted->wanted->letters & letter_bit(name))
        for (int i = 0; i < noted->wanted->count; i++)
            if (is_same(noted->wanted->names[i], name))
                noted->found[FIRST_WANTED + i] = value;
}

/* Note all pairs. Return whether they are ASCII, few, and as encoding them again would write them. */
static inline int walk_properties(Noted *noted, Bytes stored)
{
    const unsigned char *at = stored.at, *stop = at + stored.size, *next = at, *pair;
    Bytes name, value;
    int is_encoded = is_ascii(at, stored.size) && (at == stop || stop[-1] != 2);
    while ((pair = next_pair(&at, stop, &name, &value)) != NULL) {
        note_pair(noted, name, value);
        is_encoded &= pair == next;  /* nothing is between the pairs */
        next = at;
    }
    return is_encoded && next >= stop && !noted->is_repeated;
}

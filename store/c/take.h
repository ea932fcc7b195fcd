/* Taking records of queue entries out of the mapped log: see collecting.py. A part of _speedups.c. */

/* Where the body of a record begins, which depends on its hosts. */
static inline int64_t head_bytes(const unsigned char *record)
{
    uint32_t flags = get32(record + 36);
    return HEAD_BYTES + (flags & BORN_HOST_V6 ? 12 : 0) + (flags & STORE_HOST_V6 ? 12 : 0);
}

/* The stored properties of the record that fills `size` bytes; 0 if its lengths do not add up to exactly that. */
static int properties_of(const unsigned char *record, int64_t size, Bytes *stored)
{
    if (size < FIXED_BYTES || (int32_t)get32(record) != size || get32(record + 4) != MESSAGE_MAGIC)
        return 0;
    int64_t head = head_bytes(record);
    if (head + 3 > size)
        return 0;
    int64_t body_length = (int32_t)get32(record + head - 4);
    if (body_length < 0 || body_length > size - head - 3)
        return 0;
    const unsigned char *topic = record + head + body_length + 1;
    int64_t properties_size = size - head - 3 - body_length - topic[-1];
    if (properties_size < 0)
        return 0;
    stored->at = topic + topic[-1] + 2;
    stored->size = (Py_ssize_t)properties_size;
    return (stored->at[-2] << 8 | stored->at[-1]) == properties_size;
}

/* Begin to read what decides about a record, its lengths at the front and its properties at the back. Of a log larger
   than the processor's caches each part is in none of them, and to wait for one after the other takes longer than to
   decide. */
static inline void prefetch(const unsigned char *record, int64_t size)
{
#ifdef __GNUC__
    __builtin_prefetch(record);
    for (int64_t at = size < 256 ? 0 : size - 256; at < size; at += 64)
        __builtin_prefetch(record + at);
    __builtin_prefetch(record + (size < HEAD_BYTES ? 0 : HEAD_BYTES - 4));
#else
    (void)record, (void)size;
#endif
}

#define PREFETCHED_ENTRIES 4

/* The part of the mapped log that may be read, from the log offset `start` on. */
typedef struct {
    const unsigned char *at;
    int64_t start, low, high;
} Log;

/* Read (log, start, low, high). The buffer of the log is the caller's, if this returns 1. */
static int read_log(PyObject *const *arguments, Py_buffer *mapped, Log *log)
{
    if (!read_number(arguments[1], 64, &log->start) || !read_number(arguments[2], 64, &log->low)
        || !read_number(arguments[3], 64, &log->high))
        return 0;
    if (log->start < 0) {
        PyErr_SetString(PyExc_ValueError, "the log's start is negative");
        return 0;
    }
    if (PyObject_GetBuffer(arguments[0], mapped, PyBUF_SIMPLE) < 0)
        return 0;
    log->at = mapped->buf;
    log->low = log->low < log->start ? log->start : log->low;
    log->high = log->high < log->start ? log->start : log->high;
    log->high = log->high - log->start > mapped->len ? log->start + mapped->len : log->high;
    return 1;
}

/* What records before this log offset are checked for, which were on the disk when the process started. */
typedef struct {
    int64_t before, queue_id;
    Bytes topic;
} Check;

/* A record that is taken, and the position of its entry. */
typedef struct {
    Bytes record;
    int64_t at;
} Taken;

/* The bytes of the record to which an entry points, NULL if they may not be read. */
static inline const unsigned char *record_of(const Log *log, const unsigned char *entry)
{
    int64_t offset = (int64_t)get64(entry), size = (int32_t)get32(entry + 8);
    if (size <= 0 || offset < log->low || offset > log->high || size > log->high - offset)
        return NULL;
    return log->at + (offset - log->start);
}

/* Whether `size` bytes are one whole record with a valid body CRC, at its own offset, and of the queue. */
static int is_sound(const Check *check, const unsigned char *record, int64_t size, int64_t offset)
{
    Bytes stored;
    if (!properties_of(record, size, &stored))
        return 0;
    const unsigned char *body = record + head_bytes(record);
    Py_ssize_t body_length = (Py_ssize_t)get32(body - 4);
    const unsigned char *topic = body + body_length + 1;
    return (int32_t)get32(record + 12) == check->queue_id && (int64_t)get64(record + RECORD_OFFSET_AT) == offset
           && topic[-1] == check->topic.size && memcmp(topic, check->topic.at, topic[-1]) == 0
           && get32(record + 8) == body_crc(body, body_length);
}

/* Whether an entry's record matches: TRUE_VALUE, or FALSE_VALUE, UNKNOWN_VALUE; else Python decides. */
static int matches(
    const Log *log, const unsigned char *entry, const unsigned char *codes, Py_ssize_t code_count,
    const Conditions *conditions)
{
    if (code_count > 0)
        return has_code(codes, code_count, (int32_t)get32(entry + 16)) ? TRUE_VALUE : FALSE_VALUE;
    if (conditions == NULL)
        return TRUE_VALUE;
    Bytes stored, found[MAX_NAMES];
    if (!properties_of(record_of(log, entry), (int32_t)get32(entry + 8), &stored))
        return UNSURE;
    find_properties(conditions, stored, found);
    return evaluate(conditions, found);
}

/* The records joined; those that lie next to each other are copied together. */
static PyObject *joined(const Taken *taken, Py_ssize_t count)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        size += taken[i].record.size;
    PyObject *whole = PyBytes_FromStringAndSize(NULL, size);
    unsigned char *at = whole == NULL ? NULL : (unsigned char *)PyBytes_AS_STRING(whole);
    for (Py_ssize_t i = 0; at != NULL && i < count;) {
        Bytes run = taken[i++].record;
        for (; i < count && run.at + run.size == taken[i].record.at; i++)
            run.size += taken[i].record.size;
        at = put_data(at, run.at, run.size);
    }
    return whole;
}

/* How many of the joined records are sound, up to the first that is not, and their size. To check them in the copy, which
   the processor's caches have, is faster than in the log, of which they have nothing. */
static Py_ssize_t sound_part(
    const Check *check, const unsigned char *entries, const Taken *taken, Py_ssize_t count, PyObject *whole, Py_ssize_t *size)
{
    const unsigned char *begin = (const unsigned char *)PyBytes_AS_STRING(whole), *at = begin;
    Py_ssize_t sound = 0;
    for (; sound < count; at += taken[sound++].record.size) {
        int64_t offset = (int64_t)get64(entries + taken[sound].at);
        if (offset < check->before && !is_sound(check, at, taken[sound].record.size, offset))
            break;
    }
    *size = at - begin;
    return sound;
}

PyDoc_STRVAR(take_records_doc,
"take_records($module, entries, at, count, first_room, room, most, log, start, low, high, checked_before, queue_id, topic,\n"
"codes, conditions, /)\n--\n\n-> (position, number of records, records)");

static PyObject *take_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t at, left, longest, room, most;
    Log log;
    Check check;
    Conditions conditions;
    Py_buffer mapped;
    if (!count_is(count, 15, "take_records") || !is_bytes(arguments[0]) || !read_number(arguments[1], 64, &at)
        || !read_number(arguments[2], 64, &left) || !read_number(arguments[3], 64, &longest)
        || !read_number(arguments[4], 64, &room) || !read_number(arguments[5], 64, &most)
        || !read_number(arguments[10], 64, &check.before)
        || !read_number(arguments[11], 64, &check.queue_id) || !is_bytes(arguments[12]) || !is_bytes(arguments[13])
        || !is_bytes(arguments[14]))
        return NULL;
    check.topic = (Bytes){(const unsigned char *)PyBytes_AS_STRING(arguments[12]), PyBytes_GET_SIZE(arguments[12])};
    int has_conditions = PyBytes_GET_SIZE(arguments[14]) > 0;
    if (at < 0 || (has_conditions && !read_conditions(arguments[14], &conditions))) {
        PyErr_SetString(PyExc_ValueError, "position or conditions are malformed");
        return NULL;
    }
    const unsigned char *entries = (const unsigned char *)PyBytes_AS_STRING(arguments[0]);
    const unsigned char *codes = (const unsigned char *)PyBytes_AS_STRING(arguments[13]);
    int64_t end = PyBytes_GET_SIZE(arguments[0]), entry_count = end / ENTRY_BYTES;
    Py_ssize_t code_count = PyBytes_GET_SIZE(arguments[13]) / 4, taken_count = 0;
    Taken *taken = PyMem_New(Taken, left < 1 ? 1 : left < entry_count ? left : entry_count + 1);
    if (taken == NULL)
        return PyErr_NoMemory();
    if (!read_log(arguments + 6, &mapped, &log)) {
        PyMem_Free(taken);
        return NULL;
    }
    int value = FALSE_VALUE;
    for (; at <= end - ENTRY_BYTES && taken_count < left && most > 0; at += ENTRY_BYTES, most--) {
        const unsigned char *record = record_of(&log, entries + at), *next;
        int64_t size = (int32_t)get32(entries + at + 8), ahead = at + PREFETCHED_ENTRIES * ENTRY_BYTES;
        if (has_conditions && ahead <= end - ENTRY_BYTES && (next = record_of(&log, entries + ahead)) != NULL)
            prefetch(next, (int32_t)get32(entries + ahead + 8));
        if (record == NULL || size > longest)
            break;
        value = matches(&log, entries + at, codes, code_count, has_conditions ? &conditions : NULL);
        if (value == FALSE_VALUE || value == UNKNOWN_VALUE)
            continue;
        if (value != TRUE_VALUE)
            break;
        taken[taken_count++] = (Taken){{record, (Py_ssize_t)size}, at};
        room -= size;
        longest = room;
    }
    PyObject *body = value == MALFORMED ? NULL : joined(taken, taken_count);
    PyBuffer_Release(&mapped);
    if (body != NULL) {
        Py_ssize_t size, sound = sound_part(&check, entries, taken, taken_count, body, &size);
        if (sound < taken_count) {
            at = taken[sound].at;
            taken_count = sound;
            _PyBytes_Resize(&body, size);
        }
    }
    PyMem_Free(taken);
    if (value == MALFORMED) {
        PyErr_SetString(PyExc_ValueError, "the steps of the conditions are malformed");
        return NULL;
    }
    PyObject *found[] = {PyLong_FromLongLong(at), PyLong_FromSsize_t(taken_count), body};
    return tuple_of(found, 3);
}

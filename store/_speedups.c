/* The functions of store/ that every message passes, again in C: index entries, consume queue entries, reading a record
   back from the log, taking what a filter matches, delivering what is due, and the entries of a group's ledger. Each does
   exactly what the Python function of the same name plus "_reference" does, in index_file.py, consume_queue.py,
   scanned_record.py, delivering.py and dledger/ledger/runs.py (see protocol/speedups.py); take_records is a fast path.
   tests/store/test_store_speedups.py, test_store_due_records.py and test_store_filters.py compare them. No function keeps state between calls. */

#include "../protocol/_speedups.h"

/* Constants of index_file.py (and the entry size, which consume queues happen to share). */
#define HEADER_BYTES 40
#define SLOT_BYTES 4
#define ENTRY_BYTES 20
#define PAGE_BYTES 4096

/* Return whether `text` is a str whose characters can be read; an exception is set if not. */
static int is_text(PyObject *text)
{
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "topic and keys must be str");
        return 0;
    }
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(text) < 0)
        return 0;
#endif
    return 1;
}

/* Continue Java's string hash with `text`. */
static int continue_hash(PyObject *text, uint32_t *value)
{
    if (!is_text(text))
        return 0;
    *value = java_hash(text, *value);
    return 1;
}

/* Math.abs, and 0 for Integer.MIN_VALUE, as IndexService does. */
static inline uint32_t absolute(uint32_t value)
{
    return value == 0x80000000 ? 0 : value & 0x80000000 ? 0 - value : value;
}

PyDoc_STRVAR(key_hash_doc, "key_hash($module, topic, key, /)\n--\n\n-> int");

static PyObject *key_hash(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    uint32_t value = 0;
    if (!count_is(count, 2, "key_hash") || !continue_hash(arguments[0], &value))
        return NULL;
    value = 31 * value + '#';
    if (!continue_hash(arguments[1], &value))
        return NULL;
    return PyLong_FromLong((long)absolute(value));
}

typedef struct {
    unsigned char *slots, *pages, *entries;
    int64_t slot_count, number, physical_offset, seconds;
    int new_slots;
} Writing;

/* Append one entry; the caller has made room for it. */
static void write_one(Writing *file, uint32_t code)
{
    Py_ssize_t at = HEADER_BYTES + code % file->slot_count * SLOT_BYTES;
    int32_t previous = (int32_t)get32(file->slots + at);
    int is_new = previous <= 0 || previous >= file->number;
    file->entries = put64(put32(file->entries, code), (uint64_t)file->physical_offset);
    file->entries = put32(put32(file->entries, (uint32_t)file->seconds), is_new ? 0 : (uint32_t)previous);
    put32(file->slots + at, (uint32_t)file->number);
    file->pages[at / PAGE_BYTES] = 1;
    file->number++;
    file->new_slots += is_new;
}

/* Count the keys in `keys`, which spaces separate, and append an entry for each when `file` is given. */
static int walk_keys(PyObject *keys, uint32_t topic_hash, Writing *file)
{
    int kind = PyUnicode_KIND(keys), found = 0, is_inside = 0;
    const void *data = PyUnicode_DATA(keys);
    Py_ssize_t size = PyUnicode_GET_LENGTH(keys);
    uint32_t code = topic_hash;
    for (Py_ssize_t i = 0; i <= size; i++) {
        uint32_t unit = i < size ? PyUnicode_READ(kind, data, i) : ' ';
        if (unit != ' ') {
            is_inside = 1;
            code = java_hash_of_character(unit, code);
        } else if (is_inside) {
            found++;
            if (file != NULL)
                write_one(file, absolute(code));
            is_inside = 0;
            code = topic_hash;
        }
    }
    return found;
}

/* Return the number of keys of a message: (topic, UNIQ_KEY, KEYS, physical offset, store timestamp), -1 with an exception set if
   it is not that. Runs no Python code. */
static Py_ssize_t count_keys(PyObject *message)
{
    int64_t number;
    if (!PyTuple_Check(message) || PyTuple_GET_SIZE(message) != 5 || !PyLong_Check(PyTuple_GET_ITEM(message, 3))
        || !PyLong_Check(PyTuple_GET_ITEM(message, 4))) {
        PyErr_SetString(PyExc_TypeError, "messages must be tuples of three texts and two numbers");
        return -1;
    }
    PyObject *uniq_key = PyTuple_GET_ITEM(message, 1), *keys = PyTuple_GET_ITEM(message, 2);
    if (!is_text(PyTuple_GET_ITEM(message, 0)) || (uniq_key != Py_None && !is_text(uniq_key)) || (keys != Py_None && !is_text(keys))
        || !read_number(PyTuple_GET_ITEM(message, 3), 64, &number) || !read_number(PyTuple_GET_ITEM(message, 4), 64, &number))
        return -1;
    Py_ssize_t has_uniq_key = uniq_key != Py_None && PyUnicode_GET_LENGTH(uniq_key) > 0;
    return has_uniq_key + (keys != Py_None ? walk_keys(keys, 0, NULL) : 0);
}

/* Write the keys of a message that count_keys has accepted; entry times count from `begin` (ms) if that is positive. */
static void write_message(Writing *file, PyObject *message, int64_t begin)
{
    PyObject *uniq_key = PyTuple_GET_ITEM(message, 1), *keys = PyTuple_GET_ITEM(message, 2);
    int64_t timestamp = PyLong_AsLongLong(PyTuple_GET_ITEM(message, 4));
    file->physical_offset = PyLong_AsLongLong(PyTuple_GET_ITEM(message, 3));
    file->seconds = begin > 0 && timestamp > begin ? (timestamp - begin) / 1000 : 0; /* both positive: no overflow */
    if (file->seconds > INT32_MAX)
        file->seconds = INT32_MAX;
    uint32_t topic_hash = 31 * java_hash(PyTuple_GET_ITEM(message, 0), 0) + '#';
    if (uniq_key != Py_None && PyUnicode_GET_LENGTH(uniq_key) > 0)
        write_one(file, absolute(java_hash(uniq_key, topic_hash)));
    if (keys != Py_None)
        walk_keys(keys, topic_hash, file);
}

PyDoc_STRVAR(write_keys_doc,
"write_keys($module, slots, dirty_pages, entries, slot_count, number, entry_limit, begin_timestamp, messages, start, /)"
"\n--\n\n-> (index of the first message whose keys have no room, number of new slots)");

static PyObject *write_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Writing file = {0};
    int64_t limit, begin, start;
    Py_buffer slots;
    if (!count_is(count, 9, "write_keys"))
        return NULL;
    PyObject *pages = arguments[1], *entries = arguments[2], *messages = arguments[7];
    if (!PyByteArray_Check(pages) || !PyByteArray_Check(entries) || !PyList_Check(messages)) {
        PyErr_SetString(PyExc_TypeError, "dirty_pages and entries must be bytearrays, messages a list");
        return NULL;
    }
    if (!read_number(arguments[3], 32, &file.slot_count) || !read_number(arguments[4], 32, &file.number)
        || !read_number(arguments[5], 32, &limit) || !read_number(arguments[6], 64, &begin)
        || !read_number(arguments[8], 32, &start))
        return NULL;
    if (start < 0) {
        PyErr_SetString(PyExc_IndexError, "start is negative");
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &slots, PyBUF_WRITABLE) < 0)
        return NULL;
    if (file.slot_count <= 0 || HEADER_BYTES + file.slot_count * SLOT_BYTES > slots.len
        || (HEADER_BYTES + (file.slot_count - 1) * SLOT_BYTES) / PAGE_BYTES >= PyByteArray_GET_SIZE(pages)) {
        PyErr_SetString(PyExc_IndexError, "slot table exceeds the file");
        PyBuffer_Release(&slots);
        return NULL;
    }
    /* Everything that can fail comes first, and from here on no Python code runs that could change the list. */
    Py_ssize_t stop = start, wanted = 0;
    for (; stop < PyList_GET_SIZE(messages); stop++) {
        Py_ssize_t found = count_keys(PyList_GET_ITEM(messages, stop));
        if (found < 0) {
            PyBuffer_Release(&slots);
            return NULL;
        }
        if (found > limit - file.number - wanted)
            break;
        wanted += found;
    }
    Py_ssize_t used = PyByteArray_GET_SIZE(entries);
    if (PyByteArray_Resize(entries, used + wanted * ENTRY_BYTES) < 0) {
        PyBuffer_Release(&slots);
        return NULL;
    }
    file.slots = slots.buf;
    file.pages = (unsigned char *)PyByteArray_AS_STRING(pages);
    file.entries = (unsigned char *)PyByteArray_AS_STRING(entries) + used;
    for (Py_ssize_t at = start; at < stop; at++)
        write_message(&file, PyList_GET_ITEM(messages, at), begin);
    PyBuffer_Release(&slots);
    return Py_BuildValue("(ni)", stop, file.new_slots);
}

PyDoc_STRVAR(add_queue_entry_doc, "add_queue_entry($module, buffer, physical_offset, size_bytes, tags_code, /)\n--\n\n-> None");

static PyObject *add_queue_entry(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t physical_offset, size, tags_code;
    if (!count_is(count, 4, "add_queue_entry"))
        return NULL;
    PyObject *buffer = arguments[0];
    if (!PyByteArray_Check(buffer)) {
        PyErr_SetString(PyExc_TypeError, "buffer must be a bytearray");
        return NULL;
    }
    if (!read_number(arguments[1], 64, &physical_offset) || !read_number(arguments[2], 32, &size)
        || !read_number(arguments[3], 64, &tags_code))
        return NULL;
    Py_ssize_t used = PyByteArray_GET_SIZE(buffer);
    if (PyByteArray_Resize(buffer, used + ENTRY_BYTES) < 0)
        return NULL;
    unsigned char *at = (unsigned char *)PyByteArray_AS_STRING(buffer) + used;
    put64(put32(put64(at, (uint64_t)physical_offset), (uint32_t)size), (uint64_t)tags_code);
    Py_RETURN_NONE;
}

/* -- the log: see scanned_record.py -------------------------------------------------------------------------------- */

#define HEAD_BYTES 88
#define RECORD_OFFSET_AT 28

PyDoc_STRVAR(scan_record_doc,
"scan_record($module, data, at, end, /)\n--\n\n"
"-> (size, body CRC, queue id, queue offset, physical offset, sys flag, store timestamp, body length, topic,\n"
"stored properties) | None");

static PyObject *scan_record(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t start, end;
    if (!count_is(count, 3, "scan_record") || !is_bytes(arguments[0]) || !read_number(arguments[1], 64, &start)
        || !read_number(arguments[2], 64, &end))
        return NULL;
    if (start < 0 || end < HEAD_BYTES || end > PyBytes_GET_SIZE(arguments[0]) || start > end - HEAD_BYTES)
        Py_RETURN_NONE;
    const unsigned char *head = (const unsigned char *)PyBytes_AS_STRING(arguments[0]) + start;
    int64_t size = (int32_t)get32(head), body_length = (int32_t)get32(head + 84);
    if (get32(head + 4) != MESSAGE_MAGIC || get32(head + 36) & (BORN_HOST_V6 | STORE_HOST_V6) || size < FIXED_BYTES || size > end - start
        || body_length < 0 || body_length > size - FIXED_BYTES)
        Py_RETURN_NONE;
    /* size >= FIXED_BYTES + body_length: the topic length and the properties length lie inside the record */
    const unsigned char *topic = head + HEAD_BYTES + body_length + 1;
    Py_ssize_t topic_size = topic[-1], properties_size = size - FIXED_BYTES - body_length - topic_size;
    if (properties_size < 0)
        Py_RETURN_NONE;
    const unsigned char *properties = topic + topic_size + 2;
    if ((properties[-2] << 8 | properties[-1]) != properties_size)
        Py_RETURN_NONE;
    PyObject *found[] = {
        PyLong_FromLongLong(size),
        PyLong_FromLong((int32_t)get32(head + 8)),
        PyLong_FromLong((int32_t)get32(head + 12)),
        PyLong_FromLongLong((int64_t)get64(head + 20)),
        PyLong_FromLongLong((int64_t)get64(head + 28)),
        PyLong_FromLong((int32_t)get32(head + 36)),
        PyLong_FromLongLong((int64_t)get64(head + 56)),
        PyLong_FromLongLong(body_length),
        PyBytes_FromStringAndSize((const char *)topic, topic_size),
        PyBytes_FromStringAndSize((const char *)properties, properties_size),
    };
    return tuple_of(found, sizeof found / sizeof *found);
}

/* -- filters: see collecting.py -------------------------------------------------------------------------------------- */

/* Whether `code` is among `count` int32 in ascending order. */
static int has_code(const unsigned char *codes, Py_ssize_t count, int32_t code)
{
    Py_ssize_t low = 0, high = count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        int32_t found = (int32_t)get32(codes + 4 * middle);
        if (found == code)
            return 1;
        if (found < code)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

#define MAX_NAMES 16
#define MAX_STACK 32
enum {PRESENT = 1, TEXT, INTEGER, DOUBLE, BOOLEAN, NOT, AND, OR, CONSTANT};
enum {FALSE_VALUE, TRUE_VALUE, UNKNOWN_VALUE, UNSURE, MALFORMED};
#define LESS 1
#define EQUAL 2
#define GREATER 4

typedef struct {
    Bytes names[MAX_NAMES];
    int name_count;
    Bytes steps;
} Conditions;

/* Take `size` bytes from the front, NULL if there are not so many. */
static inline const unsigned char *take(Bytes *rest, Py_ssize_t size)
{
    if (rest->size < size)
        return NULL;
    const unsigned char *taken = rest->at;
    rest->at += size;
    rest->size -= size;
    return taken;
}

static int read_conditions(PyObject *object, Conditions *conditions)
{
    Bytes rest = {(const unsigned char *)PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)};
    const unsigned char *size = take(&rest, 1);
    if (size == NULL || *size > MAX_NAMES)
        return 0;
    conditions->name_count = *size;
    for (int i = 0; i < conditions->name_count; i++) {
        size = take(&rest, 1);
        if (size == NULL || (conditions->names[i].at = take(&rest, *size)) == NULL)
            return 0;
        conditions->names[i].size = *size;
    }
    conditions->steps = rest;
    return 1;
}

/* Find the properties with the names. Of duplicate names the last one with a value wins. */
static void find_properties(const Conditions *conditions, Bytes stored, Bytes *found)
{
    const unsigned char *at = stored.at, *stop = at + stored.size;
    Bytes name, value;
    for (int i = 0; i < conditions->name_count; i++)
        found[i] = (Bytes){NULL, 0};
    while (next_pair(&at, stop, &name, &value) != NULL)
        for (int i = 0; i < conditions->name_count; i++)
            if (is_same(conditions->names[i], name))
                found[i] = value;
}

static int is_in_order(int orders, int is_less, int is_greater)
{
    return (orders & (is_less ? LESS : is_greater ? GREATER : EQUAL)) != 0;
}

/* Read decimal digits, at most `most`, and behind a point further ones when `places` is given. Return 0 for other text. */
static int read_sql_number(Bytes text, int most, int64_t *number, int *places)
{
    int digits = 0, has_point = 0, is_negative = text.size > 0 && *text.at == '-';
    int64_t value = 0;
    if (text.size > 0 && (*text.at == '-' || *text.at == '+'))
        take(&text, 1);
    for (; text.size > 0; take(&text, 1)) {
        if (*text.at == '.' && places != NULL && digits > 0 && !has_point) {
            has_point = 1;
            continue;
        }
        if (*text.at < '0' || *text.at > '9' || ++digits > most)
            return 0;
        value = 10 * value + (*text.at - '0');
        if (has_point)
            ++*places;
    }
    *number = is_negative ? -value : value;
    return digits > 0 && !(is_negative && value == 0 && places != NULL);
}

static int compare_integer(Bytes *steps, Bytes text)
{
    const unsigned char *operand = take(steps, 10);
    if (operand == NULL || (operand[1] != 32 && operand[1] != 64))
        return MALFORMED;
    if (text.at == NULL)
        return FALSE_VALUE;
    int64_t constant = (int64_t)get64(operand + 2), value;
    if (!read_sql_number(text, 18, &value, NULL) || (operand[1] == 32 && (value < INT32_MIN || value > INT32_MAX)))
        return UNSURE;
    return is_in_order(operand[0], value < constant, value > constant);
}

/* Fifteen digits and a power of ten up to 10**15 are exact as doubles, and so their quotient is the nearest double. */
static int compare_double(Bytes *steps, Bytes text)
{
    const unsigned char *operand = take(steps, 9);
    if (operand == NULL)
        return MALFORMED;
    if (text.at == NULL)
        return FALSE_VALUE;
    int64_t digits;
    int places = 0;
    if (!read_sql_number(text, 15, &digits, &places))
        return UNSURE;
    uint64_t bits = get64(operand + 1);
    double constant, value = (double)digits, power = 1;
    memcpy(&constant, &bits, sizeof constant);
    while (places-- > 0)
        power *= 10;
    value /= power;
    if (!(constant < 0 || constant > 0))
        return UNSURE;
    return is_in_order(operand[0], value < constant, value > constant);
}

static int is_one_of(Bytes *steps, Bytes text)
{
    const unsigned char *operand = take(steps, 3);
    if (operand == NULL || operand[0] > 1)
        return MALFORMED;
    int is_found = 0;
    for (int left = operand[1] << 8 | operand[2]; left > 0; left--) {
        const unsigned char *size = take(steps, 2), *each;
        Py_ssize_t each_size = size == NULL ? 0 : size[0] << 8 | size[1];
        if (size == NULL || (each = take(steps, each_size)) == NULL)
            return MALFORMED;
        is_found |= text.at != NULL && each_size == text.size && memcmp(each, text.at, (size_t)each_size) == 0;
    }
    return is_found ? operand[0] : !operand[0];
}

static int equals_boolean(Bytes *steps, Bytes text)
{
    const unsigned char *operand = take(steps, 1);
    if (operand == NULL || operand[0] > 1)
        return MALFORMED;
    for (Py_ssize_t i = 0; i < text.size; i++)
        if (text.at[i] >= 0x80)
            return UNSURE;
    int is_true = text.size == 4;
    for (Py_ssize_t i = 0; is_true && i < 4; i++)
        is_true = (text.at[i] | 0x20) == "true"[i];
    return is_true == operand[0];
}

/* The value of a step that looks at a property. */
static int look_at_property(int kind, Bytes *steps, int name_count, const Bytes *found)
{
    const unsigned char *which = take(steps, 2), *present;
    if (which == NULL || which[0] >= name_count || which[1] > UNKNOWN_VALUE)
        return MALFORMED;
    Bytes text = found[which[0]];
    int value = MALFORMED;
    if (kind == PRESENT)
        value = (present = take(steps, 1)) == NULL || *present > UNKNOWN_VALUE ? MALFORMED : *present;
    else if (kind == TEXT)
        value = is_one_of(steps, text);
    else if (kind == INTEGER)
        value = compare_integer(steps, text);
    else if (kind == DOUBLE)
        value = compare_double(steps, text);
    else if (kind == BOOLEAN)
        value = equals_boolean(steps, text);
    return value == MALFORMED || text.at != NULL ? value : which[1];
}

/* The value of the whole for these properties; UNSURE if any step is unsure, whether or not it matters. */
static int evaluate(const Conditions *conditions, const Bytes *found)
{
    unsigned char stack[MAX_STACK];
    int depth = 0, is_unsure = 0;
    Bytes steps = conditions->steps;
    while (steps.size > 0) {
        int kind = *take(&steps, 1), value;
        if (kind == NOT) {
            if (depth < 1)
                return MALFORMED;
            value = stack[--depth];
            value = value == UNKNOWN_VALUE ? value : !value;
        } else if (kind == AND || kind == OR) {
            const unsigned char *operands = take(&steps, 1);
            if (operands == NULL || *operands < 1 || *operands > depth)
                return MALFORMED;
            value = kind == AND;
            int decisive = !value;
            for (int left = *operands; left > 0; left--) {
                int each = stack[--depth];
                if (value != decisive && each != !decisive)
                    value = each;
            }
        } else if (kind == CONSTANT) {
            const unsigned char *constant = take(&steps, 1);
            if (constant == NULL || *constant > UNKNOWN_VALUE)
                return MALFORMED;
            value = *constant;
        } else {
            value = look_at_property(kind, &steps, conditions->name_count, found);
        }
        if (value == MALFORMED || depth == MAX_STACK)
            return MALFORMED;
        is_unsure |= value == UNSURE;
        stack[depth++] = value == UNSURE ? UNKNOWN_VALUE : (unsigned char)value;
    }
    return depth != 1 ? MALFORMED : is_unsure ? UNSURE : stack[0];
}

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

/* -- delayed messages that are due: see delivering.py ---------------------------------------------------------------- */

#define TRANSACTION_MASK 0xC
#define QUEUE_HEAD_BYTES 12
#define MAX_QUEUE_ID_DIGITS 10

enum {REAL_TOPIC = FIRST_WANTED, REAL_QUEUE_ID, LOOKED_FOR};

/* Where the messages of due records go. `queues` has by topic, \1 and queue id, as in the properties, the pair of a queue
   and what the record says of it: queue id 4, next queue offset 8, topic. */
typedef struct {
    PyObject *tail, *queues, *taken;
    int64_t longest, physical_offset, room, store_timestamp;
} Delivery;

static int read_delivery(PyObject *tuple, Delivery *delivery)
{
    int64_t *numbers[] = {&delivery->longest, &delivery->physical_offset, &delivery->room, &delivery->store_timestamp};
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 7 || !PyByteArray_Check(PyTuple_GET_ITEM(tuple, 0))
        || !PyDict_CheckExact(PyTuple_GET_ITEM(tuple, 1)) || !PyList_Check(PyTuple_GET_ITEM(tuple, 2))) {
        PyErr_SetString(PyExc_TypeError, "to must be a tuple of tail, queues, taken and four numbers");
        return 0;
    }
    delivery->tail = PyTuple_GET_ITEM(tuple, 0);
    delivery->queues = PyTuple_GET_ITEM(tuple, 1);
    delivery->taken = PyTuple_GET_ITEM(tuple, 2);
    for (int i = 0; i < 4; i++)
        if (!read_number(PyTuple_GET_ITEM(tuple, 3 + i), 64, numbers[i]))
            return 0;
    return 1;
}

/* Find what says where a message goes, and what its queue and the index take of it. Return 0 for what Python decides
   about: properties that encoding would change, and those that do not name a queue. */
static int read_delayed(Bytes stored, Noted *noted)
{
    begin_walk(noted);
    noted->wanted[0] = (Bytes){(const unsigned char *)"REAL_TOPIC", 10};
    noted->wanted[1] = (Bytes){(const unsigned char *)"REAL_QID", 8};
    noted->wanted_count = 2;
    if (stored.size > MAX_PROPERTIES_BYTES || !walk_properties(noted, stored))
        return 0;
    Bytes queue_id = noted->found[REAL_QUEUE_ID];
    for (Py_ssize_t i = 0; i < queue_id.size; i++)
        if (queue_id.at[i] < '0' || queue_id.at[i] > '9')
            return 0;
    return noted->found[REAL_TOPIC].at != NULL && queue_id.at != NULL && queue_id.size <= MAX_QUEUE_ID_DIGITS;
}

/* The pair of queue and head for these properties, borrowed; NULL if there is none, and `*unknown` is its key then. */
static PyObject *real_queue(PyObject *queues, const Bytes *found, PyObject **unknown)
{
    Py_ssize_t size = found[REAL_TOPIC].size + 1 + found[REAL_QUEUE_ID].size;
    PyObject *key = PyBytes_FromStringAndSize(NULL, size);
    if (key == NULL)
        return NULL;
    unsigned char *at = (unsigned char *)PyBytes_AS_STRING(key);
    at = put_data(at, found[REAL_TOPIC].at, found[REAL_TOPIC].size);
    *at++ = 1;
    put_data(at, found[REAL_QUEUE_ID].at, found[REAL_QUEUE_ID].size);
    PyObject *pair = PyDict_GetItemWithError(queues, key);
    if (pair == NULL && !PyErr_Occurred()) {
        *unknown = key;
        return NULL;
    }
    Py_DECREF(key);
    if (pair != NULL && (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyByteArray_Check(PyTuple_GET_ITEM(pair, 1))
        || PyByteArray_GET_SIZE(PyTuple_GET_ITEM(pair, 1)) < QUEUE_HEAD_BYTES
        || PyByteArray_GET_SIZE(PyTuple_GET_ITEM(pair, 1)) > QUEUE_HEAD_BYTES + MAX_TOPIC_BYTES)) {
        PyErr_SetString(PyExc_TypeError, "a queue must be a pair with its head");
        return NULL;
    }
    return pair;
}

/* Append the message of the record of `size` bytes at log offset `offset`. Return 1, or 0 for what Python decides about
   or knows more of (`*unknown`), and for errors. */
static int deliver(Delivery *to, const unsigned char *record, int64_t offset, int64_t size, PyObject **unknown)
{
    Bytes stored;
    Noted noted;
    const Bytes *found = noted.found;
    if (size > to->longest || !properties_of(record, size, &stored) || (int64_t)get64(record + RECORD_OFFSET_AT) != offset)
        return 0;
    uint32_t flags = get32(record + 36);
    if (flags & TRANSACTION_MASK || get32(record + 8) & 0x80000000u || !read_delayed(stored, &noted))
        return 0;
    PyObject *pair = real_queue(to->queues, found, unknown);
    if (pair == NULL)
        return 0;
    PyObject *head = PyTuple_GET_ITEM(pair, 1);
    Py_ssize_t topic_size = PyByteArray_GET_SIZE(head) - QUEUE_HEAD_BYTES, used = PyByteArray_GET_SIZE(to->tail);
    int64_t head_size = head_bytes(record);
    int64_t body_end = head_size + (int32_t)get32(record + head_size - 4);
    int64_t new_size = body_end + 1 + topic_size + 2 + stored.size;
    if (new_size > to->room || !lengthen(to->tail, used + new_size))
        return 0;
    unsigned char *at = (unsigned char *)PyByteArray_AS_STRING(to->tail) + used;
    unsigned char *queue = (unsigned char *)PyByteArray_AS_STRING(head);
    int64_t queue_offset = (int64_t)get64(queue + 4);
    put_data(at, record, (Py_ssize_t)body_end);
    put32(at, (uint32_t)new_size);
    put_data(at + 12, queue, 4);
    put64(put64(at + 20, (uint64_t)queue_offset), (uint64_t)to->physical_offset);
    put64(at + (flags & BORN_HOST_V6 ? 68 : 56), (uint64_t)to->store_timestamp);
    put64(at + head_size - 12, 0);  /* the offset of a prepared transaction */
    at += body_end;
    *at++ = (unsigned char)topic_size;
    at = put_data(at, queue + QUEUE_HEAD_BYTES, topic_size);
    put_data(put16(at, (uint32_t)stored.size), stored.at, stored.size);
    put64(queue + 4, (uint64_t)queue_offset + 1);
    PyObject *items[] = {
        Py_NewRef(PyTuple_GET_ITEM(pair, 0)),
        PyLong_FromLongLong(queue_offset),
        PyLong_FromLongLong(to->physical_offset),
        PyLong_FromLongLong(new_size),
        PyLong_FromLong((int32_t)java_hash_of_bytes(found[TAGS].at, found[TAGS].size, 0)),
        found[UNIQ_KEY].at == NULL ? Py_NewRef(Py_None) : ascii_text(found[UNIQ_KEY].at, found[UNIQ_KEY].size),
        found[KEYS].at == NULL ? Py_NewRef(Py_None) : ascii_text(found[KEYS].at, found[KEYS].size),
    };
    PyObject *item = tuple_of(items, sizeof items / sizeof *items);
    if (item == NULL || PyList_Append(to->taken, item) < 0) {
        Py_XDECREF(item);
        return 0;
    }
    Py_DECREF(item);
    to->physical_offset += new_size;
    to->room -= new_size;
    return 1;
}

PyDoc_STRVAR(deliver_records_doc,
"deliver_records($module, entries, at, room, due, log, start, low, high, to, /)\n--\n\n-> (position, key of an unknown queue)");

static PyObject *deliver_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t at, room, due;
    Log log;
    Delivery to;
    Py_buffer mapped;
    if (!count_is(count, 9, "deliver_records") || !is_bytes(arguments[0]) || !read_number(arguments[1], 64, &at)
        || !read_number(arguments[2], 64, &room) || !read_number(arguments[3], 64, &due)
        || !read_delivery(arguments[8], &to) || !read_log(arguments + 4, &mapped, &log))
        return NULL;
    int64_t end = PyBytes_GET_SIZE(arguments[0]);
    Py_ssize_t used = PyByteArray_GET_SIZE(to.tail);
    PyObject *unknown = NULL;
    for (; at >= 0 && at <= end - ENTRY_BYTES; at += ENTRY_BYTES) {
        const unsigned char *entry = (const unsigned char *)PyBytes_AS_STRING(arguments[0]) + at;
        const unsigned char *record = record_of(&log, entry);
        int64_t size = (int32_t)get32(entry + 8), code = (int64_t)get64(entry + 12);
        if (record == NULL || size > room || code > due || code < INT32_MIN
            || !deliver(&to, record, (int64_t)get64(entry), size, &unknown))
            break;
        room -= size;
    }
    PyBuffer_Release(&mapped);
    if (PyErr_Occurred()) {
        Py_XDECREF(unknown);
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyByteArray_Resize(to.tail, used);  /* which was longer, so it does not fail */
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    PyObject *found[] = {PyLong_FromLongLong(at), unknown != NULL ? unknown : PyBytes_FromStringAndSize(NULL, 0)};
    return tuple_of(found, 2);
}

/* -- the ledger of a group: see dledger/ledger/runs.py -------------------------------------------------------------- */

#define LEDGER_HEADER_BYTES 48
#define LEDGER_UNIT_BYTES 32
#define LEDGER_BLANK_BYTES 8
#define LONGEST_LEDGER_ENTRY_BYTES 4194304
#define LEDGER_MAGIC 1

/* Write header and unit of the entry at `pos` whose body is the record of `size` bytes. */
static void write_ledger_entry(
    unsigned char *entry, unsigned char *unit, const unsigned char *record, uint32_t size, uint64_t index, uint64_t term,
    uint64_t pos)
{
    uint32_t whole = size + LEDGER_HEADER_BYTES;
    unsigned char *at = put64(put64(put64(put32(put32(entry, LEDGER_MAGIC), whole), index), term), pos);
    at = put32(put32(put32(put32(at, 0), 0), 0), size);
    put_data(at, record, size);
    put64(put64(put32(put64(put32(unit, LEDGER_MAGIC), pos), whole), index), term);
}

PyDoc_STRVAR(entries_of_doc,
"entries_of($module, records, at, index, term, pos, room, /)\n--\n\n-> (entries, index units, where the rest begins)");

static PyObject *entries_of(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t from, index, term, pos, room;
    if (!count_is(count, 6, "entries_of") || !is_bytes(arguments[0]) || !read_number(arguments[1], 64, &from)
        || !read_number(arguments[2], 64, &index) || !read_number(arguments[3], 64, &term)
        || !read_number(arguments[4], 64, &pos) || !read_number(arguments[5], 64, &room))
        return NULL;
    const unsigned char *records = (const unsigned char *)PyBytes_AS_STRING(arguments[0]);
    int64_t end = PyBytes_GET_SIZE(arguments[0]);
    if (from < 0 || from > end || index < 0 || pos < 0 || room < 0 || index > INT64_MAX / 2 || pos > INT64_MAX / 2
        || room > INT64_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "a place is outside of the ledger");
        return NULL;
    }
    int64_t at = from, used = 0, found = 0;
    while (at < end) {
        int64_t size = end - at < FIXED_BYTES ? -1 : (int32_t)get32(records + at);
        if (size < FIXED_BYTES || size > end - at) {
            PyErr_Format(PyExc_ValueError, "the record at %lld of %lld bytes is cut off", (long long)at, (long long)end);
            return NULL;
        }
        int64_t whole = size + LEDGER_HEADER_BYTES;
        if (whole > LONGEST_LEDGER_ENTRY_BYTES || whole + LEDGER_BLANK_BYTES > room - used)
            break;
        int64_t named = (int64_t)get64(records + at + RECORD_OFFSET_AT), here = pos + used + LEDGER_HEADER_BYTES;
        if (named != here) {
            PyErr_Format(
                PyExc_ValueError, "the record for %lld would be written to %lld", (long long)named, (long long)here);
            return NULL;
        }
        used += whole;
        at += size;
        found++;
    }
    PyObject *entries = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)used);
    PyObject *units = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(found * LEDGER_UNIT_BYTES));
    if (entries != NULL && units != NULL) {
        unsigned char *entry = (unsigned char *)PyBytes_AS_STRING(entries);
        unsigned char *unit = (unsigned char *)PyBytes_AS_STRING(units);
        for (at = from, used = 0; found > 0; found--, index++, unit += LEDGER_UNIT_BYTES) {
            uint32_t size = get32(records + at);
            write_ledger_entry(
                entry + used, unit, records + at, size, (uint64_t)index, (uint64_t)term, (uint64_t)(pos + used));
            used += size + LEDGER_HEADER_BYTES;
            at += size;
        }
    }
    PyObject *items[] = {entries, units, PyLong_FromLongLong(at)};
    return tuple_of(items, 3);
}

static PyMethodDef functions[] = {
    FUNCTION(key_hash),
    FUNCTION(write_keys),
    FUNCTION(add_queue_entry),
    FUNCTION(scan_record),
    FUNCTION(take_records),
    FUNCTION(deliver_records),
    FUNCTION(entries_of),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "triomq.store._speedups", "See protocol/speedups.py.", -1, functions, NULL, NULL, NULL, NULL,
};

static const Constant constants[] = {
    {"MESSAGE_MAGIC", (int32_t)MESSAGE_MAGIC},
    {"FIXED_BYTES", FIXED_BYTES},
    {"BORN_HOST_V6", BORN_HOST_V6},
    {"STORE_HOST_V6", STORE_HOST_V6},
    {"HEADER_BYTES", HEADER_BYTES},
    {"SLOT_BYTES", SLOT_BYTES},
    {"ENTRY_BYTES", ENTRY_BYTES},
    {"PAGE_BYTES", PAGE_BYTES},
    {"HEAD_BYTES", HEAD_BYTES},
    {"LEDGER_HEADER_BYTES", LEDGER_HEADER_BYTES},
    {"LEDGER_UNIT_BYTES", LEDGER_UNIT_BYTES},
    {"LEDGER_BLANK_BYTES", LEDGER_BLANK_BYTES},
    {"LONGEST_LEDGER_ENTRY_BYTES", LONGEST_LEDGER_ENTRY_BYTES},
    {"LEDGER_MAGIC", LEDGER_MAGIC},
    {"RECORD_OFFSET_AT", RECORD_OFFSET_AT},
    {"TRANSACTION_MASK", TRANSACTION_MASK},
    {"MAX_TOPIC_BYTES", MAX_TOPIC_BYTES},
    {"MAX_PROPERTIES", MAX_PROPERTIES},
    {"MAX_PROPERTIES_BYTES", MAX_PROPERTIES_BYTES},
    {"MAX_QUEUE_ID_DIGITS", MAX_QUEUE_ID_DIGITS},
    {"QUEUE_HEAD_BYTES", QUEUE_HEAD_BYTES},
    {"MAX_NAMES", MAX_NAMES},
    {"MAX_STACK", MAX_STACK},
    {NULL, 0},
};

PyMODINIT_FUNC PyInit__speedups(void)
{
    return create_module(&definition, constants);
}

/* Index entries and consume queue entries: see index_file.py and consume_queue.py. A part of _speedups.c. */

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

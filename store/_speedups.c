/* The functions of store/ that every message passes, again in C: index entries, consume queue entries, and reading a record
   back from the log. Each does exactly what the Python function of the same name plus "_reference" does, in index_file.py,
   consume_queue.py and scanned_record.py (see protocol/speedups.py); tests/store/test_store_speedups.py compares them. No function
   keeps state between calls. */

#include "../protocol/_speedups.h"

/* Constants of index_file.py (and the entry size, which consume queues happen to share). */
#define HEADER_BYTES 40
#define SLOT_BYTES 4
#define ENTRY_BYTES 20
#define PAGE_BYTES 4096

/* Continue Java's string hash with `text`. */
static int continue_hash(PyObject *text, uint32_t *value)
{
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "topic and keys must be str");
        return 0;
    }
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(text) < 0)
        return 0;
#endif
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

PyDoc_STRVAR(write_keys_doc,
"write_keys($module, slots, dirty_pages, entries, slot_count, number, room, topic, uniq_key, keys, physical_offset, "
"seconds, /)\n--\n\n-> number of new slots; -1, with nothing written, when there is not room for all keys");

static PyObject *write_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Writing file = {0};
    int64_t room;
    uint32_t topic_hash = 0, code;
    Py_buffer slots;
    if (!count_is(count, 11, "write_keys"))
        return NULL;
    PyObject *pages = arguments[1], *entries = arguments[2], *uniq_key = arguments[7], *keys = arguments[8];
    if (!PyByteArray_Check(pages) || !PyByteArray_Check(entries)) {
        PyErr_SetString(PyExc_TypeError, "dirty_pages and entries must be bytearrays");
        return NULL;
    }
    if (!read_number(arguments[3], 32, &file.slot_count) || !read_number(arguments[4], 32, &file.number)
        || !read_number(arguments[5], 32, &room) || !read_number(arguments[9], 64, &file.physical_offset)
        || !read_number(arguments[10], 32, &file.seconds) || !continue_hash(arguments[6], &topic_hash))
        return NULL;
    topic_hash = 31 * topic_hash + '#';
    code = topic_hash;
    if ((uniq_key != Py_None && !continue_hash(uniq_key, &code)) || (keys != Py_None && !continue_hash(keys, &(uint32_t){0})))
        return NULL;
    int has_uniq_key = uniq_key != Py_None && PyUnicode_GET_LENGTH(uniq_key) > 0;
    Py_ssize_t wanted = has_uniq_key + (keys != Py_None ? walk_keys(keys, topic_hash, NULL) : 0);
    if (wanted > room)
        return PyLong_FromLong(-1);
    if (PyObject_GetBuffer(arguments[0], &slots, PyBUF_WRITABLE) < 0)
        return NULL;
    if (file.slot_count <= 0 || HEADER_BYTES + file.slot_count * SLOT_BYTES > slots.len
        || (HEADER_BYTES + (file.slot_count - 1) * SLOT_BYTES) / PAGE_BYTES >= PyByteArray_GET_SIZE(pages)) {
        PyErr_SetString(PyExc_IndexError, "slot table exceeds the file");
        PyBuffer_Release(&slots);
        return NULL;
    }
    Py_ssize_t used = PyByteArray_GET_SIZE(entries);
    if (PyByteArray_Resize(entries, used + wanted * ENTRY_BYTES) < 0) {
        PyBuffer_Release(&slots);
        return NULL;
    }
    file.slots = slots.buf;
    file.pages = (unsigned char *)PyByteArray_AS_STRING(pages);
    file.entries = (unsigned char *)PyByteArray_AS_STRING(entries) + used;
    if (has_uniq_key)
        write_one(&file, absolute(code));
    if (keys != Py_None)
        walk_keys(keys, topic_hash, &file);
    PyBuffer_Release(&slots);
    return PyLong_FromLong(file.new_slots);
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

static PyMethodDef functions[] = {
    FUNCTION(key_hash),
    FUNCTION(write_keys),
    FUNCTION(add_queue_entry),
    FUNCTION(scan_record),
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
    {NULL, 0},
};

PyMODINIT_FUNC PyInit__speedups(void)
{
    return create_module(&definition, constants);
}

/* The road of a message in C: what the index does for every key. Twins of the Python in index_file.py; see
   protocol/quick.py. Nothing here keeps anything between two calls. */

#include "../protocol/_quick.h"

#define HEADER_BYTES 40
#define SLOT_BYTES 4
#define ENTRY_BYTES 20
#define PAGE_BYTES 4096

/* Java's hash of UTF-16 units, continued. */
static int continue_hash(PyObject *text, uint32_t *value)
{
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "a topic or key is a text");
        return 0;
    }
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(text) < 0)
        return 0;
#endif
    *value = java_hash(text, *value);
    return 1;
}

PyDoc_STRVAR(key_hash_doc, "key_hash(topic, key) -> int");

static PyObject *key_hash(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    uint32_t value = 0;
    if (!count_is(count, 2, "key_hash") || !continue_hash(arguments[0], &value))
        return NULL;
    value = 31 * value + '#';
    if (!continue_hash(arguments[1], &value))
        return NULL;
    if (value & 0x80000000)
        value = value == 0x80000000 ? 0 : 0 - value;
    return PyLong_FromLong((long)value);
}

PyDoc_STRVAR(write_entry_doc,
"write_entry(slots, dirty_pages, entries, slot_count, number, code, physical_offset, seconds) -> bool");

static PyObject *write_entry(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t slot_count, number, code, physical_offset, seconds;
    Py_buffer slots;
    if (!count_is(count, 8, "write_entry"))
        return NULL;
    PyObject *pages = arguments[1], *entries = arguments[2];
    if (!PyByteArray_Check(pages) || !PyByteArray_Check(entries)) {
        PyErr_SetString(PyExc_TypeError, "pages and entries are bytearrays");
        return NULL;
    }
    if (!read_number(arguments[3], 32, &slot_count) || !read_number(arguments[4], 32, &number)
        || !read_number(arguments[5], 32, &code) || !read_number(arguments[6], 64, &physical_offset)
        || !read_number(arguments[7], 32, &seconds) || PyObject_GetBuffer(arguments[0], &slots, PyBUF_WRITABLE) < 0)
        return NULL;
    Py_ssize_t at = slot_count > 0 && code >= 0 ? HEADER_BYTES + code % slot_count * SLOT_BYTES : -1;
    Py_ssize_t used = PyByteArray_GET_SIZE(entries);
    if (at < 0 || at + SLOT_BYTES > slots.len || at / PAGE_BYTES >= PyByteArray_GET_SIZE(pages)) {
        PyErr_SetString(PyExc_IndexError, "the slot lies outside of the file");
        PyBuffer_Release(&slots);
        return NULL;
    }
    if (PyByteArray_Resize(entries, used + ENTRY_BYTES) < 0) {
        PyBuffer_Release(&slots);
        return NULL;
    }
    unsigned char *slot = (unsigned char *)slots.buf + at;
    int32_t previous = (int32_t)get32(slot);
    int is_new = previous <= 0 || previous >= number;
    unsigned char *to = (unsigned char *)PyByteArray_AS_STRING(entries) + used;
    to = put64(put32(to, (uint32_t)code), (uint64_t)physical_offset);
    put32(put32(to, (uint32_t)seconds), is_new ? 0 : (uint32_t)previous);
    put32(slot, (uint32_t)number);
    PyByteArray_AS_STRING(pages)[at / PAGE_BYTES] = 1;
    PyBuffer_Release(&slots);
    return PyBool_FromLong(is_new);
}

static PyMethodDef functions[] = {
    FUNCTION(key_hash),
    FUNCTION(write_entry),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "store._quick", "See protocol/quick.py.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__quick(void)
{
    return find_struct_error() ? PyModule_Create(&definition) : NULL;
}

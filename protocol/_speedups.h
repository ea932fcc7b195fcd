/* Shared by the C extensions of protocol/ and store/: big endian numbers, argument checks, Java's string hash and the
   constants of the stored record. Rules of this code: docs/internals/speedups.md. */

#ifndef TRIOMQ_SPEEDUPS_H
#define TRIOMQ_SPEEDUPS_H

#include <stdint.h>

#if UINTPTR_MAX < UINT64_MAX
#error "TrioMQ's C extensions need 64-bit pointers: a length above 2 GiB would be negative. Build with TRIOMQ_PURE=1."
#endif

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

static PyObject *struct_error;  /* struct.error, raised for numbers that do not fit their field */

/* Constants of record.py and sys_flag.py. Every constant is exported, and a test compares it with its Python original. */
#define MESSAGE_MAGIC 0xDAA320A7u
#define FIXED_BYTES 91
#define BORN_HOST_V6 0x10
#define STORE_HOST_V6 0x20

/* -- big endian numbers ------------------------------------------------------------------------------------------- */

static inline uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t get64(const unsigned char *at)
{
    return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static inline unsigned char *put16(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 8);
    at[1] = (unsigned char)value;
    return at + 2;
}

static inline unsigned char *put32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
    return at + 4;
}

static inline unsigned char *put64(unsigned char *at, uint64_t value)
{
    return put32(put32(at, (uint32_t)(value >> 32)), (uint32_t)value);
}

static inline unsigned char *put_data(unsigned char *at, const void *data, Py_ssize_t size)
{
    memcpy(at, data, (size_t)size);
    return at + size;
}

/* -- arguments ---------------------------------------------------------------------------------------------------- */

static inline int count_is(Py_ssize_t count, Py_ssize_t wanted, const char *name)
{
    if (count == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", name, wanted, count);
    return 0;
}

static inline int is_bytes(PyObject *object)
{
    if (PyBytes_Check(object))
        return 1;
    PyErr_Format(PyExc_TypeError, "expected bytes, got %.80s", Py_TYPE(object)->tp_name);
    return 0;
}

/* Read a signed integer of `bits` bits; raise struct.error, as struct.pack does, when it does not fit. */
static inline int read_number(PyObject *object, int bits, int64_t *number)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (value == -1 && PyErr_Occurred())
        return 0;
    if (overflow || (bits < 64 && (value < -(1LL << (bits - 1)) || value >= 1LL << (bits - 1)))) {
        PyErr_Format(struct_error, "number out of range for a %d-bit field", bits);
        return 0;
    }
    *number = value;
    return 1;
}

/* A tuple that owns `items`. NULL items stand for failed allocations: then the others are released and NULL returned. */
static inline PyObject *tuple_of(PyObject **items, size_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    int is_whole = tuple != NULL;
    for (size_t i = 0; i < count; i++) {
        is_whole &= items[i] != NULL;
        if (tuple != NULL)
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    if (!is_whole)
        Py_CLEAR(tuple);
    return tuple;
}

/* Java hashes a character above U+FFFF as its surrogate pair. */
static inline uint32_t java_hash_of_character(uint32_t character, uint32_t value)
{
    if (character > 0xFFFF) {
        character -= 0x10000;
        value = 31 * value + (0xD800 + (character >> 10));
        character = 0xDC00 + (character & 0x3FF);
    }
    return 31 * value + character;
}

static inline uint32_t java_hash_of_bytes(const unsigned char *at, Py_ssize_t size, uint32_t value)
{
    while (size-- > 0)
        value = 31 * value + *at++;
    return value;
}

/* Java's String.hashCode of `text`, over UTF-16 units, continued from `value`. */
static inline uint32_t java_hash(PyObject *text, uint32_t value)
{
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    if (kind == PyUnicode_1BYTE_KIND)
        return java_hash_of_bytes(data, size, value);
    for (Py_ssize_t i = 0; i < size; i++)
        value = java_hash_of_character(PyUnicode_READ(kind, data, i), value);
    return value;
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, name##_doc}

typedef struct {
    const char *name;
    long value;
} Constant;

/* setup.py passes the checksum of the source, by which a stale extension is recognized. */
#ifndef SOURCE_CRC
#define SOURCE_CRC 0
#endif

/* Create the module and export `constants`, which end with a NULL name. */
static inline PyObject *create_module(struct PyModuleDef *definition, const Constant *constants)
{
    PyObject *structs = PyImport_ImportModule("struct");
    if (structs == NULL)
        return NULL;
    struct_error = PyObject_GetAttrString(structs, "error");
    Py_DECREF(structs);
    PyObject *module = struct_error == NULL ? NULL : PyModule_Create(definition);
    if (module != NULL && PyModule_AddIntConstant(module, "SOURCE_CRC", (long)SOURCE_CRC) < 0)
        Py_CLEAR(module);
    for (; module != NULL && constants->name != NULL; constants++)
        if (PyModule_AddIntConstant(module, constants->name, constants->value) < 0)
            Py_CLEAR(module);
    return module;
}

#endif

/* Shared by the C extensions of protocol/ and store/: big endian numbers, argument checks, Java's string hash, the
   CRC of a body and the constants of the stored record. Rules of this code: docs/internals/speedups.md. */

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
#define MAX_TOPIC_BYTES 127
#define MAX_PROPERTIES_BYTES 32767

/* Stored properties with more pairs are left to Python. */
#define MAX_PROPERTIES 32

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

/* A part of a buffer that its caller holds; `at` is NULL for no value at all. */
typedef struct {
    const unsigned char *at;
    Py_ssize_t size;
} Bytes;

/* -- text and buffers ---------------------------------------------------------------------------------------------- */

static inline int is_ascii(const unsigned char *at, Py_ssize_t size)
{
    uint64_t word;
    while (size >= 8) {
        memcpy(&word, at, 8);
        if (word & 0x8080808080808080ULL)
            return 0;
        at += 8;
        size -= 8;
    }
    while (size-- > 0)
        if (*at++ & 0x80)
            return 0;
    return 1;
}

static inline PyObject *ascii_text(const void *at, Py_ssize_t size)
{
    PyObject *text = PyUnicode_New(size, 127);
    if (text != NULL)
        memcpy(PyUnicode_1BYTE_DATA(text), at, (size_t)size);
    return text;
}

/* Resize a bytearray that grows by many records. By itself it has room for an eighth more, and is copied ten times. */
static inline int lengthen(PyObject *array, Py_ssize_t size)
{
    if (size >= ((PyByteArrayObject *)array)->ob_alloc && size < PY_SSIZE_T_MAX / 2
        && PyByteArray_Resize(array, 2 * size) < 0)
        return 0;
    return PyByteArray_Resize(array, size) == 0;  /* what is not shortened by more than a half keeps its room */
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

/* -- the CRC of a body: that of zlib, see record.body_crc ----------------------------------------------------------- */

static uint32_t crc_tables[8][256];  /* filled once, when the module is created */

static inline void fill_crc_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
        crc_tables[0][byte] = value;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t value = crc_tables[table - 1][byte];
            crc_tables[table][byte] = value >> 8 ^ crc_tables[0][value & 0xFF];
        }
}

static inline uint32_t get32_little(const unsigned char *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

/* Continue the CRC, which is inverted before the first byte and behind the last, eight bytes at a time. */
static inline uint32_t crc_by_tables(const unsigned char *at, Py_ssize_t size, uint32_t value)
{
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t first = value ^ get32_little(at), second = get32_little(at + 4);
        value = crc_tables[7][first & 0xFF] ^ crc_tables[6][first >> 8 & 0xFF] ^ crc_tables[5][first >> 16 & 0xFF]
                ^ crc_tables[4][first >> 24] ^ crc_tables[3][second & 0xFF] ^ crc_tables[2][second >> 8 & 0xFF]
                ^ crc_tables[1][second >> 16 & 0xFF] ^ crc_tables[0][second >> 24];
    }
    while (size-- > 0)
        value = value >> 8 ^ crc_tables[0][(value ^ *at++) & 0xFF];
    return value;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define FOLD_LEAST_BYTES 64

/* Fold `sum` with the constants and add the next 16 bytes. */
__attribute__((target("pclmul"))) static inline __m128i fold(__m128i sum, __m128i constants, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(sum, constants, 0x00), high = _mm_clmulepi64_si128(sum, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static inline __m128i load(const unsigned char *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

/* As crc_by_tables, for a multiple of 16 bytes and at least 64 of them, by multiplication without carries (Gopal and
   others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009; its constants). */
__attribute__((target("pclmul"))) static uint32_t crc_by_folding(const unsigned char *at, Py_ssize_t size, uint32_t value)
{
    const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i reduction = _mm_set_epi64x(0x01f7011641, 0x01db710641), half = _mm_set_epi32(0, -1, 0, -1);
    __m128i sums[4] = {load(at), load(at + 16), load(at + 32), load(at + 48)};
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)value));
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64)
        for (int i = 0; i < 4; i++)
            sums[i] = fold(sums[i], by_four, load(at + 16 * i));
    __m128i sum = sums[0];
    for (int i = 1; i < 4; i++)
        sum = fold(sum, by_one, sums[i]);
    for (; size >= 16; at += 16, size -= 16)
        sum = fold(sum, by_one, load(at));
    /* 128 bits to 64, to 32 and the remainder (Barrett) */
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_one, 0x10));
    __m128i upper = _mm_srli_si128(sum, 4);
    sum = _mm_clmulepi64_si128(_mm_and_si128(sum, half), _mm_set_epi64x(0, 0x0163cd6124), 0x00);
    sum = _mm_xor_si128(sum, upper);
    __m128i part = _mm_clmulepi64_si128(_mm_and_si128(sum, half), reduction, 0x10);
    part = _mm_clmulepi64_si128(_mm_and_si128(part, half), reduction, 0x00);
    return (uint32_t)_mm_cvtsi128_si32(_mm_srli_si128(_mm_xor_si128(sum, part), 4));
}
#endif

static inline uint32_t body_crc(const unsigned char *at, Py_ssize_t size)
{
    uint32_t value = 0xFFFFFFFFu;
#ifdef FOLD_LEAST_BYTES
    if (size >= FOLD_LEAST_BYTES && __builtin_cpu_supports("pclmul")) {
        Py_ssize_t folded = size & ~(Py_ssize_t)15;
        value = crc_by_folding(at, folded, value);
        at += folded;
        size -= folded;
    }
#endif
    return ~crc_by_tables(at, size, value) & 0x7FFFFFFF;
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

/* Create the module, fill its tables and export `constants`, which end with a NULL name. */
static inline PyObject *create_module(struct PyModuleDef *definition, const Constant *constants)
{
    fill_crc_tables();
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

/* The functions of protocol/ that every message passes and that cost most in Python, again in C.

   Encoders and hashes do exactly what the Python function of the same name plus "_reference" does. Decoders are fast
   paths: they handle the usual input and return None for anything unusual, malformed or not ASCII; the general decoder in
   Python then takes over (see speedups.py). tests/protocol/test_protocol_speedups.py compares both kinds with Python.
   No function keeps state between calls. */

#include "c/properties.h"
#include <structmember.h>

/* -- frames: see frame.py ------------------------------------------------------------------------------------------ */

#define FRAME_HEAD_BYTES 8
#define JSON 0
#define ROCKETMQ 1
#define JAVA 0

/* What a usual header says. `language` is a number or, in JSON, any name but JAVA; `entries` are extFields in the ROCKETMQ
   codec or None. Both are owned. */
typedef struct {
    int32_t code, version, opaque, flag;
    PyObject *language, *entries;
} Header;

/* Read a ROCKETMQ header. Return 0 if it is malformed, has a remark or is not all ASCII, or when memory runs out. */
static int read_binary_header(const unsigned char *head, Py_ssize_t size, Header *header)
{
    if (size < 21 || get32(head + 13) != 0 || get32(head + 17) != size - 21)
        return 0;
    const unsigned char *entries = head + 21, *stop = head + size, *at = entries;
    while (at < stop) {
        if (stop - at < 2)
            return 0;
        Py_ssize_t key_size = at[0] << 8 | at[1];
        at += 2;
        if (stop - at < key_size + 4 || !is_ascii(at, key_size))
            return 0;
        at += key_size;
        Py_ssize_t value_size = get32(at);
        at += 4;
        if (stop - at < value_size || !is_ascii(at, value_size))
            return 0;
        at += value_size;
    }
    header->code = (int16_t)(head[0] << 8 | head[1]);
    header->language = PyLong_FromLong((int8_t)head[2]);
    header->version = head[3] << 8 | head[4];
    header->opaque = (int32_t)get32(head + 5);
    header->flag = (int32_t)get32(head + 9);
    header->entries = entries == stop ? Py_NewRef(Py_None)
                                      : PyBytes_FromStringAndSize((const char *)entries, stop - entries);
    return 1;
}

/* Parse decimal text in canonical form: no sign but "-", no leading zeros, no "-0", at most 18 digits. */
static int read_canonical_decimal(const unsigned char *at, Py_ssize_t size, int64_t *number)
{
    int is_negative = size > 0 && *at == '-';
    if (is_negative) {
        at++;
        size--;
    }
    if (size < 1 || size > 18 || (*at == '0' && (size > 1 || is_negative)))
        return 0;
    int64_t value = 0;
    for (; size > 0; size--, at++) {
        if (*at < '0' || *at > '9')
            return 0;
        value = value * 10 + (*at - '0');
    }
    *number = is_negative ? -value : value;
    return 1;
}

/* The closing quotation mark of the string whose characters begin at `at`; NULL when there is none before `stop`, or a
   character is not printable ASCII. A character after a backslash is skipped here and checked by put_text. */
static const unsigned char *end_of_text(const unsigned char *at, const unsigned char *stop)
{
    for (; at < stop; at++) {
        if (*at == '"')
            return at;
        if (*at < 0x20 || *at > 0x7E || (*at == '\\' && ++at == stop))
            return NULL;
    }
    return NULL;
}

static int hex_digit(unsigned char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Copy the characters of a JSON string, escapes resolved; NULL when an escape is invalid or stands for a character that
   is not ASCII. Never writes more bytes than it reads. */
static unsigned char *put_text(unsigned char *to, const unsigned char *at, const unsigned char *end)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        const char *letter = at[1] == 0 ? NULL : strchr(letters, at[1]);
        if (letter != NULL) {
            *to++ = (unsigned char)meanings[letter - letters];
            at += 2;
            continue;
        }
        if (at[1] != 'u' || end - at < 6 || at[2] != '0' || at[3] != '0')
            return NULL;
        int high = hex_digit(at[4]), low = hex_digit(at[5]);
        if (high < 0 || high > 7 || low < 0)
            return NULL;
        *to++ = (unsigned char)(high << 4 | low);
        at += 6;
    }
    return to;
}

/* Turn JSON extFields into entries of the ROCKETMQ codec. `*from` is just after the opening brace and is moved past the
   closing one. Return the end of what was written, NULL for anything but pairs of non-empty strings.

   Why `to` cannot overflow: a JSON pair has 6 bytes of syntax ("":"", with its comma or brace) where an entry has 6 bytes
   of lengths, and put_text never grows. The lengths come before their text, though, so an entry may be written at most one
   byte ahead of what was read: the caller provides one byte more than there is from `*from` to `stop`. */
static unsigned char *put_entries(unsigned char *to, const unsigned char **from, const unsigned char *stop)
{
    const unsigned char *at = *from;
    for (;;) {
        unsigned char *key_size = to, *value_size;
        if (stop - at < 2 || *at != '"')
            return NULL;
        const unsigned char *end = end_of_text(at + 1, stop);
        if (end == NULL || (to = put_text(key_size + 2, at + 1, end)) == NULL)
            return NULL;
        if (to == key_size + 2 || to - key_size - 2 > 0x7FFF)
            return NULL;
        put16(key_size, (uint32_t)(to - key_size - 2));
        at = end + 1;
        if (stop - at < 3 || at[0] != ':' || at[1] != '"')
            return NULL;
        value_size = to;
        end = end_of_text(at + 2, stop);
        if (end == NULL || (to = put_text(value_size + 4, at + 2, end)) == NULL || to == value_size + 4)
            return NULL;
        put32(value_size, (uint32_t)(to - value_size - 4));
        at = end + 1;
        if (at < stop && *at == '}') {
            *from = at + 1;
            return to;
        }
        if (at == stop || *at++ != ',')
            return NULL;
    }
}

/* What follows `name` when the member at `at` begins with it, else NULL. */
static const unsigned char *behind_name(const unsigned char *at, const unsigned char *stop, const char *name)
{
    Py_ssize_t size = (Py_ssize_t)strlen(name);
    return stop - at > size && memcmp(at, name, (size_t)size) == 0 ? at + size : NULL;
}

/* Read a JSON header. Return 0 if it is malformed, has a remark, white space, empty texts, unknown or repeated members or
   unusual escapes, or is not all ASCII, or when memory runs out. */
static int read_json_header(const unsigned char *head, Py_ssize_t size, Header *header)
{
    static const char *const names[] = {"\"code\":", "\"flag\":", "\"opaque\":", "\"version\":"};
    const unsigned char *at = head, *stop = head + size;
    const unsigned char *language = (const unsigned char *)"JAVA", *value;
    Py_ssize_t language_size = 4;
    int64_t numbers[4] = {0};
    unsigned seen = 0, member;
    PyObject *entries = NULL;
    int is_usual = 0;
    if (size < 2 || *at++ != '{')
        return 0;
    for (;;) {
        for (member = 0; member < 4; member++)
            if ((value = behind_name(at, stop, names[member])) != NULL)
                break;
        if (member < 4) {
            for (at = value; at < stop && *at != ',' && *at != '}'; at++)
                ;
            if (!read_canonical_decimal(value, at - value, &numbers[member]) || numbers[member] != (int32_t)numbers[member])
                break;
        } else if ((value = behind_name(at, stop, "\"language\":\"")) != NULL) {
            member = 4;
            for (at = value; at < stop && (*at == '_' || (*at >= 'A' && *at <= 'Z')); at++)
                ;
            language = value;
            language_size = at - value;
            if (at == stop || *at++ != '"')
                break;
        } else if ((value = behind_name(at, stop, "\"extFields\":null")) != NULL) { /* clients in Go write it */
            member = 5;
            at = value;
        } else if ((value = behind_name(at, stop, "\"extFields\":{")) != NULL) {
            member = 5;
            if (entries != NULL || (entries = PyBytes_FromStringAndSize(NULL, stop - value + 1)) == NULL)
                break;
            unsigned char *first = (unsigned char *)PyBytes_AS_STRING(entries);
            unsigned char *last = put_entries(first, &value, stop);
            if (last == NULL || _PyBytes_Resize(&entries, last - first) < 0)
                break;
            at = value;
        } else if ((value = behind_name(at, stop, "\"serializeTypeCurrentRPC\":\"JSON\"")) != NULL) {
            member = 6;
            at = value;
        } else {
            break;
        }
        if (at == stop || seen & 1u << member)
            break;
        seen |= 1u << member;
        if (*at == '}') {
            is_usual = at + 1 == stop;
            break;
        }
        if (*at++ != ',')
            break;
    }
    if (!is_usual || PyErr_Occurred()) {
        Py_XDECREF(entries);
        return 0;
    }
    header->code = (int32_t)numbers[0];
    header->flag = (int32_t)numbers[1];
    header->opaque = (int32_t)numbers[2];
    header->version = (int32_t)numbers[3];
    int is_java = language_size == 4 && memcmp(language, "JAVA", 4) == 0;
    header->language = is_java ? PyLong_FromLong(JAVA) : ascii_text(language, language_size);
    header->entries = entries != NULL ? entries : Py_NewRef(Py_None);
    return 1;
}

PyDoc_STRVAR(read_frames_doc,
"read_frames($module, data, at, longest, longest_header, /)\n--\n\n-> (position, frames)\n\n"
"Fast path for whole frames from position `at` on: tuples of codec, code, language, version, opaque, flag, extFields and\n"
"body. The language is a number, or in JSON any name but JAVA; extFields are entries of the ROCKETMQ codec, or None. It\n"
"ends before a frame that is not whole, longer than allowed, malformed or unusual: with a remark, not all ASCII, or in\n"
"JSON with white space, empty texts, unusual escapes, or unknown or repeated members.");

static PyObject *read_frames(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (!count_is(count, 4, "read_frames") || !is_bytes(arguments[0]))
        return NULL;
    Py_ssize_t at = PyLong_AsSsize_t(arguments[1]), longest = PyLong_AsSsize_t(arguments[2]);
    Py_ssize_t longest_header = PyLong_AsSsize_t(arguments[3]), end = PyBytes_GET_SIZE(arguments[0]);
    if (PyErr_Occurred())
        return NULL;
    if (at < 0) {
        PyErr_SetString(PyExc_ValueError, "the position is negative");
        return NULL;
    }
    PyObject *frames = PyList_New(0);
    while (frames != NULL && end - at >= FRAME_HEAD_BYTES) {
        const unsigned char *frame = (const unsigned char *)PyBytes_AS_STRING(arguments[0]) + at;
        const unsigned char *head = frame + FRAME_HEAD_BYTES;
        Py_ssize_t length = (int32_t)get32(frame), header_size = (Py_ssize_t)get32(frame + 4) & 0xFFFFFF;
        Header header;
        if (length < 4 || length > end - at - 4 || length > longest - 4 || header_size > length - 4
            || header_size > longest_header)
            break;
        if (!(frame[4] == ROCKETMQ ? read_binary_header(head, header_size, &header)
              : frame[4] == JSON   ? read_json_header(head, header_size, &header)
                                   : 0))
            break;
        PyObject *items[] = {
            PyLong_FromLong(frame[4]), PyLong_FromLong(header.code), header.language, PyLong_FromLong(header.version),
            PyLong_FromLong(header.opaque), PyLong_FromLong(header.flag), header.entries,
            PyBytes_FromStringAndSize((const char *)head + header_size, length - 4 - header_size),
        };
        PyObject *item = tuple_of(items, sizeof items / sizeof *items);
        if (item == NULL || PyList_Append(frames, item) < 0) {
            Py_XDECREF(item);
            break;
        }
        Py_DECREF(item);
        at += 4 + length;
    }
    if (PyErr_Occurred())
        Py_CLEAR(frames);
    PyObject *found[] = {frames == NULL ? NULL : PyLong_FromSsize_t(at), frames};
    return tuple_of(found, 2);
}

enum { TEXT, INT32, INT64, FLAG };
#define MAX_FIELDS 32

static PyObject *read_value(long kind, const unsigned char *at, Py_ssize_t size)
{
    int64_t number;
    switch (kind) {
    case TEXT:
        /* the readers let ASCII only through, but a str that is not what it claims to be would corrupt memory */
        if (!is_ascii(at, size))
            Py_RETURN_NONE;
        return ascii_text(at, size);
    case FLAG:
        if (size == 4 && memcmp(at, "true", 4) == 0)
            Py_RETURN_TRUE;
        if (size == 5 && memcmp(at, "false", 5) == 0)
            Py_RETURN_FALSE;
        Py_RETURN_NONE;
    case INT32:
    case INT64:
        if (!read_canonical_decimal(at, size, &number) || (kind == INT32 && number != (int32_t)number))
            Py_RETURN_NONE;
        return PyLong_FromLongLong(number);
    }
    PyErr_SetString(PyExc_ValueError, "kinds of fields are 0 to 3");
    return NULL;
}

PyDoc_STRVAR(read_header_doc,
"read_header($module, entries, record, columns, /)\n--\n\n-> record | tuple | None\n\n"
"Fast path for a header record: record(attribute=value, ...) from entries of the ROCKETMQ codec, or, when record is\n"
"None, the tuple of its values.\n"
"columns: attributes, names, kinds, defaults, longest, each with one item a field, made once for each kind of header.\n"
"kinds: 0 text, 1 int32, 2 int64, 3 boolean. A default of ... marks a required field. longest: one uint32 a field, the\n"
"most bytes of its text. Return None when a field is missing or its text is longer or not in the canonical form of its\n"
"kind.");

static PyObject *read_header(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (!count_is(count, 3, "read_header") || !is_bytes(arguments[0]))
        return NULL;
    PyObject *columns = arguments[2];
    if (!PyTuple_Check(columns) || PyTuple_GET_SIZE(columns) != 5) {
        PyErr_SetString(PyExc_TypeError, "columns must be a tuple of five");
        return NULL;
    }
    PyObject *attributes = PyTuple_GET_ITEM(columns, 0), *names = PyTuple_GET_ITEM(columns, 1);
    PyObject *kind_bytes = PyTuple_GET_ITEM(columns, 2), *defaults = PyTuple_GET_ITEM(columns, 3);
    PyObject *longest_bytes = PyTuple_GET_ITEM(columns, 4);
    if (!is_bytes(kind_bytes) || !is_bytes(longest_bytes))
        return NULL;
    if (!PyTuple_Check(attributes) || !PyTuple_Check(names) || !PyTuple_Check(defaults)
        || PyTuple_GET_SIZE(names) > MAX_FIELDS || PyTuple_GET_SIZE(names) != PyTuple_GET_SIZE(attributes)
        || PyTuple_GET_SIZE(names) != PyBytes_GET_SIZE(kind_bytes)
        || PyTuple_GET_SIZE(names) != PyTuple_GET_SIZE(defaults)
        || PyBytes_GET_SIZE(longest_bytes) != PyTuple_GET_SIZE(names) * (Py_ssize_t)sizeof(uint32_t)) {
        PyErr_SetString(PyExc_TypeError,
                        "attributes, names, kinds, defaults and longest must be of as many fields, at most 32");
        return NULL;
    }
    const unsigned char *kinds = (const unsigned char *)PyBytes_AS_STRING(kind_bytes);
    const unsigned char *at = (const unsigned char *)PyBytes_AS_STRING(arguments[0]);
    const unsigned char *stop = at + PyBytes_GET_SIZE(arguments[0]);
    Py_ssize_t fields = PyTuple_GET_SIZE(names), expected = 0;
    const unsigned char *values[MAX_FIELDS] = {0};
    Py_ssize_t sizes[MAX_FIELDS] = {0};
    uint32_t longest[MAX_FIELDS];
    memcpy(longest, PyBytes_AS_STRING(longest_bytes), (size_t)PyBytes_GET_SIZE(longest_bytes));
    while (at < stop) {
        if (stop - at < 6)
            Py_RETURN_NONE;
        const unsigned char *key = at + 2;
        Py_ssize_t key_size = at[0] << 8 | at[1];
        if (stop - key < key_size + 4)
            Py_RETURN_NONE;
        at = key + key_size + 4;
        Py_ssize_t value_size = get32(at - 4);
        if (stop - at < value_size)
            Py_RETURN_NONE;
        for (Py_ssize_t step = 0; step < fields && key_size && value_size; step++) {
            /* senders keep the order of fields, so the one after the last match is nearly always the next */
            Py_ssize_t field = expected + step < fields ? expected + step : expected + step - fields;
            PyObject *name = PyTuple_GET_ITEM(names, field);
            if (PyBytes_Check(name) && PyBytes_GET_SIZE(name) == key_size
                && (unsigned char)PyBytes_AS_STRING(name)[0] == key[0] /* most names of sends are one letter */
                && (key_size == 1 || memcmp(PyBytes_AS_STRING(name), key, (size_t)key_size) == 0)) {
                if (value_size > (Py_ssize_t)longest[field])
                    Py_RETURN_NONE;
                values[field] = at;
                sizes[field] = value_size;
                expected = field + 1 < fields ? field + 1 : 0;
                break;
            }
        }
        at += value_size;
    }
    PyObject *result = Py_None, *made[MAX_FIELDS];
    Py_ssize_t field = 0;
    for (; field < fields; field++) {
        PyObject *value = values[field] == NULL ? Py_NewRef(PyTuple_GET_ITEM(defaults, field))
                                                : read_value(kinds[field], values[field], sizes[field]);
        if (value == NULL) {
            result = NULL;
            break;
        }
        if (value == Py_Ellipsis || (value == Py_None && values[field] != NULL)) {
            Py_DECREF(value);
            break;
        }
        made[field] = value;
    }
    if (field == fields && arguments[1] == Py_None) {
        result = PyTuple_New(fields);
        while (result != NULL && field > 0) { /* the tuple takes the references */
            field--;
            PyTuple_SET_ITEM(result, field, made[field]);
        }
    } else if (field == fields)
        result = PyObject_Vectorcall(arguments[1], made, 0, attributes);
    else
        Py_XINCREF(result);
    while (field-- > 0)
        Py_DECREF(made[field]);
    return result;
}

/* -- properties: see properties.py -------------------------------------------------------------------------------- */

static PyObject *last_names;  /* the tuple that `last_wanted` was made of: nearly all calls have the same one */
static Wanted last_wanted;

/* Begin a walk that notes the names of a tuple. */
static int begin_walk_for(Noted *noted, PyObject *names)
{
    if (names != last_names) {
        Wanted wanted = {0};
        Py_ssize_t size = PyTuple_Check(names) ? PyTuple_GET_SIZE(names) : MAX_WANTED + 1;
        while (wanted.count < size && size <= MAX_WANTED) {
            PyObject *name = PyTuple_GET_ITEM(names, wanted.count);
            if (!PyUnicode_Check(name) || !PyUnicode_IS_COMPACT_ASCII(name))
                break;
            add_wanted(&wanted, (Bytes){PyUnicode_1BYTE_DATA(name), PyUnicode_GET_LENGTH(name)});
        }
        if (wanted.count != size) {
            PyErr_SetString(PyExc_TypeError, "wanted must be a tuple of at most 16 str in ASCII");
            return 0;
        }
        last_wanted = wanted;
        Py_XSETREF(last_names, Py_NewRef(names));  /* holds the names' bytes */
    }
    begin_walk(noted, &last_wanted);
    return 1;
}

static PyObject *text_or_none(Bytes value)
{
    if (value.at == NULL)
        return Py_NewRef(Py_None);
    if (is_ascii(value.at, value.size))
        return ascii_text(value.at, value.size);
    return PyUnicode_DecodeUTF8((const char *)value.at, value.size, "replace");
}

/* (tags_code, uniq_key, keys, values | None, is_encoded) */
static PyObject *noted_tuple(const Noted *noted, int is_encoded)
{
    const Bytes *found = noted->found, *wanted = noted->found + FIRST_WANTED;
    uint32_t tags_code = 0;
    if (is_ascii(found[TAGS].at, found[TAGS].size))
        tags_code = java_hash_of_bytes(found[TAGS].at, found[TAGS].size, 0);
    else {
        PyObject *tags = text_or_none(found[TAGS]);
        if (tags == NULL)
            return NULL;
        tags_code = java_hash(tags, 0);
        Py_DECREF(tags);
    }
    PyObject *values = NULL, *texts[MAX_WANTED];
    for (int i = 0; i < noted->wanted->count && values == NULL; i++)
        if (wanted[i].at != NULL) {
            for (int j = 0; j < noted->wanted->count; j++)
                texts[j] = text_or_none(wanted[j]);
            values = tuple_of(texts, (size_t)noted->wanted->count);
            if (values == NULL)
                return NULL;
        }
    PyObject *items[] = {
        PyLong_FromLong((int32_t)tags_code), text_or_none(found[UNIQ_KEY]), text_or_none(found[KEYS]),
        values != NULL ? values : Py_NewRef(Py_None), PyBool_FromLong(is_encoded)
    };
    return tuple_of(items, 5);
}

PyDoc_STRVAR(read_properties_doc,
"read_properties($module, stored, wanted, /)\n--\n\n-> (tags_code, uniq_key, keys, values of wanted | None, is_encoded)");

static PyObject *read_properties(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Noted noted;
    if (!count_is(count, 2, "read_properties") || !is_bytes(arguments[0]) || !begin_walk_for(&noted, arguments[1]))
        return NULL;
    Bytes stored = {(const unsigned char *)PyBytes_AS_STRING(arguments[0]), PyBytes_GET_SIZE(arguments[0])};
    int is_encoded = walk_properties(&noted, stored);
    return noted_tuple(&noted, is_encoded);
}

PyDoc_STRVAR(properties_with_doc,
"properties_with($module, stored, added, wanted, /)\n--\n\n-> (text, what read_properties returns of it) | None\n\n"
"Stored properties followed by others. Return None if a name is there twice, or one that is added is not ASCII, or has no\n"
"value, or if there are many.");

static PyObject *properties_with(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Noted noted;
    PyObject *name, *value;
    Py_ssize_t position = 0;
    if (!count_is(count, 3, "properties_with") || !is_bytes(arguments[0]) || !begin_walk_for(&noted, arguments[2]))
        return NULL;
    if (!PyDict_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "added must be a dict");
        return NULL;
    }
    Bytes stored = {(const unsigned char *)PyBytes_AS_STRING(arguments[0]), PyBytes_GET_SIZE(arguments[0])};
    if (stored.size > 0 && stored.at[stored.size - 1] == 2)
        stored.size--;  /* older clients end with it */
    int is_encoded = walk_properties(&noted, stored), before = noted.pairs;
    Bytes values[MAX_PROPERTIES];
    Py_ssize_t size = stored.size;
    while (PyDict_Next(arguments[1], &position, &name, &value)) {
        if (!PyUnicode_Check(name) || !PyUnicode_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "names and values must be str");
            return NULL;
        }
        Py_ssize_t name_size = PyUnicode_GET_LENGTH(name), value_size = PyUnicode_GET_LENGTH(value);
        if (!PyUnicode_IS_COMPACT_ASCII(name) || !PyUnicode_IS_COMPACT_ASCII(value) || name_size == 0 || value_size == 0)
            Py_RETURN_NONE;
        Bytes text = {PyUnicode_1BYTE_DATA(value), value_size};
        note_pair(&noted, (Bytes){PyUnicode_1BYTE_DATA(name), name_size}, text);
        if (noted.is_repeated)
            Py_RETURN_NONE;
        values[noted.pairs - 1] = text;
        size += (size > 0) + name_size + 1 + value_size;
    }
    PyObject *whole = PyBytes_FromStringAndSize(NULL, size);
    if (whole == NULL)
        return NULL;
    unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(whole), *to = put_data(begin, stored.at, stored.size);
    for (int i = before; i < noted.pairs; i++) {
        if (to > begin)
            *to++ = 2;
        to = put_data(to, noted.names[i].at, noted.names[i].size);
        *to++ = 1;
        to = put_data(to, values[i].at, values[i].size);
    }
    PyObject *items[] = {whole, noted_tuple(&noted, is_encoded)};
    return tuple_of(items, 2);
}

PyDoc_STRVAR(properties_to_store_doc,
"properties_to_store($module, text, cluster, wanted, /)\n--\n\n-> (stored, wait, what read_properties returns) | None\n\n"
"The properties that a client sent as they are stored: without WAIT, with CLUSTER. Return None for repeated names,\n"
"CLUSTER or POP_CK among them, more than 32 of them, and text that is not ASCII.");

static PyObject *properties_to_store(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Noted noted;
    if (!count_is(count, 3, "properties_to_store") || !begin_walk_for(&noted, arguments[2]))
        return NULL;
    for (int i = 0; i < 2; i++) {
        if (!PyUnicode_Check(arguments[i])) {
            PyErr_SetString(PyExc_TypeError, "properties_to_store takes two str and a tuple");
            return NULL;
        }
        if (!PyUnicode_IS_COMPACT_ASCII(arguments[i]))
            Py_RETURN_NONE;
    }
    const unsigned char *at = PyUnicode_1BYTE_DATA(arguments[0]), *stop = at + PyUnicode_GET_LENGTH(arguments[0]), *pair;
    Bytes cluster = {PyUnicode_1BYTE_DATA(arguments[1]), PyUnicode_GET_LENGTH(arguments[1])};
    Bytes name, value, kept[MAX_PROPERTIES], wait = {0};
    Py_ssize_t size = 8 + cluster.size;
    int kept_pairs = 0;
    while ((pair = next_pair(&at, stop, &name, &value)) != NULL) {
        if (is_name(name, "WAIT")) {
            if (wait.at != NULL)
                Py_RETURN_NONE;
            wait = value;
            continue;
        }
        note_pair(&noted, name, value);
        if (noted.is_repeated || is_name(name, "CLUSTER") || is_name(name, "POP_CK"))
            Py_RETURN_NONE;
        kept[kept_pairs++] = (Bytes){pair, at - 1 - pair};
        size += at - pair;
    }
    PyObject *stored = PyBytes_FromStringAndSize(NULL, size);
    if (stored == NULL)
        return NULL;
    unsigned char *to = (unsigned char *)PyBytes_AS_STRING(stored);
    for (int i = 0; i < kept_pairs; i++) {
        to = put_data(to, kept[i].at, kept[i].size);
        *to++ = 2;
    }
    put_data(put_data(to, "CLUSTER\1", 8), cluster.at, cluster.size);
    if (cluster.size > 0)
        note_pair(&noted, (Bytes){to, 7}, cluster);
    PyObject *items[] = {
        stored, text_or_none(wait), noted_tuple(&noted, cluster.size > 0 && !noted.is_repeated)
    };
    return tuple_of(items, 3);
}

/* -- records: see record.py ---------------------------------------------------------------------------------------- */

PyDoc_STRVAR(write_record_doc,
"write_record($module, tail, topic, queue_id, flag, queue_offset, physical_offset, sys_flags, born_timestamp, born_host, "
"store_timestamp, store_host, reconsume_times, prepared_transaction_offset, body, crc, stored_properties, /)\n--\n\n"
"-> size in bytes\n\nAppend one record to the bytearray `tail`. A negative `crc` stands for the body's CRC.");

static PyObject *write_record(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (!count_is(count, 16, "write_record"))
        return NULL;
    PyObject *tail = arguments[0], *topic = arguments[1], *born_host = arguments[8], *store_host = arguments[10];
    PyObject *body = arguments[13], *properties = arguments[15];
    if (!PyByteArray_Check(tail)) {
        PyErr_SetString(PyExc_TypeError, "tail must be a bytearray");
        return NULL;
    }
    if (!is_bytes(topic) || !is_bytes(born_host) || !is_bytes(store_host) || !is_bytes(body) || !is_bytes(properties))
        return NULL;
    int64_t queue_id, flag, queue_offset, physical_offset, flags, born, stored, times, prepared, crc;
    if (!read_number(arguments[2], 32, &queue_id) || !read_number(arguments[3], 32, &flag)
        || !read_number(arguments[4], 64, &queue_offset) || !read_number(arguments[5], 64, &physical_offset)
        || !read_number(arguments[6], 32, &flags) || !read_number(arguments[7], 64, &born)
        || !read_number(arguments[9], 64, &stored) || !read_number(arguments[11], 32, &times)
        || !read_number(arguments[12], 64, &prepared) || !read_number(arguments[14], 32, &crc))
        return NULL;
    Py_ssize_t topic_size = PyBytes_GET_SIZE(topic), born_size = PyBytes_GET_SIZE(born_host);
    Py_ssize_t store_size = PyBytes_GET_SIZE(store_host), body_size = PyBytes_GET_SIZE(body);
    Py_ssize_t properties_size = PyBytes_GET_SIZE(properties);
    if ((born_size != 8 && born_size != 20) || (store_size != 8 && store_size != 20)) {
        PyErr_SetString(struct_error, "a packed host must have 8 or 20 bytes");
        return NULL;
    }
    Py_ssize_t size = FIXED_BYTES - 16 + born_size + store_size + body_size + topic_size + properties_size;
    if (topic_size > MAX_TOPIC_BYTES || properties_size > MAX_PROPERTIES_BYTES || size > INT32_MAX) {
        PyErr_SetString(struct_error, "topic, properties or record too long for its length field");
        return NULL;
    }
    Py_ssize_t used = PyByteArray_GET_SIZE(tail);
    if (!lengthen(tail, used + size))
        return NULL;
    flags = (flags & ~0x30) | (born_size == 20 ? BORN_HOST_V6 : 0) | (store_size == 20 ? STORE_HOST_V6 : 0);
    unsigned char *at = (unsigned char *)PyByteArray_AS_STRING(tail) + used;
    if (crc < 0)
        crc = body_crc((const unsigned char *)PyBytes_AS_STRING(body), body_size);
    at = put32(put32(put32(at, (uint32_t)size), MESSAGE_MAGIC), (uint32_t)crc);
    at = put32(put32(at, (uint32_t)queue_id), (uint32_t)flag);
    at = put64(put64(at, (uint64_t)queue_offset), (uint64_t)physical_offset);
    at = put64(put32(at, (uint32_t)flags), (uint64_t)born);
    at = put_data(at, PyBytes_AS_STRING(born_host), born_size);
    at = put64(at, (uint64_t)stored);
    at = put_data(at, PyBytes_AS_STRING(store_host), store_size);
    at = put64(put32(at, (uint32_t)times), (uint64_t)prepared);
    at = put_data(put32(at, (uint32_t)body_size), PyBytes_AS_STRING(body), body_size);
    *at++ = (unsigned char)topic_size;
    at = put_data(at, PyBytes_AS_STRING(topic), topic_size);
    put_data(put16(at, (uint32_t)properties_size), PyBytes_AS_STRING(properties), properties_size);
    return PyLong_FromSsize_t(size);
}

/* -- Java's string hash: see java.py ------------------------------------------------------------------------------- */

PyDoc_STRVAR(string_hash_doc, "string_hash($module, text, start=0, /)\n--\n\n-> int\n\nJava's String.hashCode, continued from `start`.");

static PyObject *string_hash(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if ((count != 1 && count != 2) || !PyUnicode_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "string_hash takes a str and an optional number");
        return NULL;
    }
    uint32_t value = 0;
    if (count == 2) {
        value = (uint32_t)PyLong_AsUnsignedLongLongMask(arguments[1]);
        if (PyErr_Occurred())
            return NULL;
    }
    PyObject *text = arguments[0];
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(text) < 0)
        return NULL;
#endif
    return PyLong_FromLong((int32_t)java_hash(text, value));
}

/* -- responses: see response_template.py --------------------------------------------------------------------------- */

static const char HEX[] = "0123456789ABCDEF";

PyDoc_STRVAR(offset_message_id_bytes_doc,
"offset_message_id_bytes($module, store_host_hex, physical_offset, /)\n--\n\n-> bytes");

static PyObject *offset_message_id_bytes(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t offset;
    if (!count_is(count, 2, "offset_message_id_bytes") || !is_bytes(arguments[0])
        || !read_number(arguments[1], 64, &offset))
        return NULL;
    Py_ssize_t host_size = PyBytes_GET_SIZE(arguments[0]);
    PyObject *id = PyBytes_FromStringAndSize(NULL, host_size + 16);
    if (id == NULL)
        return NULL;
    char *at = PyBytes_AS_STRING(id);
    memcpy(at, PyBytes_AS_STRING(arguments[0]), (size_t)host_size);
    at += host_size;
    for (int i = 0; i < 16; i++)
        at[i] = HEX[(uint64_t)offset >> (60 - 4 * i) & 15];
    return id;
}

#define MAX_VALUES 16
#define DECIMAL_BYTES 21

typedef struct {
    const char *data;
    Py_ssize_t size;
    char decimal[DECIMAL_BYTES];
} Value;

/* Format a number, right-aligned in `decimal`. */
static void write_decimal(int64_t number, Value *value)
{
    char *at = value->decimal + DECIMAL_BYTES;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0)
        *--at = '-';
    value->data = at;
    value->size = value->decimal + DECIMAL_BYTES - at;
}

/* Values of a response: bytes stay as they are, numbers become decimal text. */
static int read_values(PyObject *tuple, Value *values)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        int64_t number;
        if (PyBytes_Check(item)) {
            values[i].data = PyBytes_AS_STRING(item);
            values[i].size = PyBytes_GET_SIZE(item);
        } else if (PyLong_Check(item)) {
            if (!read_number(item, 64, &number))
                return 0;
            write_decimal(number, &values[i]);
        } else {
            PyErr_Format(PyExc_TypeError, "a value must be bytes or int, got %.80s", Py_TYPE(item)->tp_name);
            return 0;
        }
    }
    return 1;
}

/* A body of `size` bytes, `here` of which belong to what is returned: all of them, or none where only their number is
   given, because the body is sent behind it. */
typedef struct { const char *data; Py_ssize_t size, here; } Body;

static int read_body(PyObject *object, Body *body)
{
    int64_t size;
    if (!PyLong_Check(object)) {
        if (!is_bytes(object))
            return 0;
        *body = (Body){PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object), PyBytes_GET_SIZE(object)};
        return 1;
    }
    if (!read_number(object, 32, &size))
        return 0;
    if (size < 0) {
        PyErr_SetString(struct_error, "a body has a negative number of bytes");
        return 0;
    }
    *body = (Body){"", (Py_ssize_t)size, 0};
    return 1;
}

/* A new object for the frame with this header, without the lengths in front of it; struct.error if it is too long. */
static PyObject *new_frame(Py_ssize_t header, const Body *body)
{
    if (body->size > INT32_MAX - 4 - header) {
        PyErr_SetString(struct_error, "the frame is longer than its length field can say");
        return NULL;
    }
    return PyBytes_FromStringAndSize(NULL, 8 + header + body->here);
}

PyDoc_STRVAR(fill_binary_doc,
"fill_binary($module, names, values, code, version, opaque, flag, remark, body, /)\n--\n\n-> bytes\n\n"
"The frame in the ROCKETMQ codec, with language JAVA; each of `names` precedes the length of its value. `body` may be\n"
"the number of bytes of one that is sent behind it.");

static PyObject *fill_binary(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (!count_is(count, 8, "fill_binary"))
        return NULL;
    PyObject *names = arguments[0], *remark = arguments[6];
    Body body;
    if (!PyTuple_Check(names) || !PyTuple_Check(arguments[1]) || PyTuple_GET_SIZE(names) > MAX_VALUES
        || PyTuple_GET_SIZE(names) != PyTuple_GET_SIZE(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "expected as many values as names, at most 16");
        return NULL;
    }
    int64_t code, version, opaque, flag;
    if (!read_number(arguments[2], 16, &code) || !read_number(arguments[3], 16, &version)
        || !read_number(arguments[4], 32, &opaque) || !read_number(arguments[5], 32, &flag) || !is_bytes(remark)
        || !read_body(arguments[7], &body))
        return NULL;
    Value values[MAX_VALUES];
    if (!read_values(arguments[1], values))
        return NULL;
    Py_ssize_t entries = 0, fields = PyTuple_GET_SIZE(names), remark_size = PyBytes_GET_SIZE(remark);
    for (Py_ssize_t i = 0; i < fields; i++) {
        if (!is_bytes(PyTuple_GET_ITEM(names, i)))
            return NULL;
        entries += PyBytes_GET_SIZE(PyTuple_GET_ITEM(names, i)) + 4 + values[i].size;
    }
    Py_ssize_t header = 21 + remark_size + entries;
    PyObject *frame = new_frame(header, &body);
    if (frame == NULL)
        return NULL;
    unsigned char *at = (unsigned char *)PyBytes_AS_STRING(frame);
    at = put32(put32(at, (uint32_t)(4 + header + body.size)), 1u << 24 | (uint32_t)header);
    at = put16(at, (uint32_t)code);
    *at++ = JAVA;
    at = put32(put32(put16(at, (uint32_t)version), (uint32_t)opaque), (uint32_t)flag);
    at = put_data(put32(at, (uint32_t)remark_size), PyBytes_AS_STRING(remark), remark_size);
    at = put32(at, (uint32_t)entries);
    for (Py_ssize_t i = 0; i < fields; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        at = put_data(at, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name));
        at = put_data(put32(at, (uint32_t)values[i].size), values[i].data, values[i].size);
    }
    put_data(at, body.data, body.here);
    return frame;
}

PyDoc_STRVAR(fill_json_doc,
"fill_json($module, pieces, values, body, /)\n--\n\n-> bytes\n\n"
"The frame in the JSON codec: piece, value, piece, ..., piece, then the body, or its size if it is sent behind it.");

static PyObject *fill_json(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (!count_is(count, 3, "fill_json"))
        return NULL;
    PyObject *pieces = arguments[0];
    if (!PyTuple_Check(pieces) || !PyTuple_Check(arguments[1]) || PyTuple_GET_SIZE(arguments[1]) > MAX_VALUES
        || PyTuple_GET_SIZE(pieces) != PyTuple_GET_SIZE(arguments[1]) + 1) {
        PyErr_SetString(PyExc_TypeError, "expected one piece more than values, at most 17");
        return NULL;
    }
    Value values[MAX_VALUES];
    Body body;
    if (!read_values(arguments[1], values) || !read_body(arguments[2], &body))
        return NULL;
    Py_ssize_t header = 0, fields = PyTuple_GET_SIZE(arguments[1]);
    for (Py_ssize_t i = 0; i <= fields; i++) {
        if (!is_bytes(PyTuple_GET_ITEM(pieces, i)))
            return NULL;
        header += PyBytes_GET_SIZE(PyTuple_GET_ITEM(pieces, i)) + (i < fields ? values[i].size : 0);
    }
    PyObject *frame = new_frame(header, &body);
    if (frame == NULL)
        return NULL;
    unsigned char *at = (unsigned char *)PyBytes_AS_STRING(frame);
    at = put32(put32(at, (uint32_t)(4 + header + body.size)), (uint32_t)header);
    for (Py_ssize_t i = 0; i <= fields; i++) {
        PyObject *piece = PyTuple_GET_ITEM(pieces, i);
        at = put_data(at, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece));
        if (i < fields)
            at = put_data(at, values[i].data, values[i].size);
    }
    put_data(at, body.data, body.here);
    return frame;
}

/* -- messages of a pull response: see record.py --------------------------------------------------------------------- */

#define COMPRESSED 1

/* The slots of a message, in the order of record.py. */
enum {
    TOPIC, BODY, PROPERTIES, BORN_HOST, STORE_HOST, BROKER_NAME, TRANSACTION_ID, BEGAN_MS,
    STORE_SIZE, BODY_CRC, QUEUE_ID, FLAG_OF_MESSAGE, QUEUE_OFFSET, PHYSICAL_OFFSET, SYS_FLAG,
    BORN_TIMESTAMP, STORE_TIMESTAMP, RECONSUME_TIMES, PREPARED_OFFSET,
    MESSAGE_SLOTS
};

/* Find where instances of `kind` have the slots that these descriptors describe. Return 0 with an error if one is of
   another class, or is not the slot of an object. */
static int read_slots(PyObject *kind, PyObject *slots, Py_ssize_t *offsets)
{
    if (!PyType_Check(kind) || !PyTuple_Check(slots) || PyTuple_GET_SIZE(slots) != MESSAGE_SLOTS) {
        PyErr_SetString(PyExc_TypeError, "expected a class and a tuple of its slots");
        return 0;
    }
    for (Py_ssize_t i = 0; i < MESSAGE_SLOTS; i++) {
        PyObject *slot = PyTuple_GET_ITEM(slots, i);
        if (!Py_IS_TYPE(slot, &PyMemberDescr_Type) || ((PyMemberDescrObject *)slot)->d_member->type != T_OBJECT_EX
            || !PyType_IsSubtype((PyTypeObject *)kind, PyDescr_TYPE(slot))) {
            PyErr_SetString(PyExc_TypeError, "slots must be members of the class");
            return 0;
        }
        offsets[i] = ((PyMemberDescrObject *)slot)->d_member->offset;
    }
    return 1;
}

/* `last` if it has these bytes, else a new object; a new reference. Messages of one pull share hosts and topic. */
static PyObject *bytes_like_last(PyObject *last, const unsigned char *at, Py_ssize_t size)
{
    if (last != NULL && PyBytes_GET_SIZE(last) == size && memcmp(PyBytes_AS_STRING(last), at, (size_t)size) == 0)
        return Py_NewRef(last);
    return PyBytes_FromStringAndSize((const char *)at, size);
}

static PyObject *ascii_like_last(PyObject *last, const unsigned char *at, Py_ssize_t size)
{
    if (last != NULL && PyUnicode_GET_LENGTH(last) == size && memcmp(PyUnicode_1BYTE_DATA(last), at, (size_t)size) == 0)
        return Py_NewRef(last);
    return ascii_text(at, size);
}

/* Keep a value for the messages behind. */
static void remember(PyObject **last, PyObject *value)
{
    PyObject *before = *last;
    *last = Py_XNewRef(value);
    Py_XDECREF(before);
}

PyDoc_STRVAR(take_messages_doc,
"take_messages($module, data, at, kind, slots, broker_name, /)\n--\n\n-> (position, messages)\n\n"
"Fast path for the records of a pull response from position `at` on: instances of kind, with their slots filled and\n"
"nothing called. Properties and hosts stay bytes. It ends before a record that is not whole and sound, that is\n"
"compressed, or whose topic is not ASCII.");

static PyObject *take_messages(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t offsets[MESSAGE_SLOTS];
    if (!count_is(count, 5, "take_messages") || !is_bytes(arguments[0])
        || !read_slots(arguments[2], arguments[3], offsets))
        return NULL;
    Py_ssize_t position = PyLong_AsSsize_t(arguments[1]), end = PyBytes_GET_SIZE(arguments[0]);
    if (PyErr_Occurred())
        return NULL;
    if (position < 0) {
        PyErr_SetString(PyExc_ValueError, "the position is negative");
        return NULL;
    }
    PyTypeObject *kind = (PyTypeObject *)arguments[2];
    PyObject *topic = NULL, *born_host = NULL, *store_host = NULL, *messages = PyList_New(0);
    while (messages != NULL && end - position >= FIXED_BYTES) {
        const unsigned char *head = (const unsigned char *)PyBytes_AS_STRING(arguments[0]) + position;
        uint32_t sys_flags = get32(head + 36);
        Py_ssize_t size = (int32_t)get32(head), born_size = sys_flags & BORN_HOST_V6 ? 20 : 8;
        Py_ssize_t store_size = sys_flags & STORE_HOST_V6 ? 20 : 8, fixed = FIXED_BYTES - 16 + born_size + store_size;
        if (get32(head + 4) != MESSAGE_MAGIC || size < fixed || size > end - position || sys_flags & COMPRESSED)
            break;
        const unsigned char *born = head + 48, *stored = born + born_size, *rest = stored + 8 + store_size;
        Py_ssize_t body_size = (int32_t)get32(rest + 12), left = size - fixed;
        const unsigned char *body = rest + 16;
        if (body_size < 0 || body_size > left)
            break;
        left -= body_size;
        const unsigned char *topic_at = body + body_size + 1;
        Py_ssize_t topic_size = topic_at[-1];
        if (topic_size > left || !is_ascii(topic_at, topic_size))
            break;
        left -= topic_size;
        const unsigned char *properties = topic_at + topic_size + 2;
        if ((properties[-2] << 8 | properties[-1]) != left)
            break;
        if (body_size > 0 && body_crc(body, body_size) != get32(head + 8))
            break;
        PyObject *message = kind->tp_alloc(kind, 0);
        if (message == NULL)
            break;
        PyObject *items[MESSAGE_SLOTS] = {
            [TOPIC] = ascii_like_last(topic, topic_at, topic_size),
            [BODY] = PyBytes_FromStringAndSize((const char *)body, body_size),
            [PROPERTIES] = PyBytes_FromStringAndSize((const char *)properties, left),
            [BORN_HOST] = bytes_like_last(born_host, born, born_size),
            [STORE_HOST] = bytes_like_last(store_host, stored + 8, store_size),
            [BROKER_NAME] = Py_NewRef(arguments[4]),
            [TRANSACTION_ID] = Py_NewRef(Py_None),
            [BEGAN_MS] = Py_NewRef(Py_None),
            [STORE_SIZE] = PyLong_FromSsize_t(size),
            [BODY_CRC] = PyLong_FromLong((int32_t)get32(head + 8)),
            [QUEUE_ID] = PyLong_FromLong((int32_t)get32(head + 12)),
            [FLAG_OF_MESSAGE] = PyLong_FromLong((int32_t)get32(head + 16)),
            [QUEUE_OFFSET] = PyLong_FromLongLong((int64_t)get64(head + 20)),
            [PHYSICAL_OFFSET] = PyLong_FromLongLong((int64_t)get64(head + 28)),
            [SYS_FLAG] = PyLong_FromLong((int32_t)sys_flags),
            [BORN_TIMESTAMP] = PyLong_FromLongLong((int64_t)get64(head + 40)),
            [STORE_TIMESTAMP] = PyLong_FromLongLong((int64_t)get64(stored)),
            [RECONSUME_TIMES] = PyLong_FromLong((int32_t)get32(rest)),
            [PREPARED_OFFSET] = PyLong_FromLongLong((int64_t)get64(rest + 4)),
        };
        remember(&topic, items[TOPIC]);
        remember(&born_host, items[BORN_HOST]);
        remember(&store_host, items[STORE_HOST]);
        int is_whole = 1;
        for (int i = 0; i < MESSAGE_SLOTS; i++) {
            *(PyObject **)((char *)message + offsets[i]) = items[i];  /* empty before, and NULL is an empty slot */
            is_whole &= items[i] != NULL;
        }
        int is_added = is_whole && PyList_Append(messages, message) == 0;
        Py_DECREF(message);
        if (!is_added)
            break;
        position += size;
    }
    Py_XDECREF(topic);
    Py_XDECREF(born_host);
    Py_XDECREF(store_host);
    if (PyErr_Occurred())
        Py_CLEAR(messages);
    PyObject *found[] = {messages == NULL ? NULL : PyLong_FromSsize_t(position), messages};
    return tuple_of(found, 2);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static PyMethodDef functions[] = {
    FUNCTION(read_frames),
    FUNCTION(read_header),
    FUNCTION(properties_to_store),
    FUNCTION(properties_with),
    FUNCTION(read_properties),
    FUNCTION(write_record),
    FUNCTION(take_messages),
    FUNCTION(string_hash),
    FUNCTION(offset_message_id_bytes),
    FUNCTION(fill_binary),
    FUNCTION(fill_json),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "triomq.protocol._speedups", "See speedups.py.", -1, functions, NULL, NULL, NULL, NULL,
};

static const Constant constants[] = {
    {"MESSAGE_MAGIC", (int32_t)MESSAGE_MAGIC},
    {"FIXED_BYTES", FIXED_BYTES},
    {"BORN_HOST_V6", BORN_HOST_V6},
    {"STORE_HOST_V6", STORE_HOST_V6},
    {"COMPRESSED", COMPRESSED},
    {"MAX_TOPIC_BYTES", MAX_TOPIC_BYTES},
    {"MAX_PROPERTIES_BYTES", MAX_PROPERTIES_BYTES},
    {"JSON", JSON},
    {"ROCKETMQ", ROCKETMQ},
    {"JAVA", JAVA},
    {"MAX_FIELDS", MAX_FIELDS},
    {"MAX_PROPERTIES", MAX_PROPERTIES},
    {"MAX_VALUES", MAX_VALUES},
    {NULL, 0},
};

PyMODINIT_FUNC PyInit__speedups(void)
{
    return create_module(&definition, constants);
}

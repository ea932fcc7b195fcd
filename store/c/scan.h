/* Reading a record back from the log: see scanned_record.py. A part of _speedups.c. */

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

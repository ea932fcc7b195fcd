/* Delivering delayed messages that are due: see delivering.py. A part of _speedups.c. */

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
    static Wanted wanted;
    if (wanted.count == 0) {
        add_wanted(&wanted, (Bytes){(const unsigned char *)"REAL_TOPIC", 10});
        add_wanted(&wanted, (Bytes){(const unsigned char *)"REAL_QID", 8});
    }
    begin_walk(noted, &wanted);
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

/* What the filter of a pull says of stored properties: see broker/filters/conditions.py. A part of _speedups.c. */

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

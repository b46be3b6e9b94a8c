/* Protobuf wire format, pulled in place. Each message is a table of the fields we read; all others are skipped.
 * Differential oracle in tests: protobuf-c with ONNX's own schema. */
#include "fe_onnx_wire.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

typedef struct field {
    uint32_t number;
    uint8_t wire;
    uint64_t u;
    fe_span s;
} field;

static uint64_t read_varint(base_reader *r)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && !r->failed; shift += 7) {
        uint8_t b = base_reader_u8(r);
        if (shift == 63 && b > 1)
            break;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
    r->failed = true;
    return 0;
}

/* The next field, or false: at the end, or with r->failed. Groups were never part of ONNX and are refused. */
static bool next_field(base_reader *r, field *f)
{
    if (r->failed || base_reader_left(r) == 0)
        return false;
    uint64_t tag = read_varint(r);
    f->number = (uint32_t)(tag >> 3);
    f->wire = tag & 7;
    if (tag > UINT32_MAX || f->number == 0)
        r->failed = true;
    switch (f->wire) {
    case WIRE_VARINT:
        f->u = read_varint(r);
        break;
    case WIRE_64:
        f->u = base_reader_u64(r);
        break;
    case WIRE_32:
        f->u = base_reader_u32(r);
        break;
    case WIRE_BYTES: {
        uint64_t len = read_varint(r);
        if (r->failed || len > base_reader_left(r)) {
            r->failed = true;
            return false;
        }
        f->s = (fe_span){r->at, (size_t)len};
        r->at += len;
        break;
    }
    default:
        r->failed = true;
    }
    return !r->failed;
}

/* ---- messages as tables ---- */

/* INT F32: scalars, the last one wins. TEXT: bytes, the last one wins. ONE: a message that may occur once.
 * MANY: strings or messages. NUMS_V NUMS_4 NUMS_8: repeated varint, 4-byte and 8-byte numbers. flag: offset of a bool set on sight. */
typedef enum kind { INT, F32, TEXT, ONE, MANY, NUMS_V, NUMS_4, NUMS_8 } kind;
typedef struct rule {
    uint32_t number;
    kind k;
    uint16_t at, flag;
} rule;
#define NO_FLAG UINT16_MAX

static uint8_t wire_of(kind k)
{
    static const uint8_t wire[] = {WIRE_VARINT, WIRE_32,     WIRE_BYTES, WIRE_BYTES,
                                   WIRE_BYTES,  WIRE_VARINT, WIRE_32,    WIRE_64};
    return wire[k];
}

static uint32_t num_bytes(kind k) { return k == NUMS_4 ? 4 : k == NUMS_8 ? 8 : 0; }

static const rule *find_rule(const rule *rules, size_t n, uint32_t number)
{
    for (size_t i = 0; i < n; i++)
        if (rules[i].number == number)
            return &rules[i];
    return NULL;
}

/* Numbers in one field: 1 unpacked, any in a packed run; false if a run is cut short. */
static bool count_nums(const field *f, kind k, size_t *out_n)
{
    *out_n = 1;
    if (f->wire != WIRE_BYTES)
        return true;
    size_t each = num_bytes(k);
    if (each) {
        *out_n = f->s.len / each;
        return f->s.len % each == 0;
    }
    base_reader r = base_reader_of(f->s.at, f->s.len);
    for (*out_n = 0; base_reader_left(&r) && !r.failed; ++*out_n)
        read_varint(&r);
    return !r.failed;
}

static bool store(const field *f, const rule *ru, fe_span whole, char *out)
{
    char *p = out + ru->at;
    if (ru->flag != NO_FLAG)
        *(bool *)(out + ru->flag) = true;
    switch (ru->k) {
    case INT:
        memcpy(p, &f->u, 8);
        return true;
    case F32:
        memcpy(p, &f->u, 4);
        return true;
    case TEXT:
        *(fe_span *)p = f->s;
        return true;
    case ONE:
        if (((fe_span *)p)->at)
            return false;
        *(fe_span *)p = f->s;
        return true;
    case MANY:
        ((fe_list *)p)->n++;
        return true;
    default: {
        fe_nums *nums = (fe_nums *)p;
        size_t n;
        if (!count_nums(f, ru->k, &n))
            return false;
        nums->in = whole, nums->field = f->number, nums->elem_bytes = num_bytes(ru->k),
        nums->n += n;
        return true;
    }
    }
}

static rtx_status fill_lists(fe_span s, base_arena *a, const rule *rules, size_t n, char *out,
                             rtx_err *err)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (rules[i].k != MANY)
            continue;
        fe_list *l = (fe_list *)(out + rules[i].at);
        if (l->n == 0)
            continue;
        l->at = base_arena_array(a, l->n, sizeof *l->at);
        if (!l->at)
            return FAIL(err, NOMEM, "out of memory for %zu entries of a list in the model", l->n);
        l->n = 0;
        any = true;
    }
    base_reader r = base_reader_of(s.at, s.len);
    for (field f = {0}; any && next_field(&r, &f);) {
        const rule *ru = find_rule(rules, n, f.number);
        if (ru && ru->k == MANY) {
            fe_list *l = (fe_list *)(out + ru->at);
            l->at[l->n++] = f.s;
        }
    }
    return RTX_OK;
}

static rtx_status read_message(fe_span s, base_arena *a, const rule *rules, size_t n,
                               const char *what, void *out, size_t out_bytes, rtx_err *err)
{
    memset(out, 0, out_bytes);
    base_reader r = base_reader_of(s.at, s.len);
    for (field f = {0}; next_field(&r, &f);) {
        const rule *ru = find_rule(rules, n, f.number);
        if (!ru)
            continue;
        bool packed = ru->k >= NUMS_V && f.wire == WIRE_BYTES;
        if (f.wire != wire_of(ru->k) && !packed)
            return FAIL(err, CORRUPT, "ONNX %s: field %u has wire type %u; the file is damaged",
                        what, f.number, f.wire);
        if (!store(&f, ru, s, out))
            return FAIL(err, CORRUPT,
                        "ONNX %s: field %u is cut short or given twice; the file is damaged", what,
                        f.number);
    }
    if (r.failed)
        return FAIL(err, CORRUPT,
                    "ONNX %s: damaged at byte %zu of %zu; is the file complete and an ONNX model?",
                    what, (size_t)(r.at - s.at), s.len);
    return fill_lists(s, a, rules, n, out, err);
}

#define AT(m, f)     (uint16_t) offsetof(fe_pb_##m, f), NO_FLAG
#define AT2(m, f, b) (uint16_t) offsetof(fe_pb_##m, f), (uint16_t)offsetof(fe_pb_##m, b)

static const rule rules_opset[] = {{1, TEXT, AT(opset, domain)}, {2, INT, AT(opset, version)}};
static const rule rules_model[] = {{1, INT, AT(model, ir_version)},
                                   {7, ONE, AT2(model, graph, has_graph)},
                                   {8, MANY, AT(model, opsets)},
                                   {25, MANY, AT(model, functions)}};
static const rule rules_graph[] = {
    {1, MANY, AT(graph, nodes)},        {2, TEXT, AT(graph, name)},
    {5, MANY, AT(graph, initializers)}, {11, MANY, AT(graph, inputs)},
    {12, MANY, AT(graph, outputs)},     {13, MANY, AT(graph, infos)},
    {15, MANY, AT(graph, sparse)}};
static const rule rules_node[] = {{1, MANY, AT(node, inputs)},  {2, MANY, AT(node, outputs)},
                                  {3, TEXT, AT(node, name)},    {4, TEXT, AT(node, op)},
                                  {5, MANY, AT(node, attrs)},   {7, TEXT, AT(node, domain)},
                                  {8, TEXT, AT(node, overload)}};
static const rule rules_attr[] = {
    {1, TEXT, AT(attr, name)},     {2, F32, AT(attr, f)},         {3, INT, AT(attr, i)},
    {4, TEXT, AT(attr, s)},        {5, ONE, AT2(attr, t, has_t)}, {6, ONE, AT(attr, g)},
    {7, NUMS_4, AT(attr, floats)}, {8, NUMS_V, AT(attr, ints)},   {9, MANY, AT(attr, strings)},
    {10, MANY, AT(attr, tensors)}, {11, MANY, AT(attr, graphs)},  {20, INT, AT(attr, type)},
    {21, TEXT, AT(attr, ref)},     {22, ONE, AT(attr, sparse)}};
static const rule rules_tensor[] = {{1, NUMS_V, AT(tensor, dims)},
                                    {2, INT, AT(tensor, dtype)},
                                    {3, ONE, AT2(tensor, segment, has_segment)},
                                    {4, NUMS_4, AT(tensor, f32s)},
                                    {5, NUMS_V, AT(tensor, i32s)},
                                    {6, MANY, AT(tensor, strings)},
                                    {7, NUMS_V, AT(tensor, i64s)},
                                    {8, TEXT, AT(tensor, name)},
                                    {9, TEXT, AT2(tensor, raw, has_raw)},
                                    {10, NUMS_8, AT(tensor, f64s)},
                                    {11, NUMS_V, AT(tensor, u64s)},
                                    {13, MANY, AT(tensor, external)},
                                    {14, INT, AT(tensor, location)}};
static const rule rules_pair[] = {{1, TEXT, AT(pair, key)}, {2, TEXT, AT(pair, value)}};
static const rule rules_value[] = {{1, TEXT, AT(value, name)},
                                   {2, ONE, AT2(value, type, has_type)}};
static const rule rules_type[] = {{1, ONE, AT2(type, tensor, has_tensor)},
                                  {4, ONE, AT(type, sequence)},
                                  {5, ONE, AT(type, map)},
                                  {8, ONE, AT(type, sparse)},
                                  {9, ONE, AT(type, optional)}};
static const rule rules_tensor_type[] = {{1, INT, AT(tensor_type, elem)},
                                         {2, ONE, AT2(tensor_type, shape, has_shape)}};
static const rule rules_shape[] = {{1, MANY, AT(shape, dims)}};
static const rule rules_dim[] = {{1, INT, AT2(dim, value, has_value)},
                                 {2, TEXT, AT2(dim, param, has_param)}};
static const rule rules_function[] = {
    {1, TEXT, AT(function, name)},     {4, MANY, AT(function, inputs)},
    {5, MANY, AT(function, outputs)},  {6, MANY, AT(function, attrs)},
    {7, MANY, AT(function, nodes)},    {9, MANY, AT(function, opsets)},
    {10, TEXT, AT(function, domain)},  {11, MANY, AT(function, attr_defaults)},
    {13, TEXT, AT(function, overload)}};

#define FE_PB_DEFINE(m)                                                                            \
    rtx_status fe_read_##m(fe_span s, base_arena *a, fe_pb_##m *out, rtx_err *err)                 \
    {                                                                                              \
        return read_message(s, a, rules_##m, COUNT_OF(rules_##m), #m, out, sizeof *out, err);      \
    }
FE_PB_MESSAGES(FE_PB_DEFINE)

/* ---- repeated numbers ---- */

fe_nums_at fe_nums_begin(const fe_nums *n)
{
    return (fe_nums_at){base_reader_of(n->in.at, n->in.len), base_reader_of(NULL, 0), n->field,
                        n->elem_bytes};
}

bool fe_nums_next(fe_nums_at *it, uint64_t *out_bits)
{
    while (base_reader_left(&it->pack) == 0) {
        field f = {0};
        if (!next_field(&it->msg, &f))
            return false;
        if (f.number != it->field)
            continue;
        if (f.wire != WIRE_BYTES) {
            *out_bits = f.u;
            return true;
        }
        it->pack = base_reader_of(f.s.at, f.s.len);
    }
    switch (it->elem_bytes) {
    case 4:
        *out_bits = base_reader_u32(&it->pack);
        break;
    case 8:
        *out_bits = base_reader_u64(&it->pack);
        break;
    default:
        *out_bits = read_varint(&it->pack);
    }
    return !it->pack.failed;
}

const uint8_t *fe_nums_run(const fe_nums *n)
{
    base_reader r = base_reader_of(n->in.at, n->in.len);
    for (field f = {0}; next_field(&r, &f);)
        if (f.number == n->field)
            return f.wire == WIRE_BYTES && f.s.len == n->n * n->elem_bytes ? f.s.at : NULL;
    return NULL;
}

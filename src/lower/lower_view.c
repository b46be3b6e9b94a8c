/* Views as strides: how reshape, broadcast, permute and slice move over memory without a copy. */
#include "lower.h"

fmt_dim lower_row_major(fmt_dims *d, const ir_type *t, fmt_dim *out_stride)
{
    fmt_dim step = fmt_dim_const(d, 1);
    for (int i = t->rank; i-- > 0;) {
        out_stride[i] = step;
        step = fmt_dim_mul(d, step, t->dim[i]);
    }
    return step;
}

bool lower_contiguous(fmt_dims *d, const ir_type *t, const lower_view *v)
{
    fmt_dim want[FMT_RANK_MAX];
    lower_row_major(d, t, want);
    for (int i = 0; i < t->rank; i++)
        if (v->stride[i] != want[i] && !fmt_dim_is(d, t->dim[i], 1))
            return false;
    return true;
}

static void view_broadcast(const ir_graph *g, const ir_type *to, const ir_type *from,
                           const lower_view *in, lower_view *out)
{
    int lead = to->rank - from->rank;
    for (int i = 0; i < to->rank; i++) {
        bool stretched = i < lead || (fmt_dim_is(g->dims, from->dim[i - lead], 1) &&
                                      !fmt_dim_is(g->dims, to->dim[i], 1));
        out->stride[i] = stretched ? fmt_dim_const(g->dims, 0) : in->stride[i - lead];
    }
}

/* Splitting and merging of axes where strides allow it: walk both shapes from the right and match groups of axes with equal
 * products; inside a group the old axes must lie one within the other. */
static bool view_reshape(const ir_graph *g, const ir_type *to, const ir_type *from,
                         const lower_view *in, lower_view *out)
{
    fmt_dims *d = g->dims;
    if (lower_contiguous(d, from, in)) {
        lower_row_major(d, to, out->stride);
        return true;
    }
    int i = from->rank, j = to->rank;
    while (j > 0 || i > 0) {
        while (i > 0 && fmt_dim_is(d, from->dim[i - 1], 1))
            i--;
        if (i == 0) { /* only unit axes are left in `to` */
            while (j > 0) {
                if (!fmt_dim_is(d, to->dim[j - 1], 1))
                    return false;
                out->stride[--j] = fmt_dim_const(d, 0);
            }
            return true;
        }
        int i1 = i - 1, j1 = j;
        fmt_dim old_size = from->dim[i1], new_size = fmt_dim_const(d, 1);
        fmt_dim step = in->stride[i1];
        while (new_size != old_size || j1 == j) {
            int64_t a = 0, b = 0;
            bool both = fmt_dim_is_const(d, old_size, &a) && fmt_dim_is_const(d, new_size, &b);
            bool take_new =
                j1 > 0 &&
                (j1 == j ||
                 (both ? b < a
                       : fmt_dim_is(d,
                                    fmt_dim_bin(d, FMT_MOD, old_size,
                                                fmt_dim_mul(d, new_size, to->dim[j1 - 1])),
                                    0)));
            if (take_new) {
                out->stride[--j1] = fmt_dim_mul(d, step, new_size);
                new_size = fmt_dim_mul(d, new_size, to->dim[j1]);
            } else if (i1 > 0 &&
                       in->stride[i1 - 1] == fmt_dim_mul(d, in->stride[i1], from->dim[i1])) {
                i1--;
                old_size = fmt_dim_mul(d, old_size, from->dim[i1]);
            } else {
                return false;
            }
        }
        i = i1;
        j = j1;
    }
    return true;
}

static void view_slice(const ir_graph *g, const ir_attrs *at, int rank, const lower_view *in,
                       lower_view *out)
{
    fmt_dims *d = g->dims;
    for (int i = 0; i < rank; i++) {
        out->offset = fmt_dim_add(d, out->offset, fmt_dim_mul(d, at->dims[i], in->stride[i]));
        out->stride[i] = fmt_dim_mul(d, in->stride[i], fmt_dim_const(d, at->list[i]));
    }
}

bool lower_view_of(const ir_graph *g, ir_id id, const lower_view *in, lower_view *out)
{
    const ir_type *to = ir_type_of(g, id), *from = ir_type_of(g, ir_in(g, id, 0));
    const ir_attrs *at = ir_attrs_of(g, id);
    *out = (lower_view){.value = in->value, .constant = in->constant, .offset = in->offset};
    switch (ir_op_of(g, id)) {
    case IR_reshape:
        return view_reshape(g, to, from, in, out);
    case IR_broadcast:
        view_broadcast(g, to, from, in, out);
        return true;
    case IR_permute:
        for (int i = 0; i < to->rank; i++)
            out->stride[i] = in->stride[at->list[i]];
        return true;
    case IR_slice:
        view_slice(g, at, to->rank, in, out);
        return true;
    default:
        return false;
    }
}

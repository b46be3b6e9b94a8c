/* Time of one kernel at one size, taken so that it can be trusted and compared.
 *   mode       the deployment's: same pool, same ways, weights streaming from memory (see worker_time.c)
 *   watch      the parent's clock bounds what the worker says: a sample longer than the exchange, or an exchange mostly
 *              unaccounted for, is no sample
 *   sentinel   arithmetic and memory speed beside each round; neighbours slow memory without moving the clock */
#include "tun_int.h"
#include <math.h>

#define TIMEOUT_NS  UINT64_C(3000000000)
#define SENTINEL_OK 0.80
#define STALL       50.0 /* mean call over first call: it changes its mind after some calls */
#define STALL_NS    1e6

const tun_clock *tun_real_clock(void)
{
    static const tun_clock monotonic = {base_now_ns, true};
    return &monotonic;
}

void tun_timer_init(tun_timer *t, tun_worker *w, fmt_isa isa)
{
    *t = (tun_timer){.worker = w, .clock = tun_real_clock(), .isa = isa};
}

static uint8_t fill_of(const tun_operand *o)
{
    if (o->values == TUN_MASK)
        return FMT_FILL_ZERO;
    switch (o->dtype) {
    case FMT_F32:
        return FMT_FILL_F32;
    case FMT_I64:
        return FMT_FILL_I64;
    case FMT_I32:
        return FMT_FILL_I32;
    case FMT_F16:
    case FMT_BF16:
        return FMT_FILL_F16;
    case FMT_BOOL:
        return FMT_FILL_BOOL;
    default:
        return FMT_FILL_ZERO;
    }
}

static void request(const tun_shape *s, int ways, uint64_t least_ns, fmt_work_req *req)
{
    memset(req, 0, sizeof *req);
    req->cmd = FMT_WORK_TIME;
    req->n_operands = s->n_op;
    req->n_args = s->n_arg;
    memcpy(req->arg, s->arg, s->n_arg * sizeof *s->arg);
    for (uint32_t i = 0; i < s->n_op; i++) {
        const tun_operand *o = &s->op[i];
        size_t size = fmt_dtype_bytes(o->dtype);
        req->u.made[i] = (fmt_work_made){.bytes = tun_operand_bytes(o),
                                         .first = (uint64_t)o->below * size,
                                         .bound = o->values == TUN_INDEX ? o->bound : 2,
                                         .fill = fill_of(o),
                                         .role = o->output   ? FMT_WORK_OUTPUT
                                                 : o->weight ? FMT_WORK_WEIGHT
                                                             : FMT_WORK_INPUT};
    }
    req->ways = (uint32_t)ways;
    req->least_ns = least_ns;
    req->max_calls = 4096;
}

/* The worker's figures against our own clock. */
static rtx_status believe(const fmt_work_rep *rep, uint64_t wall_ns, rtx_err *why)
{
    if (rep->calls == 0 || rep->ns == 0)
        return FAIL(why, INVALID, "no time was measured");
    if (rep->total_ns > wall_ns || rep->ns > rep->total_ns || rep->first_ns > rep->total_ns)
        return FAIL(why, INVALID,
                    "the worker's clock is ahead: it says %.3f ms of an exchange of %.3f ms",
                    (double)rep->total_ns / 1e6, (double)wall_ns / 1e6);
    return RTX_OK;
}

/* Fast at first, then far slower than any neighbour on the machine could make it. */
static rtx_status steady(const fmt_work_rep *rep, rtx_err *why)
{
    double ns = (double)rep->ns / (double)rep->calls;
    if (ns > STALL * (double)rep->first_ns && ns > STALL_NS)
        return FAIL(why, INVALID, "stalls: %.3f ms a call after %.3f ms for the first", ns / 1e6,
                    (double)rep->first_ns / 1e6);
    return RTX_OK;
}

/* One exchange and its judgement. */
static rtx_status sample(tun_timer *t, fmt_work_req *req, uint64_t limit_ns, double *out_ns,
                         rtx_err *why)
{
    fmt_work_rep rep;
    uint64_t wall_ns;
    TRY(tun_worker_call(t->worker, req, limit_ns, &rep, &wall_ns, why));
    if (rep.status != FMT_WORK_OK)
        return FAIL(why, LIMIT, "cannot be timed: %s",
                    rep.status == FMT_WORK_BAD_PLAN ? "its plan is absurd"
                                                    : "no memory for its buffers");
    TRY(believe(&rep, wall_ns, why));
    TRY(steady(&rep, why));
    *out_ns = (double)rep.ns / (double)rep.calls;
    return RTX_OK;
}

rtx_status tun_time(tun_timer *t, const tun_shape *shape, const tun_code *code, int ways,
                    uint64_t least_ns, double *out_ns, rtx_err *why)
{
    static fmt_work_req req; /* 3 KB; one tuning at a time */
    uint64_t t_ns = t->clock->now_ns();
    uint64_t limit_ns =
        TIMEOUT_NS + (uint64_t)(shape->flops * 4.0) + (uint64_t)(MIN(shape->bytes, 1e9) * 4.0);
    request(shape, ways, least_ns, &req);
    TRY(tun_code_place(t->worker, code, &req.code, why));
    rtx_status s = RTX_INVALID; /* a busy machine can spoil a sample, not three */
    for (int attempt = 0; attempt < 3 && s == RTX_INVALID; attempt++)
        s = sample(t, &req, limit_ns, out_ns, why);
    if (s == RTX_DEVICE) /* so can it make one late */
        s = sample(t, &req, limit_ns, out_ns, why);
    t->seconds += (double)(t->clock->now_ns() - t_ns) / 1e9;
    return s;
}

bool tun_sentinel_ok(tun_timer *t)
{
    fmt_work_req req = {.cmd = FMT_WORK_PROBE, .order = FMT_PROBE_SENTINEL, .b = t->isa};
    fmt_work_rep rep;
    tun_sentinel *s = &t->sentinel;
    uint64_t t_ns = t->clock->now_ns();
    rtx_status status = tun_worker_call(t->worker, &req, TIMEOUT_NS, &rep, NULL, NULL);
    t->seconds += (double)(t->clock->now_ns() - t_ns) / 1e9;
    s->rounds++;
    if (status != RTX_OK || rep.status != FMT_WORK_OK || !(rep.value[0] > 0) || !(rep.value[1] > 0))
        return true; /* no sentinel is no proof of trouble */
    s->fma = MAX(s->fma, rep.value[0]);
    s->read = MAX(s->read, rep.value[1]);
    bool ok = rep.value[0] >= SENTINEL_OK * s->fma && rep.value[1] >= SENTINEL_OK * s->read / 1.5;
    s->disturbed += !ok;
    return ok;
}

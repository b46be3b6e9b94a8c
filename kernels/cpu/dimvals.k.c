/* @kernel  dimvals
 * @what    y[n] = values of sizes, as i64
 * @tol     exact
 * @source  own work
 *
 * The renderer defines fill(arg, y): all stores. */

void K_FN(plan)(const int64_t *arg, int64_t ways, k_plan *out)
{
    (void)arg, (void)ways;
    out->units = 1;
    out->scratch_bytes = 0;
}

void K_FN(run)(const k_call *c, int64_t begin, int64_t end)
{
    (void)begin, (void)end;
    K_FN(fill)(c->arg, c->buf[0]);
}

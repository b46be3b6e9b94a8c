/* Text that came from outside: is it UTF-8, and can it be shown?
 *   layer    L0 base
 *   threads  no state */
#include "base_core.h"

size_t base_utf8_size(const char *s, size_t left)
{
    const uint8_t *c = (const uint8_t *)s;
    if (left == 0 || c[0] < 0x80)
        return left > 0;
    size_t n = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    /* longer than its value needs, half of a surrogate pair, or above U+10FFFF */
    bool wrong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0) ||
                 (c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90);
    return wrong ? 0 : n;
}

bool base_utf8_ok(const char *s, size_t len)
{
    size_t n = 0;
    for (; len > 0 && (n = base_utf8_size(s, len)) > 0; s += n, len -= n)
        ;
    return len == 0;
}

void base_make_printable(char *text)
{
    for (char *c = text; *c; c++)
        *c = base_printable(*c);
}

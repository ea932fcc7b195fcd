/* Which basic blocks of the code compiled with -fsanitize-coverage=trace-pc have run: one byte each, hashed by address. */

#include <stdint.h>

unsigned char coverage_map[1 << 14];

__attribute__((visibility("hidden"))) void __sanitizer_cov_trace_pc(void)
{
    uintptr_t block = (uintptr_t)__builtin_return_address(0);
    coverage_map[(block ^ block >> 14) & (sizeof coverage_map - 1)] = 1;
}

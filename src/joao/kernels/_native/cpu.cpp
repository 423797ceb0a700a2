// Which of the libraries this processor and system can run: 0 baseline, 1 avx2, 2 avx512. Called in the baseline one.
// The extensions are those of hatch_build.py. (__builtin_cpu_supports needs a runtime that not every compiler links.)

#if defined(__x86_64__)
#include <cpuid.h>
#endif

extern "C" __attribute__((visibility("default"))) int joao_cpu_level() {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const bool fma = c >> 12 & 1, xsave = c >> 27 & 1;  // xsave: the system tells which registers it saves
    if (!fma || !xsave || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    unsigned saved, high;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    const bool avx2 = (b >> 5 & 1) && (saved & 0x6) == 0x6;
    const unsigned extensions = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;  // F, DQ, CD, BW, VL
    const bool avx512 = (b & extensions) == extensions && (saved & 0xe6) == 0xe6;
    return avx2 ? 1 + avx512 : 0;
#else
    return 0;
#endif
}

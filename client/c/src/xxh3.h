/* xxh3-64 of bytes, with AVX2 on processors that have it: twice as fast, and a batch is hashed by all that touch it.
 *
 * Included by batch.c alone: all of xxhash.h becomes part of it. */

#ifndef QUOTH_XXH3_H
#define QUOTH_XXH3_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX2__)
#include <immintrin.h>
#define XXH_X86DISPATCH 1 /* aligns what is on the stack for either of the two */
#define XXH_DISPATCH_AVX2 1
#define XXH_TARGET_AVX2 __attribute__((__target__("avx2")))
#endif

#define XXH_INLINE_ALL
#include "../vendor/xxhash.h"

#ifdef XXH_DISPATCH_AVX2

/* Not inlined: the other function must not have its instructions. */
__attribute__((__noinline__)) XXH_TARGET_AVX2 static uint64_t xxh3_avx2(const void *bytes, size_t size, uint64_t seed) {
    return XXH3_hashLong_64b_withSeed_internal(bytes, size, seed, XXH3_accumulate_512_avx2, XXH3_scrambleAcc_avx2,
                                               XXH3_initCustomSecret_avx2);
}

static uint64_t xxh3(const void *bytes, size_t size, uint64_t seed) {
    if (size > XXH3_MIDSIZE_MAX && __builtin_cpu_supports("avx2")) return xxh3_avx2(bytes, size, seed);
    return XXH3_64bits_withSeed(bytes, size, seed);
}

#else

static uint64_t xxh3(const void *bytes, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(bytes, size, seed); }

#endif

#endif

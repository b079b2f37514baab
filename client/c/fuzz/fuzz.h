/* What the harnesses share. An input is judged by the promises of the headers; one that is broken ends the program.
 *
 * With clang they are programs of libFuzzer. With any other compiler replay.c runs them over files. */

#ifndef QUOTH_FUZZ_H
#define QUOTH_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Also where NDEBUG is set. */
#define PROMISE(condition)                                                             \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);    \
            abort();                                                                   \
        }                                                                              \
    } while (0)

/* Memory of exactly so many bytes, so that ASan finds an access behind them. */
static inline uint8_t *take_memory(size_t size) {
    uint8_t *memory = malloc(size + !size);
    PROMISE(memory);
    return memory;
}

static inline uint8_t *copy_of(const void *bytes, size_t size) {
    uint8_t *copy = take_memory(size);
    if (size) memcpy(copy, bytes, size);
    return copy;
}

#endif

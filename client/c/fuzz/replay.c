/* Runs a harness over files and their mutations, where the compiler has no libFuzzer.
 *
 *     fuzz-batch SEED MUTATIONS FILE...
 *
 * MUTATIONS: how many of each file, cut or changed in 1 to 4 places at random. Prints how many inputs there were. */

#include "fuzz.h"

enum { FILE_BYTES_MAX = 1 << 20, PLACES_MAX = 4 };

static uint64_t state = 0x9e3779b97f4a7c15ull;

/* xorshift64 */
static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void mutate(uint8_t *bytes, size_t size) {
    for (uint64_t places = 1 + draw() % PLACES_MAX; places-- > 0;) {
        size_t place = draw() % size;
        uint8_t bit = (uint8_t)(1u << draw() % 8);
        bytes[place] = draw() % 2 ? (uint8_t)draw() : bytes[place] ^ bit;
    }
}

int main(int count, char **arguments) {
    static uint8_t bytes[FILE_BYTES_MAX];
    unsigned long long inputs = 0, mutations;
    if (count < 3) return 2;
    state ^= strtoull(arguments[1], NULL, 10);
    mutations = strtoull(arguments[2], NULL, 10);
    for (int i = 3; i < count; i++) {
        FILE *file = fopen(arguments[i], "rb");
        if (!file) return perror(arguments[i]), 1;
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        LLVMFuzzerTestOneInput(bytes, size);
        inputs++;
        for (unsigned long long mutation = 0; size && mutation < mutations; mutation++, inputs++) {
            uint8_t *mutated = copy_of(bytes, size);
            int is_cut = draw() % 8 == 0;
            if (!is_cut) mutate(mutated, size);
            LLVMFuzzerTestOneInput(mutated, is_cut ? 1 + draw() % size : size);
            free(mutated);
        }
    }
    printf("%llu\n", inputs);
    return 0;
}

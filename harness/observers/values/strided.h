/* The elements of a strided tensor in row-major order, gathered part by part into a buffer.
 *
 * A view of a training's tensor is digested without a copy of the whole view: a part fits into the L1 cache. The rows of
 * a transposed view are gathered several at a time, tile by tile, because their elements lie side by side in memory.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MOST_DIMENSIONS 64
#define PANEL (1 << 16) /* bytes of the rows of a transposed view that are gathered together */
#define ROWS 16         /* of a panel; as many 4-byte elements fill a cache line */
#define LEAST_ROWS 4

/* `extents` and `strides` are the coalesced dimensions, the innermost last; strides count bytes. */
struct gathering {
    size_t rows, ready; /* rows of a panel, 0 if there is none; bytes at the end of the panel that are still to be copied */
    size_t filled;      /* bytes of the panel */
    const unsigned char *at; /* the next element */
    size_t dimensions, size; /* size: bytes of an element */
    int64_t extents[MOST_DIMENSIONS], strides[MOST_DIMENSIONS], index[MOST_DIMENSIONS];
    unsigned char panel[PANEL] __attribute__((aligned(64)));
};

/* `geometry` is the number of dimensions, MOST_DIMENSIONS at most, then their extents, then their strides in elements. */
static void begin_gathering(struct gathering *g, const void *data, const int64_t *geometry, size_t size) {
    const int64_t *extents = geometry + 1, *strides = extents + geometry[0];
    g->at = data;
    g->dimensions = 0;
    g->size = size;
    for (int64_t i = 0; i < geometry[0]; i++) {
        int64_t stride = strides[i] * (int64_t)size;
        size_t last = g->dimensions - 1;
        if (extents[i] == 1) continue;
        if (g->dimensions && g->strides[last] == stride * extents[i]) { /* one dimension with the one before it */
            g->extents[last] *= extents[i];
            g->strides[last] = stride;
        } else {
            g->extents[g->dimensions] = extents[i];
            g->strides[g->dimensions] = stride;
            g->index[g->dimensions++] = 0;
        }
    }
    if (!g->dimensions) g->extents[0] = 1, g->strides[0] = (int64_t)size, g->index[g->dimensions++] = 0;
    size_t inner = g->dimensions - 1, row = (size_t)g->extents[inner] * size;
    g->ready = g->filled = g->rows = 0;
    if (inner && g->strides[inner - 1] == (int64_t)size && g->strides[inner] != (int64_t)size && row <= PANEL / LEAST_ROWS)
        g->rows = PANEL / row < ROWS ? PANEL / row : ROWS;
}

/* Advance the dimension `i` by `count` elements, to the next element of an outer dimension at its end. */
static void advance(struct gathering *g, size_t i, int64_t count) {
    g->at += count * g->strides[i];
    g->index[i] += count;
    for (; g->index[i] == g->extents[i] && i; i--) {
        g->at += g->strides[i - 1] - g->extents[i] * g->strides[i];
        g->index[i] = 0;
        g->index[i - 1]++;
    }
}

#define TILE 8 /* columns: their cache lines fit into the L1 cache even if all of them are in one set */

#define TRANSPOSE(TYPE)                                                                                    \
    for (size_t column = 0; column < columns; column += TILE) {                                            \
        const unsigned char *tile = from + (int64_t)column * stride;                                       \
        size_t width = columns - column;                                                                   \
        for (size_t row = 0; row < rows; row++) {                                                          \
            TYPE element, *out = (TYPE *)(void *)to + row * columns + column;                              \
            const unsigned char *in = tile + row * sizeof(TYPE);                                           \
            if (width >= TILE)                                                                             \
                for (size_t i = 0; i < TILE; i++)                                                          \
                    memcpy(&element, in + (int64_t)i * stride, sizeof element), out[i] = element;          \
            else                                                                                           \
                for (size_t i = 0; i < width; i++)                                                         \
                    memcpy(&element, in + (int64_t)i * stride, sizeof element), out[i] = element;          \
        }                                                                                                  \
    }

static void fill_panel(struct gathering *g) {
    size_t inner = g->dimensions - 1, columns = (size_t)g->extents[inner];
    int64_t left = g->extents[inner - 1] - g->index[inner - 1], stride = g->strides[inner];
    size_t rows = left < (int64_t)g->rows ? (size_t)left : g->rows;
    const unsigned char *from = g->at;
    unsigned char *to = g->panel;
    if (g->size == 4) TRANSPOSE(uint32_t)
    else if (g->size == 2) TRANSPOSE(uint16_t)
    else if (g->size == 8) TRANSPOSE(uint64_t)
    else TRANSPOSE(uint8_t)
    g->ready = g->filled = rows * columns * g->size;
    advance(g, inner - 1, (int64_t)rows);
}

#define COPY_ELEMENTS(TYPE)                                                                                \
    for (int64_t i = 0; i < run; i++) {                                                                    \
        TYPE element;                                                                                      \
        memcpy(&element, from + i * stride, sizeof element);                                               \
        memcpy(to + (size_t)i * sizeof element, &element, sizeof element);                                 \
    }

static void copy_run(unsigned char *to, const unsigned char *from, int64_t run, int64_t stride, size_t size) {
    if (stride == (int64_t)size) memcpy(to, from, (size_t)run * size);
    else if (size == 4) COPY_ELEMENTS(uint32_t)
    else if (size == 2) COPY_ELEMENTS(uint16_t)
    else if (size == 8) COPY_ELEMENTS(uint64_t)
    else COPY_ELEMENTS(uint8_t)
}

/* Copy the next `count` elements. */
static void gather(struct gathering *g, unsigned char *to, int64_t count) {
    size_t inner = g->dimensions - 1;
    for (size_t bytes = (size_t)count * g->size; g->rows && bytes;) {
        if (!g->ready) fill_panel(g);
        size_t part = g->ready < bytes ? g->ready : bytes;
        memcpy(to, g->panel + g->filled - g->ready, part);
        to += part, bytes -= part, g->ready -= part;
    }
    while (!g->rows && count) {
        int64_t left = g->extents[inner] - g->index[inner], run = left < count ? left : count;
        copy_run(to, g->at, run, g->strides[inner], g->size);
        to += (size_t)run * g->size;
        count -= run;
        advance(g, inner, run);
    }
}

// Gathers rows of an FP8 (e4m3) pool and casts them to BF16: out[i, :] = bf16(float(pool[indices[i], :]) * scale).
//
// A block takes ROWS rows at once and DEPTH such groups. Each thread has one place in the row: it reads VECTOR codes there
// and writes VECTOR bf16, so that a warp reads and writes stretches without gaps and there is no division in the loop; all
// of a thread's loads are under way before the first is used.
//
// Without a scale the conversion is exact and done in integers: the seven bits below the sign, moved to the same place in
// a bf16, make a number 2^120 times too small (subnormal codes too), and one multiplication puts it right.
//
//
// Compiled for: COLUMNS (codes in a row), VECTOR (16, 8, 4 or 1 codes an access; divides COLUMNS and every address), PART
// (accesses of a row that one block makes; divides COLUMNS / VECTOR, blockIdx.y counts the parts), ROWS, DEPTH,
// WIDE_INDICES (int64, else int32), SCALING (0 none, 1 one factor, 2 one for each GROUP columns of a row), PAGE (rows in a
// page of the pool; 0: all rows lie in one piece).
#include "device.cuh"

#if WIDE_INDICES
typedef int64_t index_t;
typedef uint64_t slot_t;
#else
typedef int32_t index_t;
typedef uint32_t slot_t;
#endif

#if VECTOR == 16
typedef uint4 codes_t;
#elif VECTOR == 8
typedef uint2 codes_t;
#elif VECTOR == 4
typedef uint32_t codes_t;
#else
typedef uint8_t codes_t;
#endif

const int WORDS = VECTOR < 4 ? 1 : VECTOR / 4;

// Codes as words of four; a single code is the lowest byte.
struct Words { uint32_t word[4]; };
DEVICE Words words_of(uint4 codes) { return {{codes.x, codes.y, codes.z, codes.w}}; }
DEVICE Words words_of(uint2 codes) { return {{codes.x, codes.y, 0, 0}}; }
DEVICE Words words_of(uint32_t codes) { return {{codes, 0, 0, 0}}; }

// Two codes, in the high bytes of the halves, to two bf16: exact, NaN apart.
DEVICE uint32_t cast_pair(uint32_t codes) {
  const uint32_t shifted = codes & 0x80008000u | codes >> 4 & 0x07f007f0u;
  return multiply_add_bf16x2(shifted, 0x7b807b80u, 0x80008000u);  // * 2^120 + -0, which keeps the sign of a zero
}
// Halves that hold the code of a NaN (s.1111.111) become NaN.
DEVICE uint32_t mark_nan(uint32_t pair, uint32_t codes) {
  const uint32_t nan = (codes & 0x7f007f00u) + 0x01000100u & 0x80008000u;
  return pair | (nan >> 15) * 0x7fffu;
}
// Not 0 where a word of four codes holds a NaN.
DEVICE uint32_t nan_codes(uint32_t word) { return (word & 0x7f7f7f7fu) + 0x01010101u & 0x80808080u; }

DEVICE uint32_t scale_pair(uint32_t pair, float factor) {
  return pack_bf16(multiply_rounded(float_of_bits(pair << 16), factor), multiply_rounded(float_of_bits(pair & 0xffff0000u), factor));
}

// Casts codes and stores them.
DEVICE void store_cast(uint16_t* out, const Words& codes, float factor) {
  uint32_t pairs[2 * WORDS], nan = 0;
#pragma unroll
  for (int i = 0; i < WORDS; i++) {
    nan |= nan_codes(codes.word[i]);
    pairs[2 * i] = cast_pair(pick_bytes(codes.word[i], 0, 0x1404));
    pairs[2 * i + 1] = cast_pair(pick_bytes(codes.word[i], 0, 0x3424));
  }
  if (nan) {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      pairs[2 * i] = mark_nan(pairs[2 * i], pick_bytes(codes.word[i], 0, 0x1404));
      pairs[2 * i + 1] = mark_nan(pairs[2 * i + 1], pick_bytes(codes.word[i], 0, 0x3424));
    }
  }
#if SCALING
#pragma unroll
  for (int i = 0; i < 2 * WORDS; i++) pairs[i] = scale_pair(pairs[i], factor);
#endif
#if VECTOR == 1
  store(out, (uint16_t)pairs[0]);
#elif VECTOR == 4
  store((uint2*)out, make_uint2(pairs[0], pairs[1]));
#else
#pragma unroll
  for (int i = 0; i < WORDS / 2; i++)
    store((uint4*)out + i, make_uint4(pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]));
#endif
}

// Rows of `out` from *count on (where there is a count) stay as they are. A slot that is no row of the pool gives zeros.
// Strides are in bytes, that of the scales in floats; pool_rows is at most what an index can say.
KERNEL(PART * ROWS) gather_cast(const uint8_t* __restrict__ pool, int32_t row_stride, int64_t page_stride, index_t pool_rows,
                                const index_t* __restrict__ indices, const int32_t* __restrict__ count, int32_t capacity,
                                const float* __restrict__ scales, int64_t scale_stride, uint16_t* __restrict__ out) {
  const int column = ((int)blockIdx.y * PART + (int)threadIdx.x % PART) * VECTOR;
  const int rows = count ? min(max(load(count), 0), capacity) : capacity;
  for (int first = (int)blockIdx.x * (ROWS * DEPTH) + (int)threadIdx.x / PART; first < rows; first += (int)gridDim.x * (ROWS * DEPTH)) {
    slot_t slots[DEPTH];
    codes_t codes[DEPTH];
    float factors[DEPTH];
#pragma unroll
    for (int i = 0; i < DEPTH; i++) slots[i] = first + i * ROWS < rows ? (slot_t)load(indices + first + i * ROWS) : ~(slot_t)0;
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
      codes[i] = codes_t();
      factors[i] = 1;
      if (slots[i] < (slot_t)pool_rows) {  // an index below 0 is a large slot
#if PAGE
        const uint8_t* row = pool + (int64_t)(slots[i] / PAGE) * page_stride + (int64_t)(slots[i] % PAGE) * row_stride;
#else
        const uint8_t* row = pool + (int64_t)(index_t)slots[i] * row_stride;
#endif
        codes[i] = (codes_t)load_once((const codes_t*)(row + column));
        if (SCALING == 1) factors[i] = load(scales);
        if (SCALING == 2) factors[i] = load(scales + (int64_t)slots[i] * scale_stride + column / GROUP);
      }
    }
    uint16_t* const target = out + (int64_t)first * COLUMNS + column;
#pragma unroll
    for (int i = 0; i < DEPTH; i++)
      if (first + i * ROWS < rows) store_cast(target + (int64_t)i * ROWS * COLUMNS, words_of(codes[i]), factors[i]);
  }
}

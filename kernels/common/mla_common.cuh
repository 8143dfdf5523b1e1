// What the kernels of attention over latent KV records (MLA) share: the kinds of records, a thread's place, and where results go.
//
// Compiled for: RECORDS (0: 576 bf16; 1: 512 e4m3, 4 float scales, 64 bf16; 2: 448 e4m3, 64 bf16, 8 scales of 8 bits
// elsewhere), TILES (rows of a block are 8 * TILES), PARTIAL (1: a block leaves sums for mla_combine.cu).

#define BF16_RECORDS 0
#define V32_RECORDS 1
#define DSV4_RECORDS 2

const int ROWS = 8 * TILES;
// Numbers of a query and of a value.
const int D = RECORDS == DSV4_RECORDS ? 512 : 576, VALUES = 512;

#define MINUS_INFINITY float_of_bits(0xff800000u)
#define NOT_A_NUMBER float_of_bits(0x7fffffffu)
// Probabilities are 2^(score - level) of their row. The level is that of the largest score, less LIFT, so that products of small
// ones and small scales fit into f16 as well; it stays until a score grows by more than MOST_GROWTH. 2^(LIFT + MOST_GROWTH) times
// a relative scale below 2 is an f16.
const float LIFT = RECORDS == BF16_RECORDS ? 0 : 6, MOST_GROWTH = 8;
const float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// A thread's place.
struct Place { int thread, warp, lane, group, pair; };  // group, pair: lane / 4, lane % 4
DEVICE Place place_of(int thread) { return {thread, thread / 32, thread % 32, thread % 32 / 4, thread % 4}; }

DEVICE float low_of_pair(uint32_t pair) { return float_of_bits(pair << 16); }
DEVICE float high_of_pair(uint32_t pair) { return float_of_bits(pair & 0xffff0000u); }

// ------------------------------------------------------------------------------------------------ numbers

// Powers of two that make a row of queries fit into f16, by exponent and fraction of its largest (as bits of a bf16), and what makes
// up for it. The largest's exponent becomes that of 2^14; at least 30 is taken for it, so that both powers are numbers.
struct Powers { float up, down; };
DEVICE Powers powers_of(int largest) {
  const int exponent = max(largest >> 7, 30);
  return {float_of_bits((uint32_t)(254 + 14 - exponent) << 23), float_of_bits((uint32_t)(exponent - 14) << 23)};
}

// Of the fragments of a tile of rows: exponent and fraction of the largest number, as bits of a bf16, of all four lanes of a row.
template <int steps, int tiles> DEVICE int largest_in(const uint32_t (&fragment)[steps][tiles][2], int tile) {
  int most = 0;
#pragma unroll
  for (int step = 0; step < steps; step++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t pair = fragment[step][tile][i];
      most = max(most, max((int)(pair & 0x7fffu), (int)(pair >> 16 & 0x7fffu)));
    }
#pragma unroll
  for (int lanes = 1; lanes < 4; lanes *= 2) most = max(most, (int)bits_of_float(warp_read_xor(float_of_bits((uint32_t)most), lanes)));
  return most;
}
// Multiplies the fragments of a tile of rows; those of steps that meet FP8 become f16.
template <int steps, int tiles, class IsFp8> DEVICE void multiply_row(uint32_t (&fragment)[steps][tiles][2], int tile, float by, const IsFp8& is_fp8) {
#pragma unroll
  for (int step = 0; step < steps; step++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t& pair = fragment[step][tile][i];
      const float low = low_of_pair(pair) * by, high = high_of_pair(pair) * by;
      pair = is_fp8(step) ? pack_f16(low, high) : pack_bf16(low, high);
    }
}

// Scales and levels.
DEVICE float size_of(float number) { return float_of_bits(bits_of_float(number) & 0x7fffffffu); }
// A power of two by its exponent's byte, as DSV4 has it: 0 is 2^-127, which is no normal float, and 255 is NaN.
DEVICE float scale_of_byte(uint32_t exponent) {
  const uint32_t least = 0x00400000u;
  return exponent == 255 ? NOT_A_NUMBER : float_of_bits(exponent ? exponent << 23 : least);
}
// The largest power of two in a size (2^-100 at least, and at most 2^126): log2 of it, and its inverse.
struct Power { float log2, inverse; };
DEVICE Power power_in(float size) {
  const int exponent = min(max((int)(bits_of_float(larger(size, 0)) >> 23), 127 - 100), 127 + 126);
  return {(float)(exponent - 127), float_of_bits((uint32_t)(254 - exponent) << 23)};
}
DEVICE float base_of(float level) { return level == MINUS_INFINITY ? 0 : level; }  // that of a row that has seen nothing is never used
// A difference, since level + LIFT + MOST_GROWTH may be rounded to more.
DEVICE bool outgrows(float score, float level) { return score - level > LIFT + MOST_GROWTH; }

// FP8 codes of 16 keys and 16 dimensions as the left side of a product: of keys 0 to 7 in `low` and of 8 to 15 in `high`.
DEVICE void keys_of_codes(uint32_t (&keys)[4], uint32_t low, uint32_t high) {
  keys[0] = f16_of_low_e4m3(low);
  keys[1] = f16_of_low_e4m3(high);
  keys[2] = f16_of_high_e4m3(low);
  keys[3] = f16_of_high_e4m3(high);
}
// FP8 codes of 16 keys and 32 dimensions, loaded as turned matrices of 16 bits, as the left sides of two products, whose rows 0
// to 7 are even dimensions and whose others are odd ones.
DEVICE void values_of_codes(uint32_t (&first)[4], uint32_t (&second)[4], const uint32_t (&codes)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t sorted = pick_bytes(codes[i], 0, 0x3120);  // two keys of an even dimension, and of the odd one
    uint32_t (&values)[4] = i < 2 ? first : second;
    values[i % 2 * 2] = f16_of_low_e4m3(sorted);
    values[i % 2 * 2 + 1] = f16_of_high_e4m3(sorted);
  }
}

// ------------------------------------------------------------------------------------------------ results

// Output is handed over in slices of 64 dimensions, each of four tiles of 16.
// Whether a slice is FP8. Then rows 0 to 7 and 8 to 15 of its tiles are even and odd dimensions, else the lower and the
// upper eight.
DEVICE bool slice_is_fp8(int slice) { return RECORDS == V32_RECORDS || (RECORDS == DSV4_RECORDS && slice < 7); }

// Four sums of a thread (two dimensions of two rows), normalised, to where they belong. `out` is that of row 0.
DEVICE void store_output(uint16_t* out, const float (&sums)[4], float first, float second, int row, int row_count, int slice, int m, const Place& at) {
  float low, high;  // neighbouring dimensions of one row
  if (slice_is_fp8(slice)) {
    const int dimension = slice * 64 + m * 16 + at.group * 2;
    if (row < row_count) store((uint32_t*)(out + (int64_t)row * VALUES + dimension), pack_bf16(sums[0] * first, sums[2] * first));
    if (row + 1 < row_count) store((uint32_t*)(out + (int64_t)(row + 1) * VALUES + dimension), pack_bf16(sums[1] * second, sums[3] * second));
    return;
  }
  // Neighbours in a dimension trade: the even one takes the first row of both, the odd one the second.
  const bool odd = at.group % 2;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float mine = odd ? sums[2 * half + 1] * second : sums[2 * half] * first;
    const float given = warp_read_xor(odd ? sums[2 * half] * first : sums[2 * half + 1] * second, 4);
    low = odd ? given : mine;
    high = odd ? mine : given;
    const int dimension = slice * 64 + m * 16 + half * 8 + at.group / 2 * 2;
    if (row + odd < row_count) store((uint32_t*)(out + (int64_t)(row + odd) * VALUES + dimension), pack_bf16(low, high));
  }
}

// What a row's sums are multiplied with in the end: 0 for a row that saw nothing.
DEVICE float inverse_of(float sum) { return sum == 0 ? 0 : 1 / sum; }
DEVICE float log_of(float level, float sum) { return sum == 0 ? MINUS_INFINITY : (level + log2_fast(sum)) * LN_2; }
// What a score that belongs to no key leaves of the row.
DEVICE float left_by_sink(float lse, float sink) {
  if (lse == MINUS_INFINITY) return 0;
  return 1 / (1 + exp2_fast((sink - lse) * LOG2_E));
}

// Where the results go.
struct Results {
  uint16_t* out;        // row 0 of the request
  float* lse;           // likewise
  const float* sinks;   // of the request's row 0, or null; one for each of `heads` rows
  int heads, first_row, row_count;  // rows of the block begin at first_row; the request has row_count
  float4* partial_sums;  // of this block
  float2* partial_rows;  // level and sum of each of its rows
};

// Stores a warp's slice of the output of all rows. Sums and levels of the rows lie in shared memory; behind a barrier.
DEVICE void deliver(const float (&output)[4][TILES][4], int slice, InShared<float> sums, InShared<float> levels, const Results& results, const Place& at) {
  if (at.thread < ROWS) {
    const float sum = sums[at.thread], level = levels[at.thread];
    if (PARTIAL) {
      store(results.partial_rows + at.thread, make_float2(level, sum));
    } else {
      const int row = results.first_row + at.thread;
      const float lse = log_of(level, sum);
      float inverse = inverse_of(sum);
      if (results.sinks && row < results.row_count) inverse *= left_by_sink(lse, load(results.sinks + row % results.heads));
      sums[at.thread] = inverse;
      if (row < results.row_count) store(results.lse + row, lse);
    }
  }
  if (PARTIAL) {  // zeros too, where the block had no tile: rows that are not finite have no finite weight there
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
      for (int tile = 0; tile < TILES; tile++) {
        const float (&four)[4] = output[m][tile];
        store(results.partial_sums + ((slice * 4 + m) * TILES + tile) * 32 + at.lane, make_float4(four[0], four[1], four[2], four[3]));
      }
    return;
  }
  block_barrier();
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    const int row = tile * 8 + at.pair * 2;
    const float first = sums[row], second = sums[row + 1];
#pragma unroll
    for (int m = 0; m < 4; m++)
      store_output(results.out, output[m][tile], first, second, results.first_row + row, results.row_count, slice, m, at);
  }
}

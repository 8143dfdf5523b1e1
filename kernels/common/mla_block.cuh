// What both attention kernels over latent KV records (MLA) share: one block takes ROWS query rows through a range of tiles
// of BLOCK_KEYS records each. A record is key (all of its D numbers) and value (512 of them) in one.
//
// Everything is computed turned: scores (keys x rows) = records x queries, and output (dimensions x rows) = values x
// probabilities. So rows are the narrow side of a tensor core product, and a block takes any multiple of 8 of them.
//
// - Queries stay in registers. For the scores, the eight warps split the D dimensions into four parts, and the keys of a
//   tile into halves (or the rows, where there are many). The four parts are added up in shared memory.
// - FP8 codes are converted in registers, on the way from shared memory to the tensor cores: every code is an f16. Queries
//   become f16 as well, after a row was multiplied with a power of two: exactly, but for what is 2^31 times smaller than
//   the row's largest.
// - A partial score is multiplied with the key's scale of those dimensions. Values are multiplied, as f16, with their scale
//   relative to the largest power of two of the key's scales, and the probability with that.
// - Softmax goes with base 2, relative to a running level (see LIFT), which only moves where the maximum grew by more than 2^8.
//   For FP8 it is that of score + log2(that power of two), so that the product of both fits into f16. (A scale below
//   2^-17 of its key's largest loses bits, and so does a product of both relative ones below 2^-23.)
// - A block of several writes unnormalised output with level and sum of each row; mla_combine.cu adds them up.
//
// Compiled for: what mla_common.cuh is, and STAGES (tiles of keys in shared memory).

const int WARPS = 8, THREADS = 32 * WARPS, BLOCK_KEYS = 32;
// A record in shared memory: an odd number of 16 bytes, so that ldmatrix meets each bank once.
const int PITCH = RECORDS == BF16_RECORDS ? 1168 : RECORDS == V32_RECORDS ? 656 : 592;
const int CHUNKS = RECORDS == BF16_RECORDS ? 72 : RECORDS == V32_RECORDS ? 41 : 36;  // of 16 bytes, that are copied
const int SCALES_AT = RECORDS == V32_RECORDS ? 512 : 576;
const int GROUPS = RECORDS == BF16_RECORDS ? 1 : RECORDS == V32_RECORDS ? 4 : 8;  // of dimensions with a scale of their own
const int STEPS = RECORDS == DSV4_RECORDS ? 8 : 9;  // of 16 dimensions, in each of four parts of a score
// More rows than registers can hold queries of: each half of the warps has some of them instead of some of the keys.
const bool SPLIT_ROWS = TILES > 5;
const int ROW_TILES = SPLIT_ROWS ? (TILES + 1) / 2 : TILES;  // of the scores that one warp makes; the second half may have less
const int OWN_KEYS = SPLIT_ROWS ? BLOCK_KEYS : BLOCK_KEYS / 2;
// Probabilities are written once; with bf16 values beside FP8 ones twice.
const int WEIGHT_COPIES = RECORDS == DSV4_RECORDS ? 2 : 1, WEIGHT_COPY = ROWS * BLOCK_KEYS * 2;

const int STAGE_BYTES = BLOCK_KEYS * PITCH;
const int SCORES = STAGES * STAGE_BYTES, SCORE_BYTES = 4 * ROWS * BLOCK_KEYS * 4;
const int WEIGHTS = SCORES + SCORE_BYTES;
const int ALPHAS = WEIGHTS + WEIGHT_COPIES * WEIGHT_COPY, FACTORS = ALPHAS + ROWS * 4;
const int KEY_SCALES = FACTORS + ROWS * 4, KEY_POWERS = KEY_SCALES + GROUPS * BLOCK_KEYS * 2;
// Of a record on its way: its index, its address (and that of its scales), and what is added to its scores.
const int INDICES = KEY_POWERS + BLOCK_KEYS * 8, ADDRESSES = INDICES + STAGES * BLOCK_KEYS * 8;
const int ADDRESS_BYTES = RECORDS == DSV4_RECORDS ? 16 : 8, OFFSETS = ADDRESSES + STAGES * BLOCK_KEYS * ADDRESS_BYTES;
// Of the most rows, what softmax knows waits here while it is not needed: registers are short.
const bool PARKED = TILES == 8;
const int PAIRS = (TILES + 1) / 2;  // of rows, that half warps have in softmax
const int PARKING = OFFSETS + STAGES * BLOCK_KEYS * 4, SHARED_BYTES = PARKING + (PARKED ? THREADS * PAIRS * 8 : 0);
static_assert(SHARED_BYTES == SHARED_BYTES_EXPECTED, "the host counts otherwise");
static_assert(SHARED_BYTES <= 101376, "more shared memory than a block of sm_120 can have");
static_assert(STAGES >= 2, "a tile comes while another one is used");
// Before the first tile, queries lie behind as many stages as can be filled by then, at most all but one.
const int QUERY_PITCH = D * 2 + 16, ROOM_BESIDE_QUERIES = (WEIGHTS - ROWS * QUERY_PITCH) / STAGE_BYTES;
const int EARLY_TILES = ROOM_BESIDE_QUERIES < STAGES - 1 ? ROOM_BESIDE_QUERIES : STAGES - 1;
const int QUERIES = EARLY_TILES * STAGE_BYTES, PART_SIZES = WEIGHTS;
static_assert(WEIGHTS >= ROWS * QUERY_PITCH, "queries reach into what is in use by then");
// Behind the last tile the scores' place holds sums and levels.
const int ROW_SUMS = SCORES, ROW_LEVELS = SCORES + ROWS * 4;

// ------------------------------------------------------------------------------------------------ queries

struct Queries { uint32_t fragment[STEPS][ROW_TILES][2]; };

// The 16 dimensions of a step of a part: where they begin in a query, and whether they are FP8 in the record.
DEVICE bool step_is_fp8(int part, int step) {
  if (RECORDS == BF16_RECORDS) return false;
  return RECORDS == V32_RECORDS ? step < 8 : part < 3 || step < 4;
}
DEVICE int step_dimension(int part, int step) {
  if (RECORDS == BF16_RECORDS) return (part * 9 + step) * 16;
  if (RECORDS == V32_RECORDS) return step < 8 ? part * 128 + step * 16 : 512 + part * 16;
  return part * 128 + step * 16;
}

// Copies the rows of the block, each of D bf16; zeros for those that are not there.
DEVICE void copy_queries(SharedAddress memory, const uint16_t* rows, int row_count, const Place& at) {
  const int chunks = D / 8;
  for (int i = at.thread; i < ROWS * chunks; i += THREADS) {
    const int row = i / chunks, chunk = i - row * chunks;
    const bool valid = row < row_count;
    copy_async_16(memory + QUERIES + row * QUERY_PITCH + chunk * 16, valid ? rows + (int64_t)row * D + chunk * 8 : rows, valid);
  }
}

// Takes this warp's part of them into registers.
DEVICE void load_queries(Queries& queries, uint8_t* memory, int first_tile, int part, const Place& at) {
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; tile++) {
    if (first_tile + tile >= TILES) continue;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      uint32_t (&fragment)[2] = queries.fragment[step][tile];
      const int from = QUERIES + ((first_tile + tile) * 8 + at.group) * QUERY_PITCH + step_dimension(part, step) * 2;
      if (step_is_fp8(part, step)) {
        const uint2 four = at_byte<uint2>(memory, from)[at.pair];
        fragment[0] = four.x;
        fragment[1] = four.y;
      } else {
        fragment[0] = at_byte<uint32_t>(memory, from)[at.pair];
        fragment[1] = at_byte<uint32_t>(memory, from + 16)[at.pair];
      }
    }
  }
}

// Multiplies every row with a power of two that makes it fit into f16, and converts what meets FP8. Writes what makes up
// for it, times the scale of scores. With a barrier, behind which nobody reads queries.
DEVICE void convert_queries(Queries& queries, uint8_t* memory, float scale, int first_tile, int part, const Place& at) {
  InShared<int32_t> sizes = at_byte<int32_t>(memory, PART_SIZES);
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; tile++) {
    if (first_tile + tile >= TILES) continue;
    const int most = largest_in(queries.fragment, tile);
    if (at.pair == 0 && (SPLIT_ROWS || at.warp < 4)) sizes[part * ROWS + (first_tile + tile) * 8 + at.group] = most;
  }
  block_barrier();  // sizes of all parts are there
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; tile++) {
    if (first_tile + tile >= TILES) continue;
    const int row = (first_tile + tile) * 8 + at.group;
    int most = 0;
#pragma unroll
    for (int each = 0; each < 4; each++) most = max(most, sizes[each * ROWS + row]);
    const Powers powers = powers_of(most);
    multiply_row(queries.fragment, tile, powers.up, [=](int step) { return step_is_fp8(part, step); });
    if (part == 0 && at.pair == 0 && (SPLIT_ROWS || at.warp < 4)) at_byte<float>(memory, FACTORS)[row] = powers.down * scale;
  }
}

// ------------------------------------------------------------------------------------------------ records

// The scale of a group of dimensions of a record in shared memory.
DEVICE float scale_of(uint8_t* memory, int record, int group) {
  if (RECORDS == V32_RECORDS) return at_byte<float>(memory, record + SCALES_AT)[group];
  if (group == 7) return 1;  // the bf16 part
  return scale_of_byte(at_byte<uint8_t>(memory, record + SCALES_AT)[group]);
}

// For each key of a tile: the largest power of two in its scales (2^-100 at least), and its scales relative to that as f16.
DEVICE void relate_scales(uint8_t* memory, int slot_of_stage, const Place& at) {
#pragma unroll
  for (int i = at.thread; i < BLOCK_KEYS * GROUPS; i += THREADS) {  // whole warps
    const int key = i / GROUPS, group = i % GROUPS;
    const float scale = scale_of(memory, slot_of_stage * STAGE_BYTES + key * PITCH, group);
    float size = size_of(scale);
    if (RECORDS == DSV4_RECORDS && group == 7) size = 0;
#pragma unroll
    for (int lanes = 1; lanes < GROUPS; lanes *= 2) size = larger(size, warp_read_xor(size, lanes));
    const Power power = power_in(size);
    at_byte<uint16_t>(memory, KEY_SCALES)[group * BLOCK_KEYS + key] = (uint16_t)pack_f16(scale * power.inverse, 0);
    if (group == 0) {
      const float offset = at_byte<float>(memory, OFFSETS)[slot_of_stage * BLOCK_KEYS + key];
      at_byte<float2>(memory, KEY_POWERS)[key] = make_float2(power.log2 + offset, power.inverse);
    }
  }
}

// How this thread copies its share of a record; zeros where that is null. SHARERS threads share a record.
const int SHARERS = THREADS / BLOCK_KEYS;
DEVICE int address_of(int slot_of_stage, const Place& at) { return ADDRESSES + (slot_of_stage * BLOCK_KEYS + at.thread / SHARERS) * ADDRESS_BYTES; }
// Eight chunks of a record are one part of its copy. Parts are asked for one by one, between products: shared memory
// takes longer to accept them than to issue them.
// Where registers are short, all parts are asked for at once.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
const bool INTERLEAVED = false;
#else
const bool INTERLEAVED = !(TILES == 8 && PARTIAL);
#endif
struct Copy {
  SharedAddress target;
  const uint8_t* source;
  const uint8_t* scales;
  bool wanted, valid;
  int share;

  DEVICE_METHOD void part(int i) const {
    const int chunk = i * SHARERS;
    if (!wanted || chunk >= CHUNKS) return;
    if (chunk + SHARERS <= CHUNKS || chunk + share < CHUNKS) copy_async_16(target + chunk * 16, source + chunk * 16, valid);
    if (RECORDS == DSV4_RECORDS && i == 0 && share == 0) copy_async_8(target + SCALES_AT, scales, valid);
  }
  DEVICE_METHOD void all() const {
#pragma unroll
    for (int i = 0; i * SHARERS < CHUNKS; i++) part(i);
  }
};
DEVICE Copy copy_of(uint8_t* memory, SharedAddress base, const uint8_t* record, int slot_of_stage, bool wanted, const uint8_t* anywhere, const Place& at) {
  const int key = at.thread / SHARERS, share = at.thread % SHARERS;
  const bool valid = record != nullptr;
  if (wanted && share == 0) at_byte<float>(memory, OFFSETS)[slot_of_stage * BLOCK_KEYS + key] = valid ? 0 : MINUS_INFINITY;
  const uint8_t* scales = nullptr;
  if (RECORDS == DSV4_RECORDS) {
    scales = (const uint8_t*)at_byte<uint64_t>(memory, address_of(slot_of_stage, at))[1];
    if (!valid) scales = anywhere;
  }
  SharedAddress target = base + (slot_of_stage * STAGE_BYTES + key * PITCH + share * 16);
  const uint8_t* source = (valid ? record : anywhere) + share * 16;
  keep(target);
  keep(source);
  return {target, source, scales, wanted, valid, share};
}

// ------------------------------------------------------------------------------------------------ scores

// Sums of products of keys and queries. A single tile of rows is a single chain of products that wait for each other, so
// steps take turns between CHAINS of them then.
const int CHAINS = ROW_TILES == 1 ? 3 : 1;
struct Sums { float chain[CHAINS][ROW_TILES][4]; };

template <bool f16> DEVICE void multiply_keys(Sums& sums, const uint32_t (&keys)[4], const Queries& queries, int step, int tiles) {
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; tile++) {
    if (tile >= tiles) continue;
    float (&sum)[4] = sums.chain[step % CHAINS][tile];
    if (f16) multiply_add_16x8x16_f16(sum, keys, queries.fragment[step][tile][0], queries.fragment[step][tile][1]);
    else multiply_add_16x8x16(sum, keys, queries.fragment[step][tile][0], queries.fragment[step][tile][1]);
  }
}
// Two steps of FP8 keys, which were loaded as matrices of 16 bits.
DEVICE void multiply_codes(Sums& sums, const uint32_t (&codes)[4], const Queries& queries, int step, int tiles) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const uint32_t low = codes[2 * half], high = codes[2 * half + 1];  // of keys 0 to 7 and 8 to 15
    uint32_t keys[4];
    keys_of_codes(keys, low, high);
    multiply_keys<true>(sums, keys, queries, step + half, tiles);
  }
}
// Multiplies all chains with the scales of this thread's two keys.
DEVICE void scale_sums(Sums& sums, uint8_t* memory, int record, int group) {
  const float low = scale_of(memory, record, group), high = scale_of(memory, record + 8 * PITCH, group);
#pragma unroll
  for (int chain = 0; chain < CHAINS; chain++)
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
      for (int i = 0; i < 4; i++) sums.chain[chain][tile][i] *= i < 2 ? low : high;
}

// This warp's part of the scores of 16 keys of a stage: sums over a quarter of the dimensions, for `tiles` of rows.
DEVICE void score_keys(uint8_t* memory, SharedAddress base, int stage, const Queries& queries, int first_key, int first_tile, int tiles, int part, const Copy& copy, const Place& at) {
  Sums sums = {};
  const SharedAddress line = base + (stage + (first_key + at.lane % 16) * PITCH + at.lane / 16 * 16);
  const int record = stage + (first_key + at.group) * PITCH;
  uint32_t now[4], next[4];
  if (RECORDS == BF16_RECORDS) {
    const SharedAddress keys = line + part * 288;
    load_matrices(now, keys);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      if (step + 1 < STEPS) load_matrices(step % 2 ? now : next, keys + (step + 1) * 32);
      copy.part(step);
      multiply_keys<false>(sums, step % 2 ? next : now, queries, step, tiles);
    }
  } else if (RECORDS == V32_RECORDS) {
    const SharedAddress codes = line + part * 128;
    load_matrices(now, codes);
    load_matrices(next, codes + 32);
    copy.part(0);
    multiply_codes(sums, now, queries, 0, tiles);
    load_matrices(now, codes + 64);
    copy.part(1);
    copy.part(2);
    multiply_codes(sums, next, queries, 2, tiles);
    load_matrices(next, codes + 96);
    copy.part(3);
    multiply_codes(sums, now, queries, 4, tiles);
    load_matrices(now, line + 528 + part * 32);
    copy.part(4);
    copy.part(5);
    multiply_codes(sums, next, queries, 6, tiles);
    scale_sums(sums, memory, record, part);
    multiply_keys<false>(sums, now, queries, 8, tiles);
  } else {
    const SharedAddress codes = line + part * 128;
    load_matrices(now, codes);
    load_matrices(next, codes + 32);
    copy.part(0);
    copy.part(1);
    multiply_codes(sums, now, queries, 0, tiles);
    load_matrices(now, codes + 64);
    copy.part(2);
    copy.part(3);
    multiply_codes(sums, next, queries, 2, tiles);
    copy.part(4);
    scale_sums(sums, memory, record, part * 2);
    if (part < 3) {
      Sums second = {};
      load_matrices(next, codes + 96);
      multiply_codes(second, now, queries, 4, tiles);
      multiply_codes(second, next, queries, 6, tiles);
      scale_sums(second, memory, record, part * 2 + 1);
#pragma unroll
      for (int chain = 0; chain < CHAINS; chain++)
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
          for (int i = 0; i < 4; i++) sums.chain[chain][tile][i] += second.chain[chain][tile][i];
    } else {
#pragma unroll
      for (int step = 4; step < 8; step++) {  // the first matrices lie at byte 448 = 384 + 64, and are loaded
        if (step < 7) load_matrices(step % 2 ? now : next, codes + 64 + (step - 3) * 32);
        multiply_keys<false>(sums, step % 2 ? next : now, queries, step, tiles);
      }
    }
  }
  // Row after row; keys change places by eights, so that neither who writes them here nor who reads a row meets a bank twice.
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int key = (first_key + half * 8 + at.group) ^ at.pair * 8;
    InShared<float> scores = at_byte<float>(memory, SCORES + ((part * ROWS + first_tile * 8 + at.pair * 2) * BLOCK_KEYS + key) * 4);
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++) {
      if (tile >= tiles) continue;
#pragma unroll
      for (int row = 0; row < 2; row++) {
        float sum = sums.chain[0][tile][2 * half + row];
#pragma unroll
        for (int chain = 1; chain < CHAINS; chain++) sum += sums.chain[chain][tile][2 * half + row];
        scores[(tile * 8 + row) * BLOCK_KEYS] = sum;
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------ softmax

// Half a warp has a row, a lane two keys of it. Pairs of rows go round the warps; of an odd number of tiles, half of the
// warps have one pair less.
DEVICE int own_row(int pair, const Place& at) { return (pair * WARPS + at.warp) * 2 + at.lane / 16; }
DEVICE bool has_pair(int pair, const Place& at) { return TILES % 2 == 0 || pair < PAIRS - 1 || at.warp < WARPS / 2; }
// Sums are those of the lane's keys.
struct Softmax { float level[PAIRS], sum[PAIRS]; };
DEVICE void park(const Softmax& softmax, uint8_t* memory, const Place& at) {
#pragma unroll
  for (int i = 0; i < PAIRS; i++) at_byte<float2>(memory, PARKING)[i * THREADS + at.thread] = make_float2(softmax.level[i], softmax.sum[i]);
}
DEVICE void unpark(Softmax& softmax, uint8_t* memory, const Place& at) {
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    const float2 both = at_byte<float2>(memory, PARKING)[i * THREADS + at.thread];
    softmax.level[i] = both.x;
    softmax.sum[i] = both.y;
  }
}

// The levels of a warp's rows become those of the scores, where they grew enough, and its sums follow.
DEVICE void move_levels(Softmax& softmax, const float2 (&score)[PAIRS], uint8_t* memory, const Place& at) {
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    if (!has_pair(i, at)) continue;
    float most = larger(score[i].x, score[i].y), alpha = 1;
#pragma unroll
    for (int lanes = 1; lanes < 16; lanes *= 2) most = larger(most, warp_read_xor(most, lanes));
    if (outgrows(most, softmax.level[i])) {
      alpha = exp2_fast(softmax.level[i] - (most - LIFT));
      softmax.level[i] = most - LIFT;
      softmax.sum[i] *= alpha;
    }
    if (at.lane % 16 == 0) at_byte<float>(memory, ALPHAS)[own_row(i, at)] = alpha;
  }
}

// Probabilities of a tile of keys, in the places of a product's right side; sums them up. Says whether a level may have
// moved.
template <class Sees>
DEVICE bool weigh_keys(Softmax& softmax, int slot_of_stage, uint8_t* memory, float scale, const Sees& sees, const Place& at) {
  const int keys = at.lane % 16;  // two from 2 * keys on
  InShared<float2> scores = at_byte<float2>(memory, SCORES + (own_row(0, at) * BLOCK_KEYS + (keys * 2 ^ at.warp % 4 * 8)) * 4);
  float2 offset, inverse = make_float2(1, 1);  // minus infinity where nothing was chosen
  if (RECORDS == BF16_RECORDS) {
    offset = at_byte<float2>(memory, OFFSETS)[slot_of_stage * BLOCK_KEYS / 2 + keys];
  } else {
    const float4 powers = at_byte<float4>(memory, KEY_POWERS)[keys];
    offset = make_float2(powers.x, powers.z);
    inverse = make_float2(powers.y, powers.w);
  }
  const bool first_chosen = offset.x != MINUS_INFINITY, second_chosen = offset.y != MINUS_INFINITY;  // else not even NaN in a query counts
  float2 score[PAIRS];
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    if (!has_pair(i, at)) continue;
    float2 sum = scores[i * WARPS * BLOCK_KEYS];
#pragma unroll
    for (int part = 1; part < 4; part++) {
      const float2 of_part = scores[(part * ROWS / 2 + i * WARPS) * BLOCK_KEYS];
      sum.x += of_part.x;
      sum.y += of_part.y;
    }
    const float factor = RECORDS == BF16_RECORDS ? scale : at_byte<float>(memory, FACTORS)[own_row(i, at)];
    score[i] = make_float2(first_chosen ? sum.x * factor + offset.x : offset.x, second_chosen ? sum.y * factor + offset.y : offset.y);
  }
  if (sees.restricts()) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      if (!has_pair(i, at)) continue;
      if (!sees.key(own_row(i, at), keys * 2)) score[i].x = MINUS_INFINITY;
      if (!sees.key(own_row(i, at), keys * 2 + 1)) score[i].y = MINUS_INFINITY;
    }
  }
  bool grown = false;
#pragma unroll
  for (int i = 0; i < PAIRS; i++)
    if (has_pair(i, at)) grown = grown || outgrows(larger(score[i].x, score[i].y), softmax.level[i]);
  const bool moves = warp_ballot(grown) != 0;  // seldom, behind the first tiles
  if (moves) move_levels(softmax, score, memory, at);
  // The place of the two keys in a row: [tile][step][lane of the product][half].
  const int place = ((at.warp / 4 * (BLOCK_KEYS / 16) + keys / 8) * 32 + own_row(0, at) % 8 * 4 + keys % 4) * 2 + keys % 8 / 4;
  InShared<uint32_t> weights = at_byte<uint32_t>(memory, WEIGHTS + place * 4);
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    if (!has_pair(i, at)) continue;
    const float base = base_of(softmax.level[i]);
    const float first = exp2_fast(score[i].x - base), second = exp2_fast(score[i].y - base);
    softmax.sum[i] += first * inverse.x + second * inverse.y;
    weights[i * WARPS * BLOCK_KEYS] = RECORDS == BF16_RECORDS ? pack_bf16(first, second) : pack_f16(first, second);
    if (RECORDS == DSV4_RECORDS) weights[WEIGHT_COPY / 4 + i * WARPS * BLOCK_KEYS] = pack_bf16(first * inverse.x, second * inverse.y);
    if (!moves && at.lane % 16 == 0) at_byte<float>(memory, ALPHAS)[own_row(i, at)] = 1;
  }
  return moves;
}

// ------------------------------------------------------------------------------------------------ output

// Each warp has a slice of 64 of the value dimensions, as four tiles of 16, for all rows.
struct Output { float sums[4][TILES][4]; };

DEVICE void clear(Output& output) {
#pragma unroll
  for (int m = 0; m < 4; m++)
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
      for (int i = 0; i < 4; i++) output.sums[m][tile][i] = 0;
}

// Where levels moved, the sums so far follow.
DEVICE void follow_levels(Output& output, uint8_t* memory, const Place& at) {
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    const float2 alpha = at_byte<float2>(memory, ALPHAS)[tile * 4 + at.pair];
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) output.sums[m][tile][i] *= i % 2 ? alpha.y : alpha.x;
  }
}

// The warp's slice of the dimensions of 16 keys, as the left side of products.
DEVICE void load_codes(uint32_t (&values)[4][4], SharedAddress base, int stage, int step, const Place& at) {
  const SharedAddress line = base + (stage + (step * 16 + at.lane / 8 % 2 * 8 + at.lane % 8) * PITCH + at.warp * 64 + at.lane / 16 * 16);
#pragma unroll
  for (int m = 0; m < 4; m += 2) {
    uint32_t codes[4];
    load_matrices_transposed(codes, line + m * 16);
    values_of_codes(values[m], values[m + 1], codes);
  }
}
DEVICE void load_values(uint32_t (&values)[4][4], SharedAddress base, int stage, int step, const Place& at) {
  const int begin = RECORDS == BF16_RECORDS ? at.warp * 128 : 448;
  const SharedAddress line = base + (stage + (step * 16 + at.lane / 16 * 8 + at.lane % 8) * PITCH + begin + at.lane / 8 % 2 * 16);
#pragma unroll
  for (int m = 0; m < 4; m++) load_matrices_transposed(values[m], line + m * 32);
}

// Adds values times probabilities of a tile of keys, those of FP8 with the scale of the key and the dimensions.
template <bool fp8>
DEVICE void add_values(Output& output, uint8_t* memory, SharedAddress base, int stage, const Place& at) {
  const int copy = RECORDS == DSV4_RECORDS && !fp8 ? WEIGHT_COPY : 0;
  const int group = RECORDS == V32_RECORDS ? at.warp / 2 : at.warp;
  InShared<uint2> weights = at_byte<uint2>(memory, WEIGHTS + copy + at.lane * 8);
  InShared<uint32_t> scales = at_byte<uint32_t>(memory, KEY_SCALES + (group * BLOCK_KEYS + at.pair * 2) * 2);
#pragma unroll
  for (int step = 0; step < BLOCK_KEYS / 16; step++) {
    uint32_t values[4][4], low_scales = 0, high_scales = 0;
    if (fp8) {
      low_scales = scales[step * 8];
      high_scales = scales[step * 8 + 4];
      load_codes(values, base, stage, step, at);
    } else {
      load_values(values, base, stage, step, at);
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      uint2 weight = weights[(tile * (BLOCK_KEYS / 16) + step) * 32];
      if (fp8) weight = make_uint2(multiply_f16x2(weight.x, low_scales), multiply_f16x2(weight.y, high_scales));
#pragma unroll
      for (int m = 0; m < 4; m++) {
        if (fp8) multiply_add_16x8x16_f16(output.sums[m][tile], values[m], weight.x, weight.y);
        else multiply_add_16x8x16(output.sums[m][tile], values[m], weight.x, weight.y);
      }
    }
  }
}

DEVICE void finish(Output& output, const Softmax& softmax, const Results& results, uint8_t* memory, const Place& at) {
  InShared<float> sums = at_byte<float>(memory, ROW_SUMS), levels = at_byte<float>(memory, ROW_LEVELS);
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    if (!has_pair(i, at)) continue;
    float sum = softmax.sum[i];
#pragma unroll
    for (int lanes = 1; lanes < 16; lanes *= 2) sum += warp_read_xor(sum, lanes);
    if (at.lane % 16 == 0) {
      sums[own_row(i, at)] = sum;
      levels[own_row(i, at)] = softmax.level[i];
    }
  }
  block_barrier();
  deliver(output.sums, at.warp, sums, levels, results, at);
}

// ------------------------------------------------------------------------------------------------ the whole

// Keys: `index_of(tile, slot)` is where the index of a record lies, null behind the last; `record(tile, index)` the address
// that it names, null where nothing is selected; `scales(tile, index)` that of its scales; `anywhere()` an address that is
// never read; `prepare(tile, memory, slot, at)` may change a tile that has landed and says whether it did; `sees(tile)`
// says which row sees which key.

// The tiles on their way. The last warp knows the way to records: a thread a key. An index is fetched with the tile that is
// STAGES before its own, and its address found when that has landed.
template <class Keys>
struct Ring {
  typedef typename Keys::Index Index;
  const Keys& keys;
  int tiles;
  uint8_t* memory;
  SharedAddress base;
  const Place& at;

  DEVICE_METHOD bool finds() const { return at.warp == WARPS - 1; }
  DEVICE_METHOD const Index* index_of(int tile) const { return tile < tiles ? keys.index_of(tile, at.lane) : nullptr; }
  DEVICE_METHOD void fetch_index(int tile, int slot) const {
    const Index* const index = finds() ? index_of(tile) : nullptr;
    if (index == nullptr) return;
    const SharedAddress target = base + (INDICES + (slot * BLOCK_KEYS + at.lane) * 8);
    if (sizeof(Index) == 8) copy_async_8(target, index, true);
    else copy_async_4(target, index);
  }
  DEVICE_METHOD void find_record(int tile, int slot, Index index) const {
    const uint8_t* const record = keys.record(tile, index);
    InShared<uint64_t> address = at_byte<uint64_t>(memory, ADDRESSES + (slot * BLOCK_KEYS + at.lane) * ADDRESS_BYTES);
    address[0] = (uint64_t)record;
    if (RECORDS == DSV4_RECORDS) address[1] = record ? (uint64_t)keys.scales(tile, index) : 0;
  }
  DEVICE_METHOD void find_first_records() const {
    if (!finds()) return;
    Index first[STAGES];  // all of them on their way before one is waited for
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
      const Index* const index = index_of(i);
      first[i] = index ? load(index) : -1;
    }
#pragma unroll
    for (int i = 0; i < STAGES; i++) find_record(i, i, first[i]);
  }
  // Those of a tile whose indices have landed.
  DEVICE_METHOD void find_records(int tile, int slot) const {
    if (finds()) find_record(tile, slot, index_of(tile) ? at_byte<Index>(memory, INDICES + (slot * BLOCK_KEYS + at.lane) * 8)[0] : -1);
  }
  DEVICE_METHOD const uint8_t* record_of(int slot) const { return (const uint8_t*)at_byte<uint64_t>(memory, address_of(slot, at))[0]; }
  DEVICE_METHOD Copy copy(int tile, int slot, const uint8_t* record) const { return copy_of(memory, base, record, slot, tile < tiles, keys.anywhere(), at); }
  DEVICE_METHOD void copy_first(int tile) const {
    copy(tile, tile, record_of(tile)).all();
    fetch_index(tile + STAGES, tile);
    copy_async_commit();
  }
};

// Asks for queries and for the first tiles, and takes queries into registers.
template <class Keys>
DEVICE void begin(const Ring<Keys>& ring, const uint16_t* queries_of_block, int row_count, float scale, int first_tile, int part, Queries& queries) {
  copy_queries(ring.base, queries_of_block, ring.tiles > 0 ? row_count : 0, ring.at);
  copy_async_commit();
  ring.find_first_records();
  block_barrier();  // the first addresses are there
#pragma unroll
  for (int i = 0; i < EARLY_TILES; i++) ring.copy_first(i);
  copy_async_wait<EARLY_TILES>();
  block_barrier();  // queries are there
  load_queries(queries, ring.memory, first_tile, part, ring.at);
  if (RECORDS != BF16_RECORDS) convert_queries(queries, ring.memory, scale, first_tile, part, ring.at);
  else if (EARLY_TILES < STAGES - 1) block_barrier();  // and have been read, before others take their place
#pragma unroll
  for (int i = EARLY_TILES; i < STAGES - 1; i++) ring.copy_first(i);
}

// Queries are those of the block's first row; of its rows only row_count are there.
template <class Keys>
DEVICE void attend(const Keys& keys, int tiles, const uint16_t* queries_of_block, int row_count, float scale, Output& output, Softmax& softmax,
                   uint8_t* memory, const Place& at) {
  const Ring<Keys> ring = {keys, tiles, memory, shared_address(memory), at};
  const int part = at.warp % 4, half = at.warp / 4, first_key = SPLIT_ROWS ? 0 : half * OWN_KEYS;
  const int first_tile = SPLIT_ROWS ? half * ROW_TILES : 0, row_tiles = TILES % ROW_TILES ? min(ROW_TILES, TILES - first_tile) : ROW_TILES;
  Queries queries;
  begin(ring, queries_of_block, row_count, scale, first_tile, part, queries);
  clear(output);
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    softmax.level[i] = MINUS_INFINITY;
    softmax.sum[i] = 0;
  }
  if (PARKED) park(softmax, memory, at);
  int slot = 0;  // tile % STAGES
  const uint8_t* coming_record = ring.record_of(STAGES - 1);
#pragma unroll 1
  for (int tile = 0; tile < tiles; tile++) {
    const int slot_before = slot == 0 ? STAGES - 1 : slot - 1, stage = slot * STAGE_BYTES, coming = tile + STAGES - 1;
    Copy copy;
    if (!PARKED) {  // while this warp would wait; else there are no registers for it
      copy = ring.copy(coming, slot_before, coming_record);
      ring.fetch_index(coming + STAGES, slot_before);
    }
    copy_async_wait<STAGES - 2>();
    block_barrier();  // this tile is there, and nobody reads the one before
    if (PARKED) {
      copy = ring.copy(coming, slot_before, ring.record_of(slot_before));
      if (!INTERLEAVED) copy.all();
      ring.fetch_index(coming + STAGES, slot_before);
    } else if (!INTERLEAVED) {
      copy.all();
    }
    if (keys.prepare(tile, memory, slot, at)) block_barrier();  // scores of half a record would be replaced, but let there be none
    if (RECORDS != BF16_RECORDS) relate_scales(memory, slot, at);
#pragma unroll
    for (int key = 0; key < OWN_KEYS; key += 16) {
      const Copy part_of_it = {copy.target, copy.source, copy.scales, INTERLEAVED && copy.wanted && key == 0, copy.valid, copy.share};
      score_keys(memory, ring.base, stage, queries, first_key + key, first_tile, row_tiles, part, part_of_it, at);
    }
    copy_async_commit();
    block_barrier();  // the scores of all warps are there
    ring.find_records(tile + STAGES, slot);
    if (PARKED) unpark(softmax, memory, at);
    const bool moves = weigh_keys(softmax, slot, memory, scale, keys.sees(tile), at);
    if (PARKED) park(softmax, memory, at);
    const bool moved = block_barrier_any(moves);  // and the probabilities
    if (!PARKED) coming_record = ring.record_of(slot);  // of the tile that takes this one's place
    if (moved) follow_levels(output, memory, at);
    if (slice_is_fp8(at.warp)) add_values<true>(output, memory, ring.base, stage, at);
    else add_values<false>(output, memory, ring.base, stage, at);
    slot = slot == STAGES - 1 ? 0 : slot + 1;
  }
  if (PARKED) unpark(softmax, memory, at);
}

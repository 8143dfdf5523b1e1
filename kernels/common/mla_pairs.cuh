// Attention over FP8 records for few rows (8 or 16): the block's eight warps are four teams of two, and each team goes through
// tiles of 16 records of its own. Nothing but a sum of two halves of scores passes between warps before the end, so teams are as
// far apart as they like, and one computes while another one waits.
//
// - As in mla_block.cuh everything is turned: scores (keys x rows) = records x queries, output (dimensions x rows) = values x
//   probabilities; and scores, scales and levels are treated as there. But each half of a row of queries has a power of two of its
//   own, and a probability is multiplied with a scale before it becomes f16.
// - A warp has half of the dimensions of scores, and of those 256 of the values: which are the same bytes. It copies them for
//   itself, into two stages.
// - Both warps of a team add up the two halves of the scores and do the same softmax, in registers: a lane holds two keys of two
//   rows of each tile. Probabilities, times the scales of a group of dimensions, are turned, and are the right side of a product.
// - In the end the teams' outputs are added up in shared memory.
//
// Compiled for: what mla_common.cuh is (RECORDS 1 or 2, TILES 1 or 2), and STAGES (tiles of a team in shared memory: 2).

const int WARPS = 8, THREADS = 32 * WARPS, TEAMS = WARPS / 2, BLOCK_KEYS = 16;
const int STEPS = RECORDS == DSV4_RECORDS ? 16 : 18;  // of 16 dimensions, in each half of a score
const int OWN_GROUPS = RECORDS == DSV4_RECORDS ? 4 : 2, GROUP_BYTES = 256 / OWN_GROUPS;  // of dimensions with a scale, in each half
// Half of a record in shared memory: its codes, what is bf16 of it, and the scales of the whole record. An odd number of 16 bytes,
// so that ldmatrix meets each bank once.
const int PITCH = 336, BF16_AT = RECORDS == DSV4_RECORDS ? 192 : 256, SCALES_AT = 320;
const int STAGE_BYTES = BLOCK_KEYS * PITCH, WARP_BYTES = STAGES * STAGE_BYTES;
// Halves of scores; two of them where there is room, so that one can be written while the one before is read.
const int EXCHANGES = TILES == 1 ? 2 : 1, EXCHANGE_BYTES = TILES * 32 * 16;
const int SCORES = WARPS * WARP_BYTES, INDICES = SCORES + WARPS * EXCHANGES * EXCHANGE_BYTES;
const int ADDRESSES = INDICES + WARPS * STAGES * BLOCK_KEYS * 4;
const int FACTORS = ADDRESSES + WARPS * BLOCK_KEYS * 8, LOOP_BYTES = FACTORS + WARPS * ROWS * 4;
// Of two tiles of rows, queries of the last steps stay in shared memory: registers are short.
const int AWAY = TILES == 2 ? 4 : 0, QUERIES = LOOP_BYTES, QUERIES_END = QUERIES + 2 * AWAY * TILES * 32 * 8;
// Behind the last tile: what each team has for the others, and levels and sums of the rows.
const int OUTPUT_BYTES = 4 * TILES * 32 * 16, ROW_LEVELS = WARPS * (TEAMS - 1) * OUTPUT_BYTES, ROW_SUMS = ROW_LEVELS + ROWS * 4;
const int TEAM_LEVELS = ROW_SUMS + ROWS * 4, TEAM_SUMS = TEAM_LEVELS + TEAMS * ROWS * 4, END_BYTES = TEAM_SUMS + TEAMS * ROWS * 4;
const int SHARED_BYTES = QUERIES_END > END_BYTES ? QUERIES_END : END_BYTES;
static_assert(STAGES == 2, "a tile is used while the next one comes");
static_assert(SHARED_BYTES == SHARED_BYTES_EXPECTED, "the host counts otherwise");
static_assert(SHARED_BYTES <= 101376, "more shared memory than a block of sm_120 can have");

// A warp's place among the others.
struct Role { int team, half; };  // half: of the dimensions
DEVICE Role role_of(const Place& at) { return {at.warp / 2, at.warp % 2}; }

// ------------------------------------------------------------------------------------------------ queries

struct Queries { uint32_t fragment[STEPS][TILES][2]; };
DEVICE int query_place(int half, int step, const Place& at) { return QUERIES + ((half * AWAY + step - (STEPS - AWAY)) * 32 + at.lane) * TILES * 8; }

// The 16 dimensions of a step of a half: where they begin in a query, and whether they are FP8 in the record.
DEVICE bool step_is_fp8(int half, int step) { return RECORDS == V32_RECORDS ? step < 16 : half == 0 || step < 12; }
DEVICE int step_dimension(int half, int step) {
  if (RECORDS == V32_RECORDS && step >= 16) return 512 + half * 32 + (step - 16) * 16;
  return half * 256 + step * 16;
}

// Takes this warp's half of the queries into registers; zeros for rows that are not there.
DEVICE void load_queries(Queries& queries, const uint16_t* rows, int row_count, int half, const Place& at) {
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    const int row = tile * 8 + at.group;
    const bool there = row < row_count;
    const uint16_t* const query = rows + (there ? row : 0) * D;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      uint32_t (&fragment)[2] = queries.fragment[step][tile];
      fragment[0] = fragment[1] = 0;
      if (!there) continue;
      const uint16_t* const from = query + step_dimension(half, step);
      if (step_is_fp8(half, step)) {
        const uint2 four = load((const uint2*)from + at.pair);
        fragment[0] = four.x;
        fragment[1] = four.y;
      } else {
        fragment[0] = load((const uint32_t*)from + at.pair);
        fragment[1] = load((const uint32_t*)(from + 8) + at.pair);
      }
    }
  }
}

// Multiplies every row of the half with a power of two that makes it fit into f16, and converts what meets FP8. Writes what makes
// up for it, times the scale of scores.
DEVICE void convert_queries(Queries& queries, uint8_t* memory, float scale, int half, const Place& at) {
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    const Powers powers = powers_of(largest_in(queries.fragment, tile));
    multiply_row(queries.fragment, tile, powers.up, [=](int step) { return step_is_fp8(half, step); });
    if (at.pair == 0) at_byte<float>(memory, FACTORS + at.warp * ROWS * 4)[tile * 8 + at.group] = powers.down * scale;
  }
}

// Puts those of the last steps away, for all teams. Before a barrier.
DEVICE void put_queries_away(const Queries& queries, uint8_t* memory, const Role& role, const Place& at) {
#pragma unroll
  for (int step = STEPS - AWAY; step < STEPS; step++) {
    const uint32_t (&of_step)[TILES][2] = queries.fragment[step];
    if (role.team == 0) at_byte<uint4>(memory, query_place(role.half, step, at))[0] = make_uint4(of_step[0][0], of_step[0][1], of_step[TILES - 1][0], of_step[TILES - 1][1]);
  }
}

// ------------------------------------------------------------------------------------------------ records on their way

// A team's tiles, of which this warp copies its half of the records. Index, copy and use of a tile are STAGES apart.
template <class Keys>
struct Stream {
  const Keys& keys;
  int tiles;  // of the block
  uint8_t* memory;
  SharedAddress base;
  Role role;
  const Place& at;

  DEVICE_METHOD int tile_of(int turn) const { return turn * TEAMS + role.team; }
  DEVICE_METHOD const int32_t* index_of(int turn) const {
    return tile_of(turn) < tiles ? keys.index_of(tile_of(turn), at.lane % BLOCK_KEYS) : nullptr;
  }
  DEVICE_METHOD int index_place(int turn) const { return INDICES + ((at.warp * STAGES + turn % STAGES) * BLOCK_KEYS + at.lane % BLOCK_KEYS) * 4; }
  DEVICE_METHOD int stage(int turn) const { return at.warp * WARP_BYTES + turn % STAGES * STAGE_BYTES; }
  // The two parts of a half of each record. The more lanes side by side have one record, the fewer
  // sectors are asked for twice.
  DEVICE_METHOD void copy_records(SharedAddress target, InShared<uint64_t> addresses, uint32_t chosen) const {
    const int key = at.lane / 16, byte = at.lane % 16 * 16, tail_key = at.lane / 4, tail_byte = at.lane % 4 * 16;
    const int tail_from = RECORDS == V32_RECORDS ? 528 + role.half * 64 : 512;
    uint64_t records[BLOCK_KEYS / 2], tails[2];  // all addresses before the first copy, which nothing is moved across
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / 2; i++) records[i] = addresses[i * 2 + key] + (role.half * 256 + byte);
#pragma unroll
    for (int i = 0; i < 2; i++) tails[i] = addresses[i * 8 + tail_key] + (tail_from + tail_byte);
    const SharedAddress to = target + (key * PITCH + byte), tail_to = target + (tail_key * PITCH + 256 + tail_byte);
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / 2; i++) copy_async_16(to + i * 2 * PITCH, (const uint8_t*)records[i], chosen >> (i * 2 + key) & 1);
    if (RECORDS == V32_RECORDS || role.half) {
#pragma unroll
      for (int i = 0; i < 2; i++) copy_async_16(tail_to + i * 8 * PITCH, (const uint8_t*)tails[i], chosen >> (i * 8 + tail_key) & 1);
    }
  }
  // Asks for the tile of this turn, and for the index that its place in memory has next. Says which keys are chosen.
  DEVICE_METHOD uint32_t copy(int turn, int32_t index) const {
    uint32_t chosen = 0;
    if (tile_of(turn) < tiles) {
      warp_barrier();  // what lies in its place was read, and so were addresses
      const SharedAddress target = base + stage(turn);
      const uint8_t* const record = keys.record(tile_of(turn), index);
      const uint8_t* const address = record ? record : keys.anywhere();
      chosen = warp_ballot(record != nullptr) & 0xffffu;
      InShared<uint64_t> addresses = at_byte<uint64_t>(memory, ADDRESSES + at.warp * BLOCK_KEYS * 8);
      if (at.lane < BLOCK_KEYS) {
        addresses[at.lane] = (uint64_t)address;
        if (RECORDS == V32_RECORDS) copy_async_16(target + (at.lane * PITCH + SCALES_AT), address + 512, record != nullptr);
        else copy_async_8(target + (at.lane * PITCH + SCALES_AT), record ? keys.scales(tile_of(turn), index) : address, record != nullptr);
        const int32_t* const next = index_of(turn + STAGES);
        if (next) copy_async_4(base + index_place(turn), next);
        else at_byte<int32_t>(memory, index_place(turn))[0] = -1;
      }
      warp_barrier();  // addresses are there
      copy_records(target, addresses, chosen);
    }
    copy_async_commit();
    return chosen;
  }
  DEVICE_METHOD int32_t first_index(int turn) const {
    const int32_t* const index = index_of(turn);
    return index ? load(index) : -1;
  }
  DEVICE_METHOD uint32_t copy_next(int turn) const { return copy(turn, at_byte<int32_t>(memory, index_place(turn))[0]); }
};

// ------------------------------------------------------------------------------------------------ scales

// Of a key: those of the half's groups, and the largest power of two in all of its scales.
struct Scales { float own[OWN_GROUPS]; Power power; };

DEVICE Scales scales_of(uint8_t* memory, int record, int half) {
  Scales scales;
  if (RECORDS == V32_RECORDS) {
    const float4 four = at_byte<float4>(memory, record + SCALES_AT)[0];
    scales.own[0] = half ? four.z : four.x;
    scales.own[1] = half ? four.w : four.y;
    scales.power = power_in(larger(larger(size_of(four.x), size_of(four.y)), larger(size_of(four.z), size_of(four.w))));
  } else {
    const uint2 eight = at_byte<uint2>(memory, record + SCALES_AT)[0];
    float size = 0;
#pragma unroll
    for (int group = 0; group < 7; group++) size = larger(size, scale_of_byte((group < 4 ? eight.x : eight.y) >> group % 4 * 8 & 255u));
    scales.power = power_in(size);
    const uint32_t own = half ? eight.y : eight.x;
#pragma unroll
    for (int group = 0; group < OWN_GROUPS; group++)
      scales.own[group] = half && group == 3 ? 1 : scale_of_byte(own >> group * 8 & 255u);  // the bf16 part
  }
  return scales;
}

// ------------------------------------------------------------------------------------------------ scores

// Of a lane: two keys (its group's, and eight further) of two rows of each tile. First and last two belong to one key.
struct Scores { float of[TILES][4]; };

template <bool f16> DEVICE void multiply_keys(Scores& sums, const uint32_t (&keys)[4], const Queries& queries, int step, uint8_t* memory, int half, const Place& at) {
  uint4 away = {};
  if (step >= STEPS - AWAY) away = at_byte<uint4>(memory, query_place(half, step, at))[0];
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    uint32_t first = queries.fragment[step][tile][0], second = queries.fragment[step][tile][1];
    if (step >= STEPS - AWAY) {
      first = tile ? away.z : away.x;
      second = tile ? away.w : away.y;
    }
    if (f16) multiply_add_16x8x16_f16(sums.of[tile], keys, first, second);
    else multiply_add_16x8x16(sums.of[tile], keys, first, second);
  }
}
// Products of a single tile of rows wait for each other less where they take turns between sums.
const int CHAINS = TILES == 1 ? 2 : 1;
struct Sums { Scores chain[CHAINS]; };

// Two steps of FP8 keys, which were loaded as matrices of 16 bits.
DEVICE void multiply_codes(Sums& sums, const uint32_t (&codes)[4], const Queries& queries, int step, uint8_t* memory, int of_half, const Place& at) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const uint32_t low = codes[2 * half], high = codes[2 * half + 1];  // of keys 0 to 7 and 8 to 15
    uint32_t keys[4];
    keys_of_codes(keys, low, high);
    multiply_keys<true>(sums.chain[half % CHAINS], keys, queries, step + half, memory, of_half, at);
  }
}
DEVICE void add_scaled(Scores& total, const Sums& sums, float low, float high) {
#pragma unroll
  for (int chain = 0; chain < CHAINS; chain++)
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
      for (int i = 0; i < 4; i++) total.of[tile][i] += sums.chain[chain].of[tile][i] * (i < 2 ? low : high);
}

// This warp's half of the scores of a tile, and the scales of its keys. Groups of dimensions take turns by twos.
DEVICE void score_keys(Scores& total, Scales& low, Scales& high, SharedAddress line, int stage, const Queries& queries, uint8_t* memory, int half, const Place& at) {
  const int loads = GROUP_BYTES / 32;  // of FP8 keys, in each group
  uint32_t codes[2][4];
  total = {};
  load_matrices(codes[0], line);
  low = scales_of(memory, stage + at.group * PITCH, half);
  high = scales_of(memory, stage + (at.group + 8) * PITCH, half);
#pragma unroll
  for (int group = 0; group < OWN_GROUPS; group += 2) {
    Sums sums[2] = {};
    if (RECORDS == DSV4_RECORDS && group == 2 && half) {
      load_matrices(codes[1], line + (128 + 32));
      multiply_codes(sums[0], codes[0], queries, 8, memory, half, at);
      load_matrices(codes[0], line + BF16_AT);
      multiply_codes(sums[0], codes[1], queries, 10, memory, half, at);
#pragma unroll
      for (int step = 0; step < 4; step++) {
        if (step < 3) load_matrices(codes[(step + 1) % 2], line + (BF16_AT + (step + 1) * 32));
        multiply_keys<false>(sums[1].chain[step % CHAINS], codes[step % 2], queries, 12 + step, memory, half, at);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2 * loads; i++) {
        const int next = i + 1;
        if (next < 2 * loads) load_matrices(codes[next % 2], line + ((group + next % 2) * GROUP_BYTES + next / 2 * 32));
        else if (group + 2 < OWN_GROUPS) load_matrices(codes[next % 2], line + (group + 2) * GROUP_BYTES);
        else if (RECORDS == V32_RECORDS) load_matrices(codes[next % 2], line + BF16_AT);
        multiply_codes(sums[i % 2], codes[i % 2], queries, (group + i % 2) * loads * 2 + i / 2 * 2, memory, half, at);
      }
    }
    if (RECORDS == V32_RECORDS) {
      load_matrices(codes[1], line + BF16_AT + 32);
      multiply_keys<false>(total, codes[0], queries, 16, memory, half, at);
      multiply_keys<false>(total, codes[1], queries, 17, memory, half, at);
    }
    add_scaled(total, sums[0], low.own[group], high.own[group]);
    add_scaled(total, sums[1], low.own[group + 1], high.own[group + 1]);
  }
}

// Adds the other warp's half, both in what makes up for the queries' powers of two.
DEVICE void add_halves(Scores& scores, uint8_t* memory, int turn, const Role& role, const Place& at) {
  const int buffer = SCORES + turn % EXCHANGES * EXCHANGE_BYTES;
  InShared<float4> mine = at_byte<float4>(memory, buffer + at.warp * EXCHANGES * EXCHANGE_BYTES);
  InShared<float4> others = at_byte<float4>(memory, buffer + (at.warp ^ 1) * EXCHANGES * EXCHANGE_BYTES);
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    const float2 factor = at_byte<float2>(memory, FACTORS + at.warp * ROWS * 4)[tile * 4 + at.pair];
#pragma unroll
    for (int i = 0; i < 4; i++) scores.of[tile][i] *= i % 2 ? factor.y : factor.x;
  }
  if (EXCHANGES == 1) barrier_among(1 + role.team, 64);  // the one before was read
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    const float (&four)[4] = scores.of[tile];
    mine[tile * 32 + at.lane] = make_float4(four[0], four[1], four[2], four[3]);
  }
  barrier_among(1 + role.team, 64);  // both halves are there
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    const float4 four = others[tile * 32 + at.lane];
    scores.of[tile][0] += four.x;
    scores.of[tile][1] += four.y;
    scores.of[tile][2] += four.z;
    scores.of[tile][3] += four.w;
  }
}

// ------------------------------------------------------------------------------------------------ softmax

// Of the lane's two rows of each tile; sums are those of its keys.
struct Softmax { float level[TILES][2], sum[TILES][2]; };
// Sixteen tiles of 16 of the half's value dimensions.
struct Output { float sums[16][TILES][4]; };

// Levels become those of the scores, where they grew enough, and sums and output follow.
DEVICE void move_levels(Softmax& softmax, Output& output, const Scores& scores) {
#pragma unroll
  for (int tile = 0; tile < TILES; tile++)
#pragma unroll
    for (int row = 0; row < 2; row++) {
      float most = larger(scores.of[tile][row], scores.of[tile][2 + row]);
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) most = larger(warp_read_xor(most, lanes), most);
      float& level = softmax.level[tile][row];
      if (outgrows(most, level)) {
        const float alpha = exp2_fast(level - (most - LIFT));
        level = most - LIFT;
        softmax.sum[tile][row] *= alpha;
#pragma unroll
        for (int m = 0; m < 16; m++) {
          output.sums[m][tile][row] *= alpha;
          output.sums[m][tile][2 + row] *= alpha;
        }
      }
    }
}

// Turns scores into probabilities, and sums them up.
DEVICE void weigh_keys(Scores& scores, Softmax& softmax, Output& output, const Scales& low, const Scales& high, uint32_t chosen, const Place& at) {
  const bool low_chosen = chosen >> at.group & 1, high_chosen = chosen >> (8 + at.group) & 1;  // else not even NaN in a query counts
  bool grown = false;
#pragma unroll
  for (int tile = 0; tile < TILES; tile++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float& score = scores.of[tile][i];
      score = (i < 2 ? low_chosen : high_chosen) ? score + (i < 2 ? low.power.log2 : high.power.log2) : MINUS_INFINITY;
      grown = grown || outgrows(score, softmax.level[tile][i % 2]);
    }
  if (warp_ballot(grown)) {  // seldom, behind the first tiles
    move_levels(softmax, output, scores);
    warp_barrier();  // rows went different ways
  }
#pragma unroll
  for (int tile = 0; tile < TILES; tile++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float& score = scores.of[tile][i];
      score = exp2_fast(score - base_of(softmax.level[tile][i % 2])) * (i < 2 ? low.power.inverse : high.power.inverse);
      softmax.sum[tile][i % 2] += score;
    }
}

// ------------------------------------------------------------------------------------------------ output

// Adds values times probabilities of a tile of keys.
DEVICE void add_values(Output& output, SharedAddress line, SharedAddress bf16_line, const Scores& weights, const Scales& low, const Scales& high, int half) {
#pragma unroll
  for (int group = 0; group < OWN_GROUPS; group++) {
    const bool bf16 = RECORDS == DSV4_RECORDS && group == 3 && half;
    uint32_t right[TILES][2];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float scale = i ? high.own[group] : low.own[group];
        const float first = weights.of[tile][2 * i] * scale, second = weights.of[tile][2 * i + 1] * scale;
        right[tile][i] = transpose_matrix(bf16 ? pack_bf16(first, second) : pack_f16(first, second));
      }
#pragma unroll
    for (int m = 0; m < 16 / OWN_GROUPS; m += 2) {
      uint32_t values[2][4];
      if (bf16) {
        load_matrices_transposed(values[0], bf16_line + m * 32);
        load_matrices_transposed(values[1], bf16_line + (m + 1) * 32);
      } else {
        uint32_t codes[4];
        load_matrices_transposed(codes, line + (group * GROUP_BYTES + m * 16));
        values_of_codes(values[0], values[1], codes);
      }
#pragma unroll
      for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float (&sum)[4] = output.sums[group * (16 / OWN_GROUPS) + m + i][tile];
          if (bf16) multiply_add_16x8x16(sum, values[i], right[tile][0], right[tile][1]);
          else multiply_add_16x8x16_f16(sum, values[i], right[tile][0], right[tile][1]);
        }
    }
  }
}

// ------------------------------------------------------------------------------------------------ the whole

// Queries are those of the block's first row; of its rows only row_count are there. Keys: see mla_block.cuh.
template <class Keys>
DEVICE void attend(const Keys& keys, int tiles, const uint16_t* queries_of_block, int row_count, float scale, Output& output, Softmax& softmax,
                   uint8_t* memory, const Place& at) {
  const Role role = role_of(at);
  const Stream<Keys> stream = {keys, tiles, memory, shared_address(memory), role, at};
  const int32_t first = stream.first_index(0), second = stream.first_index(1);
  Queries queries;
  load_queries(queries, queries_of_block, row_count, role.half, at);
  uint32_t chosen = stream.copy(0, first), coming = stream.copy(1, second);
  convert_queries(queries, memory, scale, role.half, at);
  if (AWAY) {
    put_queries_away(queries, memory, role, at);
    block_barrier();  // and can be read by all teams
  }
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
    for (int row = 0; row < 2; row++) {
      softmax.level[tile][row] = MINUS_INFINITY;
      softmax.sum[tile][row] = 0;
    }
#pragma unroll
    for (int m = 0; m < 16; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) output.sums[m][tile][i] = 0;
  }
#pragma unroll 1
  for (int turn = 0; stream.tile_of(turn) < tiles; turn++) {
    copy_async_wait<STAGES - 1>();
    warp_barrier();  // this warp's half of the tile is there
    const int stage = stream.stage(turn);
    const SharedAddress line = stream.base + (stage + at.lane % 16 * PITCH + at.lane / 16 * 16);
    const SharedAddress bf16_line = stream.base + (stage + (at.lane / 16 * 8 + at.lane % 8) * PITCH + BF16_AT + at.lane / 8 % 2 * 16);
    Scores scores;
    Scales low, high;
    score_keys(scores, low, high, line, stage, queries, memory, role.half, at);
    add_halves(scores, memory, turn, role, at);
    weigh_keys(scores, softmax, output, low, high, chosen, at);
    add_values(output, line, bf16_line, scores, low, high, role.half);
    chosen = coming;
    coming = stream.copy_next(turn + STAGES);
  }
  if (tiles % TEAMS && role.team >= tiles % TEAMS) {  // others had one tile more; all pass as many barriers, which racecheck counts on
    if (EXCHANGES == 1) barrier_among(1 + role.team, 64);
    barrier_among(1 + role.team, 64);
  }
}

// Adds up what the teams have, and stores it.
DEVICE void finish(Output& output, const Softmax& softmax, const Results& results, uint8_t* memory, const Place& at) {
  const Role role = role_of(at);
  InShared<float2> team_levels = at_byte<float2>(memory, TEAM_LEVELS), team_sums = at_byte<float2>(memory, TEAM_SUMS);
  block_barrier();  // nobody uses stages any more
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) {
    float2 sum = make_float2(softmax.sum[tile][0], softmax.sum[tile][1]);
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) {
      sum.x += warp_read_xor(sum.x, lanes);
      sum.y += warp_read_xor(sum.y, lanes);
    }
    if (role.half == 0 && at.group == 0) {
      team_levels[(role.team * TILES + tile) * 4 + at.pair] = make_float2(softmax.level[tile][0], softmax.level[tile][1]);
      team_sums[(role.team * TILES + tile) * 4 + at.pair] = sum;
    }
  }
  block_barrier();  // those of all teams are there
#pragma unroll
  for (int tile = 0; tile < TILES; tile++)
#pragma unroll
    for (int row = 0; row < 2; row++) {
      const int place = tile * 8 + at.pair * 2 + row;
      float most = MINUS_INFINITY, sum = 0;
#pragma unroll
      for (int team = 0; team < TEAMS; team++) most = larger(most, at_byte<float>(memory, TEAM_LEVELS)[team * ROWS + place]);
#pragma unroll
      for (int team = 0; team < TEAMS; team++) {
        const float weight = exp2_fast(at_byte<float>(memory, TEAM_LEVELS)[team * ROWS + place] - base_of(most));
        sum += at_byte<float>(memory, TEAM_SUMS)[team * ROWS + place] * weight;
      }
      if (at.warp == 0 && at.group == 0) {
        at_byte<float>(memory, ROW_LEVELS)[place] = most;
        at_byte<float>(memory, ROW_SUMS)[place] = sum;
      }
      const float alpha = exp2_fast(softmax.level[tile][row] - base_of(most));
#pragma unroll
      for (int m = 0; m < 16; m++) {
        output.sums[m][tile][row] *= alpha;
        output.sums[m][tile][2 + row] *= alpha;
      }
    }
  // A team adds up a quarter of the dimensions, and leaves the others to the others.
  float own[4][TILES][4];
#pragma unroll
  for (int quarter = 0; quarter < 4; quarter++) {
    const int giver = (role.team - quarter + TEAMS - 1) % TEAMS;  // 0 to 2, counted from the taker on; places are [half][taker][giver]
    InShared<float4> place = at_byte<float4>(memory, ((role.half * TEAMS + quarter) * (TEAMS - 1) + giver) * OUTPUT_BYTES);
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
      for (int tile = 0; tile < TILES; tile++) {
        const float (&four)[4] = output.sums[quarter * 4 + m][tile];
        if (quarter != role.team) place[(m * TILES + tile) * 32 + at.lane] = make_float4(four[0], four[1], four[2], four[3]);
        else
#pragma unroll
          for (int i = 0; i < 4; i++) own[m][tile][i] = four[i];
      }
  }
  block_barrier();  // so are their outputs
#pragma unroll
  for (int giver = 0; giver < TEAMS - 1; giver++) {
    InShared<float4> place = at_byte<float4>(memory, ((role.half * TEAMS + role.team) * (TEAMS - 1) + giver) * OUTPUT_BYTES);
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
      for (int tile = 0; tile < TILES; tile++) {
        const float4 four = place[(m * TILES + tile) * 32 + at.lane];
        own[m][tile][0] += four.x;
        own[m][tile][1] += four.y;
        own[m][tile][2] += four.z;
        own[m][tile][3] += four.w;
      }
  }
  deliver(own, role.half * 4 + role.team, at_byte<float>(memory, ROW_SUMS), at_byte<float>(memory, ROW_LEVELS), results, at);
}

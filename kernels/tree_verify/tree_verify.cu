// Attention of the nodes of draft trees (or chains, or single tokens) over a cache of bf16 latent records, split over keys.
// Rows are nodes times heads. The keys of a request are its prefix, which all nodes see, and then its nodes, of which a node
// sees those that its mask or its parents say. blockIdx.x counts blocks of rows, .y splits, .z requests. See mla_block.cuh
// for how a block works.
//
// Compiled for: RECORDS (0), TILES, PARTIAL (see mla_common.cuh), STAGES, WIDE_INDICES (int64, else int32), MASKING (0: a
// chain, a node sees those before it; 1: bits; 2: parents), RESIDENT (blocks on a multiprocessor).
#include "device.cuh"
#include "mla_common.cuh"
#include "mla_block.cuh"

#if WIDE_INDICES
typedef int64_t index_t;
#else
typedef int32_t index_t;
#endif

// Which of a tile's keys the rows see.
struct Sees {
  int first_node;  // that of the tile's first key; below 0 in the prefix
  int first_row, heads, nodes, words;
  const uint64_t* masks;
  const int32_t* parents;

  DEVICE_METHOD bool restricts() const { return first_node + BLOCK_KEYS > 0; }
  DEVICE_METHOD bool key(int row, int key) const {
    const int node = first_node + key;
    if (node < 0) return true;
    const int by = (first_row + row) / heads;
    if (by >= nodes || node >= nodes) return false;  // behind the last
#if MASKING == 1
    return load(masks + by * words + node / 64) >> (node % 64) & 1;
#elif MASKING == 2
    int above = by;
    while (above > node) {
      const int parent = load(parents + above);
      above = parent < above ? parent : -1;
    }
    return above == node;
#else
    return node <= by;
#endif
  }
};

struct Keys {
  typedef index_t Index;
  const uint8_t* memory;
  int64_t row_stride;
  index_t slots;
  const index_t* indices;
  int count, prefix;
  Sees whole;
  int begin;  // the split's first tile

  DEVICE_METHOD const Index* index_of(int tile, int slot) const {
    const int place = (begin + tile) * BLOCK_KEYS + slot;
    return place < count ? indices + place : nullptr;
  }
  DEVICE_METHOD const uint8_t* record(int, Index index) const {
    return index >= 0 && index < slots ? memory + (int64_t)index * row_stride : nullptr;
  }
  DEVICE_METHOD const uint8_t* scales(int, Index) const { return nullptr; }
  DEVICE_METHOD const uint8_t* anywhere() const { return memory; }
  // Nodes that a row does not see must not reach it, whatever they hold: what is not finite becomes zero, and is marked.
  DEVICE_METHOD bool prepare(int tile, uint8_t* memory, int slot_of_stage, const Place& at) const {
    if ((begin + tile + 1) * BLOCK_KEYS <= prefix) return false;
    InShared<uint4> record = at_byte<uint4>(memory, slot_of_stage * STAGE_BYTES + at.thread / SHARERS * PITCH);
    bool finite = true;
    for (int chunk = at.thread % SHARERS; chunk < CHUNKS; chunk += SHARERS) {
      const uint4 words = record[chunk];
      finite = finite && all_finite(words.x) && all_finite(words.y) && all_finite(words.z) && all_finite(words.w);
    }
    if (warp_ballot(!finite) >> (at.lane / SHARERS * SHARERS) & ((1 << SHARERS) - 1)) {
      for (int chunk = at.thread % SHARERS; chunk < CHUNKS; chunk += SHARERS) record[chunk] = make_uint4(0, 0, 0, 0);
      if (at.thread % SHARERS == 0) at_byte<float>(memory, OFFSETS)[slot_of_stage * BLOCK_KEYS + at.thread / SHARERS] = NOT_A_NUMBER;
    }
    return true;
  }
  DEVICE_METHOD static bool all_finite(uint32_t pair) { return (pair & 0x7f80u) != 0x7f80u && (pair & 0x7f800000u) != 0x7f800000u; }
  DEVICE_METHOD Sees sees(int tile) const {
    Sees tile_sees = whole;
    tile_sees.first_node = (begin + tile) * BLOCK_KEYS - prefix;
    return tile_sees;
  }
};

KERNEL_RESIDENT(THREADS, RESIDENT)
tree_verify(const uint16_t* __restrict__ queries, const uint8_t* __restrict__ pool, int64_t row_stride, index_t slots,
            const int32_t* __restrict__ indptr, const index_t* __restrict__ indices, const uint64_t* __restrict__ masks, int32_t words,
            const int32_t* __restrict__ parents, float scale, int32_t nodes, int32_t heads, uint16_t* __restrict__ out,
            float* __restrict__ lse, float4* __restrict__ partial_sums, float2* __restrict__ partial_rows) {
  SHARED_MEMORY(memory);
  const int request = (int)blockIdx.z, splits = (int)gridDim.y, split = (int)blockIdx.y, rows = nodes * heads;
  let_next_kernel_start();  // mla_combine, which waits for this one
  const int start = load(indptr + request);
  Keys keys;
  keys.memory = pool;
  keys.row_stride = row_stride;
  keys.slots = slots;
  keys.indices = indices + start;
  keys.count = max(load(indptr + request + 1) - start, 0);
  keys.prefix = max(keys.count - nodes, 0);
  keys.whole = {0, (int)blockIdx.x * ROWS, heads, nodes, words, masks + (int64_t)request * nodes * words, parents + (int64_t)request * nodes};
  int tiles = (keys.count + BLOCK_KEYS - 1) / BLOCK_KEYS;
  const int share = (tiles + splits - 1) / splits;
  keys.begin = split * share;
  tiles = max(min(share, tiles - keys.begin), 0);
  const Place at = place_of((int)threadIdx.x);
  const int first_row = (int)blockIdx.x * ROWS;
  Output output;
  Softmax softmax;
  attend(keys, tiles, queries + ((int64_t)request * rows + first_row) * D, rows - first_row, scale * LOG2_E, output, softmax, memory, at);
  const int64_t block = ((int64_t)request * (int)gridDim.x + (int)blockIdx.x) * splits + split;
  finish(output, softmax,
         {out + (int64_t)request * rows * VALUES, lse + (int64_t)request * rows, nullptr, heads, first_row, rows,
          partial_sums + block * (8 * 4 * TILES * 32), partial_rows + block * ROWS},
         memory, at);
}

// Attention of one query token a request over chosen FP8 records of a paged cache (MLA decode with sparse indices), split
// over keys. blockIdx.x counts blocks of heads, .y splits, .z requests. See mla_block.cuh and mla_pairs.cuh for how a block works.
//
// Compiled for: RECORDS, TILES, PARTIAL (see mla_common.cuh), STAGES, PAIRED (1: a block of mla_pairs.cuh), CACHES (1 or 2, which
// share one softmax), RESIDENT (blocks on a multiprocessor).
#include "device.cuh"
#include "mla_common.cuh"
#if PAIRED
#include "mla_pairs.cuh"
#else
#include "mla_block.cuh"
#endif

// A cache and what of it is chosen by one request.
struct Chosen {
  const uint8_t* memory;
  int64_t page_bytes;
  int32_t page_size, slots;
  const int32_t* indices;
  int32_t count, tiles;
};
DEVICE Chosen chosen_of(const uint8_t* memory, int64_t page_bytes, int32_t page_size, int32_t slots, const int32_t* indices,
                        int32_t width, const int32_t* lengths, int request) {
  const int count = lengths ? min(max(load(lengths + request), 0), width) : width;
  return {memory, page_bytes, page_size, slots, indices + (int64_t)request * width, count, (count + BLOCK_KEYS - 1) / BLOCK_KEYS};
}

DEVICE int page_of(int index, int page_size) {
  return page_size & (page_size - 1) ? index / page_size : index >> lowest_bit((uint32_t)page_size);
}

struct SeesAll {
  DEVICE_METHOD bool restricts() const { return false; }
  DEVICE_METHOD bool key(int, int) const { return true; }
};

struct Keys {
  typedef int32_t Index;
  Chosen first;
#if CACHES == 2
  Chosen second;
#endif
  int begin;  // the split's first tile, counted through both caches

  // The cache that a tile belongs to, in which it is counted then.
  DEVICE_METHOD Chosen cache_of(int& tile) const {
    tile += begin;
#if CACHES == 2
    const bool behind = tile >= first.tiles;
    if (behind) tile -= first.tiles;
    return {behind ? second.memory : first.memory, behind ? second.page_bytes : first.page_bytes, behind ? second.page_size : first.page_size,
            behind ? second.slots : first.slots, behind ? second.indices : first.indices, behind ? second.count : first.count, 0};
#else
    return first;
#endif
  }
  DEVICE_METHOD const Index* index_of(int tile, int slot) const {
    const Chosen cache = cache_of(tile);
    const int place = tile * BLOCK_KEYS + slot;
    return place < cache.count ? cache.indices + place : nullptr;
  }
  DEVICE_METHOD const uint8_t* record(int tile, Index index) const {
    const Chosen cache = cache_of(tile);
    if (index < 0 || index >= cache.slots) return nullptr;
    const int page = page_of(index, cache.page_size);
    return cache.memory + page * cache.page_bytes + (int64_t)(index - page * cache.page_size) * (RECORDS == V32_RECORDS ? 656 : 576);
  }
  DEVICE_METHOD const uint8_t* scales(int tile, Index index) const {
    if (RECORDS == V32_RECORDS) return nullptr;  // they are in the record
    const Chosen cache = cache_of(tile);
    const int page = page_of(index, cache.page_size);
    return cache.memory + page * cache.page_bytes + (int64_t)cache.page_size * 576 + (int64_t)(index - page * cache.page_size) * 8;
  }
  DEVICE_METHOD const uint8_t* anywhere() const { return first.memory; }
  DEVICE_METHOD bool prepare(int, uint8_t*, int, const Place&) const { return false; }
  DEVICE_METHOD SeesAll sees(int) const { return {}; }
};

KERNEL_RESIDENT(THREADS, RESIDENT)
sparse_decode(const uint16_t* __restrict__ queries, const uint8_t* __restrict__ cache, int64_t page_bytes, int32_t page_size, int32_t slots,
              const int32_t* __restrict__ indices, int32_t width, const int32_t* __restrict__ lengths, const uint8_t* __restrict__ cache_2,
              int64_t page_bytes_2, int32_t page_size_2, int32_t slots_2, const int32_t* __restrict__ indices_2, int32_t width_2,
              const int32_t* __restrict__ lengths_2, float scale, const float* __restrict__ sinks, int32_t heads, uint16_t* __restrict__ out,
              float* __restrict__ lse, float4* __restrict__ partial_sums, float2* __restrict__ partial_rows) {
  SHARED_MEMORY(memory);
  const int request = (int)blockIdx.z, splits = (int)gridDim.y, split = (int)blockIdx.y;
  let_next_kernel_start();  // mla_combine, which waits for this one
  Keys keys;
  keys.first = chosen_of(cache, page_bytes, page_size, slots, indices, width, lengths, request);
  int tiles = keys.first.tiles;
#if CACHES == 2
  keys.second = chosen_of(cache_2, page_bytes_2, page_size_2, slots_2, indices_2, width_2, lengths_2, request);
  tiles += keys.second.tiles;
#endif
  const int share = (tiles + splits - 1) / splits;
  keys.begin = split * share;
  tiles = max(min(share, tiles - keys.begin), 0);
  const Place at = place_of((int)threadIdx.x);
  const int first_row = (int)blockIdx.x * ROWS;
  Output output;
  Softmax softmax;
  attend(keys, tiles, queries + ((int64_t)request * heads + first_row) * D, heads - first_row, scale * LOG2_E, output, softmax, memory, at);
  const int64_t block = ((int64_t)request * (int)gridDim.x + (int)blockIdx.x) * splits + split;
  finish(output, softmax,
         {out + (int64_t)request * heads * VALUES, lse + (int64_t)request * heads, sinks, heads, first_row, heads,
          partial_sums + block * (8 * 4 * TILES * 32), partial_rows + block * ROWS},
         memory, at);
}

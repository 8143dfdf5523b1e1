// Builds the draft tree of every request: the `budget` best prefixes by the sum of their log-probabilities, best first,
// exactly as a heap of (-score, rank path) would pop them. One block a request.
//
// The first warp does what cannot be done at once: it pops the best candidate and puts its next sibling and its first
// child in. Candidates stay in registers, SLOTS to a lane. Their scores are float64, added up in the order of the heap, and
// kept as integers of the same order, of which the high word nearly always decides: one warp-wide maximum and one vote
// find the best. Equal scores are rare; for them the rank paths are compared. All threads load before and write after.
//
// Compiled for: THREADS (a block), SLOTS (32 * SLOTS candidates are enough for a budget of as many).
#include "device.cuh"

const int LANES = 32;
const bool MANY = SLOTS > 4;  // slots: then those that were never used are passed over

// What a candidate is, and what becomes of it when it is popped: fields of one word.
//   rank        8 bits   of its token at its depth
//   depth - 1   4 bits   children of the root have depth 1
//   parent     10 bits
//   creator    10 bits   the node whose pop put it in: its parent where rank is 0, else the sibling before it
struct Node { int rank, depth, parent, creator; };
DEVICE uint32_t pack(Node node) {
  return (uint32_t)node.rank | (uint32_t)(node.depth - 1) << 8 | (uint32_t)node.parent << 12 | (uint32_t)node.creator << 22;
}
DEVICE Node unpack(uint32_t word) {
  return {(int)(word & 255), (int)(word >> 8 & 15) + 1, (int)(word >> 12 & 1023), (int)(word >> 22)};
}

// A score as two words that compare as it does, and what it is the score of. No finite score has a high word of 0.
struct Candidate { uint32_t high, low, node; };
DEVICE Candidate candidate_of(double score, uint32_t node) {
  const uint64_t bits = bits_of_double(score);
  const uint32_t high = (uint32_t)(bits >> 32), low = (uint32_t)bits, negative = 0u - (high >> 31);
  return {high ^ (negative | 0x80000000u), low ^ negative, node};
}
DEVICE double score_of(uint32_t high, uint32_t low) {
  const uint32_t negative = (high >> 31) - 1u;
  return double_of_bits((uint64_t)(high ^ (negative | 0x80000000u)) << 32 | (low ^ negative));
}
DEVICE bool is_finite(double value) { return (bits_of_double(value) >> 52 & 0x7ff) != 0x7ff; }
// By word, so that candidates stay in registers.
DEVICE Candidate chosen(bool first, const Candidate& a, const Candidate& b) {
  return {first ? a.high : b.high, first ? a.low : b.low, first ? a.node : b.node};
}
DEVICE bool is_above(const Candidate& a, const Candidate& b) { return a.high > b.high || (a.high == b.high && a.low > b.low); }
DEVICE bool is_equal(const Candidate& a, const Candidate& b) { return a.high == b.high && a.low == b.low; }

// The block's shared memory, for trees of `nodes` nodes from `cells` log-probabilities [depths, width].
struct Shared {
  InShared<double> scores;      // [cells]
  InShared<float> read;         // [cells] as they come; lies where paths will be
  InShared<uint8_t> paths;      // [nodes, 16]: the rank at each depth, 0 behind the node's own
  InShared<uint32_t> tree;      // [nodes]: packed
  InShared<int> first_child;    // [nodes]
  InShared<int> next_sibling;   // [nodes]
  InShared<int> found;          // how many nodes there are besides the root
};
DEVICE Shared divide(uint8_t* memory, int nodes, int cells) {
  const int paths = (cells * 8 + 15) / 16 * 16, tree = paths + (max(nodes * 16, cells * 4) + 15) / 16 * 16;
  return {at_byte<double>(memory, 0),
          at_byte<float>(memory, paths),
          at_byte<uint8_t>(memory, paths),
          at_byte<uint32_t>(memory, tree),
          at_byte<int>(memory, tree + nodes * 4),
          at_byte<int>(memory, tree + nodes * 8),
          at_byte<int>(memory, tree + nodes * 12)};
}

// Ranks of all depths, the first highest. Smaller is earlier among equal scores; no candidate's path goes on where
// another's ends (a node's children come when it is popped), so what lies behind the end does not matter.
struct Path { uint32_t word[4]; };
DEVICE Path path_of(const Shared& shared, uint32_t packed) {
  const Node node = unpack(packed);
  Path path;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t ranks = *at_word(shared.paths + node.parent * 16 + i * 4);
    const int shift = 24 - (node.depth - 1) % 4 * 8;
    const bool own = (node.depth - 1) / 4 == i;
    path.word[i] = pick_bytes(ranks, 0, 0x0123) | (own ? (uint32_t)node.rank << shift : 0);
  }
  return path;
}
DEVICE bool is_before(const Path& a, const Path& b) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (a.word[i] != b.word[i]) return a.word[i] < b.word[i];
  return false;
}

// Which lane has the first of the best candidates, where several lanes or slots share their high word; `best` and `slot`
// are that lane's best from here on.
DEVICE int first_of_equals(const Shared& shared, const Candidate (&mine)[SLOTS], Candidate& best, int& slot, uint32_t high) {
  const uint32_t low = warp_max(best.high == high ? best.low : 0);
  warp_barrier();  // paths were written by other lanes
  bool among = false;
  Path first = {};
#pragma unroll
  for (int i = 0; i < SLOTS; i++) {
    if (mine[i].high == high && mine[i].low == low) {
      const Path path = path_of(shared, mine[i].node);
      if (!among || is_before(path, first)) {
        among = true;
        first = path;
        best = mine[i];
        slot = i;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t word = among ? first.word[i] : 0xffffffffu;
    const uint32_t least = warp_min(word);
    among = among && word == least;
  }
  return lowest_bit(warp_ballot(among));
}

// The loop of the first warp. Returns how many nodes the tree has besides its root.
DEVICE int grow(const Shared& shared, int lane, int budget, int depths, int width) {
  Candidate mine[SLOTS] = {};
  int candidates = 1, nodes = 0;
  if (lane == 0 && depths > 0 && width > 0 && is_finite(shared.scores[0]))
    mine[0] = candidate_of(shared.scores[0], pack({0, 1, 0, 0}));
  if (lane < 16) shared.paths[lane] = 0;
  while (nodes < budget) {
    Candidate best = mine[0];
    int slot = 0;
    bool twins = false;  // in this lane
#pragma unroll
    for (int i = 1; i < SLOTS; i++) {
      if (MANY && i * LANES >= candidates) break;
      const bool above = is_above(mine[i], best);
      twins = !above && (twins || is_equal(mine[i], best));
      best = chosen(above, mine[i], best);
      slot = above ? i : slot;
    }
    const uint32_t high = warp_max(best.high);
    if (high == 0) break;
    const uint32_t lanes = warp_ballot(best.high == high);
    int owner = lowest_bit(lanes);
    if (count_bits(lanes) > 1 || (SLOTS > 1 && warp_ballot(best.high == high && twins)))
      owner = first_of_equals(shared, mine, best, slot, high);
    const double score = score_of(high, warp_read(best.low, owner));
    const uint32_t packed = warp_read(best.node, owner);
    const Node node = unpack(packed);
    const InShared<double> cell = shared.scores + ((node.depth - 1) * width + node.rank);
    nodes++;

    const bool has_sibling = node.rank + 1 < width, has_child = node.depth < depths;
    const double sibling = has_sibling ? add_rounded(subtract_rounded(score, cell[0]), cell[1]) : 0;
    const double child = has_child ? add_rounded(score, shared.scores[node.depth * width]) : 0;
    const bool put_sibling = has_sibling && is_finite(sibling), put_child = has_child && is_finite(child);
    const Candidate new_sibling = candidate_of(sibling, pack({node.rank + 1, node.depth, node.parent, nodes}));
    const Candidate new_child = candidate_of(child, pack({0, node.depth + 1, nodes, nodes}));
    // The place of what was popped goes to the sibling, else to the child; a child besides a sibling gets a new one.
    const Candidate instead = chosen(put_sibling, new_sibling, chosen(put_child, new_child, {0, 0, 0}));
    const bool append = put_sibling && put_child;
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
      if (MANY && i * LANES > candidates) break;
      mine[i] = chosen(lane == owner && i == slot, instead, mine[i]);
      mine[i] = chosen(append && lane == candidates % LANES && i == candidates / LANES, new_child, mine[i]);
    }
    if (append) candidates++;

    if (lane == 0) shared.tree[nodes] = packed;
    if (lane < 16) shared.paths[nodes * 16 + lane] = lane == node.depth - 1 ? (uint8_t)node.rank : shared.paths[node.parent * 16 + lane];
  }
  return nodes;
}

// Inputs [requests, depths, ranks], of which the first `width` ranks are used; outputs [requests, budget + 1], the bits
// [requests, budget + 1, words]. Unused nodes: token and parent -1, depth 0, their own bit.
KERNEL(THREADS) tree_build(const float* __restrict__ log_probs, const int64_t* __restrict__ token_ids,
                           const int32_t* __restrict__ prefix_lengths, int32_t depths, int32_t ranks, int32_t width,
                           int32_t budget, int64_t* __restrict__ tokens, int32_t* __restrict__ parents,
                           int32_t* __restrict__ depths_out, int64_t* __restrict__ positions, int64_t* __restrict__ visible,
                           int32_t* __restrict__ first_child, int32_t* __restrict__ next_sibling, int32_t* __restrict__ counts) {
  SHARED_MEMORY(memory);
  const int thread = (int)threadIdx.x, all = budget + 1, cells = depths * width, words = (all + 63) / 64;
  const int64_t request = blockIdx.x, offset = request * all;
  const Shared shared = divide(memory, all, cells);
  log_probs += request * depths * ranks;
  token_ids += request * depths * ranks;

#pragma unroll 1
  for (int i = thread; i < cells; i += THREADS) {
    const int depth = i / width, rank = i - depth * width;
    copy_async_4(shared.read + i, log_probs + depth * ranks + rank);
    if (rank % 4 == 0) prefetch(token_ids + depth * ranks + rank);
  }
  copy_async_commit();
  const int prefix = load(prefix_lengths + request);
#pragma unroll 1
  for (int i = thread; i < all; i += THREADS) shared.first_child[i] = shared.next_sibling[i] = -1;
  copy_async_wait<0>();
#pragma unroll 1
  for (int i = thread; i < cells; i += THREADS)  // each thread takes what it copied; -0 becomes 0, so that sums are never -0
    shared.scores[i] = add_rounded(shared.read[i], 0.0);
  block_barrier();
  if (thread < LANES) {
    const int nodes = grow(shared, thread, budget, depths, width);
    if (thread == 0) *shared.found = nodes;
  }
  block_barrier();

  const int nodes = *shared.found;
#pragma unroll 1
  for (int i = 1 + thread; i <= nodes; i += THREADS) {
    const Node node = unpack(shared.tree[i]);
    (node.rank == 0 ? shared.first_child : shared.next_sibling)[node.creator] = i;
  }
#pragma unroll 1
  for (int i = thread; i < all; i += THREADS) {
    const bool used = i > 0 && i <= nodes;
    const Node node = used ? unpack(shared.tree[i]) : Node{0, 0, -1, -1};
    store(tokens + offset + i, used ? (int64_t)load(token_ids + (node.depth - 1) * ranks + node.rank) : (int64_t)-1);
    store(parents + offset + i, node.parent);
    store(depths_out + offset + i, node.depth);
    store(positions + offset + i, (int64_t)prefix + node.depth);
  }
#pragma unroll 1
  for (int i = thread; i < all * words; i += THREADS) {
    const int word = i % words;
    uint64_t bits = 0;
    for (int at = i / words; at >= 0; at = at > 0 && at <= nodes ? unpack(shared.tree[at]).parent : -1)
      if (at / 64 == word) bits |= (uint64_t)1 << at % 64;
    store(visible + offset * words + i, (int64_t)bits);
  }
  if (thread == 0) store(counts + request, nodes);
  block_barrier();
#pragma unroll 1
  for (int i = thread; i < all; i += THREADS) {
    store(first_child + offset + i, (int32_t)shared.first_child[i]);
    store(next_sibling + offset + i, (int32_t)shared.next_sibling[i]);
  }
}

"""The small MLA-like decoder that `record.py` traces, and the host code of its tree-speculative variant.

Nothing here is tuned to be a good model: weights are random, only shapes and launches matter. What each
scenario plants, and where, is said in `SCENARIOS`.
"""

from __future__ import annotations

import heapq
import random
import time
from dataclasses import dataclass, field

import record_kernels as kernels
import torch
import torch.distributed as dist
from torch.profiler import record_function

HEADS = 64  # per rank
V_HEAD = 128
VOCAB = 32_768
TREE_NODES = 9
DRAFT_DEPTH = 4
DRAFT_TOPK = 4


@dataclass(frozen=True)
class Scenario:
    """One planted case: shapes, the attention it uses, and what is wrong with it."""

    name: str
    purpose: str
    attention: str  # "sparse", "cast" or "grouped"
    batch: int
    context: int
    hidden: int = 4096
    intermediate: int = 6144  # per rank
    query_rank: int = 1536
    layers: int = 3
    topk: int = 512
    tree: bool = False
    extra_columns: int = 0  # width of the extra GEMM of rank 1
    attempts: int = 3  # how often to record a run, to keep the quietest
    steps: dict[str, int] = field(default_factory=lambda: {"eager": 22, "gpu-only": 32, "graph": 32})

    @property
    def tokens_per_request(self) -> int:
        return TREE_NODES if self.tree else 1

    @property
    def tokens(self) -> int:
        return self.batch * self.tokens_per_request

    @property
    def pool_rows(self) -> int:
        return self.batch * self.context + (TREE_NODES if self.tree else 0)

    @property
    def marker(self) -> str:
        return f"step[DECODE bs={self.batch} toks={self.tokens}]"


def _mask_scenario(label: str, context: int) -> Scenario:
    return Scenario(
        name=f"mask-{label}",
        purpose=f"host code builds an O(context) tree mask in every step; context {context} tokens",
        attention="grouped",
        batch=1,
        context=context,
        hidden=7168,
        intermediate=57_344,
        topk=256,
        tree=True,
        attempts=12,  # here the host's time counts, and a shared host is quiet only now and then
        steps={"eager": 21, "gpu-only": 32, "graph": 32},
    )


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="sparse",
            purpose="_tiled_sparse_decode_kernel: 64 blocks, one a head, each walks its top-k serially; dominates",
            attention="sparse",
            batch=1,
            context=65_536,
            hidden=7168,
            intermediate=14_336,
        ),
        Scenario(
            name="cast",
            purpose="every layer casts the whole FP8 pool (495,000 x 576) to BF16 and reads 4,096 rows of it",
            attention="cast",
            batch=8,
            context=61_875,
            hidden=7168,
            intermediate=18_432,
        ),
        _mask_scenario("4k", 4 * 1024),
        _mask_scenario("16k", 16 * 1024),
        _mask_scenario("64k", 64 * 1024),
        Scenario(
            name="straggler",
            purpose="rank 1 runs one more GEMM in every layer; rank 0 waits in the all-reduce behind it",
            attention="grouped",
            batch=1024,
            context=1024,
            topk=256,
            extra_columns=24_576,
        ),
        Scenario(
            name="healthy",
            purpose="none of the planted flaws: filled kernels, host ahead of the GPU, equal ranks",
            attention="grouped",
            batch=2048,
            context=1024,
            intermediate=12_288,
            topk=256,
        ),
    )
}


class _Weights:
    """Seeded random BF16 matrices; sharded ones differ by rank, replicated ones do not.

    Entries are one magnitude with random signs: few bits toggle, so that neither GPU reaches its power limit and
    slows down before the other, which would look like a straggler.
    """

    def __init__(self, rank: int, device: torch.device) -> None:
        self._device = device
        self._shared = torch.Generator(device).manual_seed(1)
        self._sharded = torch.Generator(device).manual_seed(100 + rank)

    def _matrix(self, generator: torch.Generator, *shape: int) -> torch.Tensor:
        values = torch.randn(*shape, generator=generator, device=self._device, dtype=torch.bfloat16)
        return values.sign_().mul_(shape[-2] ** -0.5)

    def replicated(self, *shape: int) -> torch.Tensor:
        return self._matrix(self._shared, *shape)

    def sharded(self, *shape: int) -> torch.Tensor:
        return self._matrix(self._sharded, *shape)

    def pool(self, rows: int) -> torch.Tensor:
        shape = (rows, kernels.KEY)
        values = torch.randn(*shape, generator=self._shared, device=self._device, dtype=torch.bfloat16)
        return values.to(torch.float8_e4m3fn)


def _all_reduce(tensor: torch.Tensor) -> None:
    """`dist.all_reduce` without the host time of its checks."""
    options = dist.AllreduceOptions()
    options.asyncOp = False
    dist.group.WORLD.allreduce([tensor], options)


class Workspace:
    """Buffers of one step and the views that the layers use, made once: every layer works in the same ones."""

    def __init__(self, scenario: Scenario, device: torch.device) -> None:
        s, tokens = scenario, scenario.tokens

        def buffer(*shape: int) -> torch.Tensor:
            return torch.zeros(*shape, dtype=torch.bfloat16, device=device)

        self.stream = buffer(tokens, s.hidden)
        self.delta = buffer(tokens, s.hidden)  # what attention or MLP add to the stream
        self.normed = buffer(tokens, s.hidden)
        self.qkv_a = buffer(tokens, s.query_rank + kernels.KEY)
        self.query_a = self.qkv_a[:, : s.query_rank]
        self.query_flat = buffer(tokens, HEADS * kernels.KEY)
        self.query = self.query_flat.view(tokens, HEADS, kernels.KEY)
        self.latent = buffer(tokens, HEADS, kernels.LATENT)
        self.latent_by_head = self.latent.transpose(0, 1)
        self.value = buffer(tokens, HEADS * V_HEAD)
        self.value_by_head = self.value.view(tokens, HEADS, V_HEAD).transpose(0, 1)
        self.gate_up = buffer(tokens, 2 * s.intermediate)
        self.activated = buffer(tokens, s.intermediate)
        self.extra = buffer(tokens, s.extra_columns)
        self.logits = buffer(tokens, VOCAB)
        if s.attention == "cast":
            self.rows_flat = buffer(s.batch * s.topk, kernels.KEY)
            rows = self.rows_flat.view(s.batch, s.topk, kernels.KEY)
            self.rows_transposed = rows.transpose(1, 2)
            self.rows_latent = rows[..., : kernels.LATENT]
            self.scores = buffer(s.batch, HEADS, s.topk)


class Layer:
    """Attention and MLP of one decoder layer, an all-reduce behind each."""

    def __init__(self, scenario: Scenario, weights: _Weights, rank: int, device: torch.device) -> None:
        s = scenario
        self.scenario = s
        self.norm_attention = torch.ones(s.hidden, dtype=torch.bfloat16, device=device)
        self.norm_mlp = torch.ones(s.hidden, dtype=torch.bfloat16, device=device)
        self.w_qkv_a = weights.replicated(s.hidden, s.query_rank + kernels.KEY)
        # The softmax scale 1/sqrt(192) is folded in here.
        self.w_q_b = weights.sharded(s.query_rank, HEADS * kernels.KEY).mul_(192**-0.5)
        self.w_value = weights.sharded(HEADS, kernels.LATENT, V_HEAD)
        self.w_out = weights.sharded(HEADS * V_HEAD, s.hidden)
        self.w_gate_up = weights.sharded(s.hidden, 2 * s.intermediate)
        self.w_down = weights.sharded(s.intermediate, s.hidden)
        self.w_extra = weights.sharded(s.hidden, s.extra_columns) if s.extra_columns and rank == 1 else None
        self.pool = weights.pool(s.pool_rows)

    def attention(self, step: StepInputs, work: Workspace) -> None:
        torch.mm(work.normed, self.w_qkv_a, out=work.qkv_a)
        torch.mm(work.query_a, self.w_q_b, out=work.query_flat)
        kernels.write_pool(work.qkv_a, self.scenario.query_rank, step.write_slots, self.pool)
        self._attend(step, work)
        torch.bmm(work.latent_by_head, self.w_value, out=work.value_by_head)
        torch.mm(work.value, self.w_out, out=work.delta)
        _all_reduce(work.delta)

    def _attend(self, step: StepInputs, work: Workspace) -> None:
        if self.scenario.attention == "sparse":
            kernels.sparse_decode(work.query, self.pool, step.read_slots, work.latent)
        elif self.scenario.attention == "cast":
            self._attend_after_cast(step, work)
        else:
            nodes = self.scenario.tokens_per_request
            kernels.grouped_decode(work.query, self.pool, step.read_slots, work.latent, step.tree_mask, nodes)

    def _attend_after_cast(self, step: StepInputs, work: Workspace) -> None:
        pool = self.pool.to(torch.bfloat16)  # the planted flaw: every row is converted, few are read
        torch.index_select(pool, 0, step.read_slots, out=work.rows_flat)
        torch.bmm(work.query, work.rows_transposed, out=work.scores)
        torch.bmm(torch.softmax(work.scores, dim=-1), work.rows_latent, out=work.latent)

    def mlp(self, work: Workspace) -> None:
        torch.mm(work.normed, self.w_gate_up, out=work.gate_up)
        if self.w_extra is not None:
            # The planted straggler: only rank 1 has this; the result is dropped.
            torch.mm(work.normed, self.w_extra, out=work.extra)
        kernels.silu_and_mul(work.gate_up, work.activated)
        torch.mm(work.activated, self.w_down, out=work.delta)
        _all_reduce(work.delta)


@dataclass
class StepInputs:
    """Device tensors a step reads and writes in place, so that a captured graph can be replayed on them."""

    token_ids: torch.Tensor  # [tokens]
    next_ids: torch.Tensor  # [tokens]; the same tensor as token_ids where each step feeds the next
    write_slots: torch.Tensor  # [tokens], pool row of each token's own key
    read_slots: torch.Tensor  # [batch, topk] (cast: flat), pool rows attended to
    tree_mask: torch.Tensor | None  # [nodes, context + nodes], one byte a key


def _make_inputs(scenario: Scenario, device: torch.device) -> StepInputs:
    s = scenario
    generator = torch.Generator(device).manual_seed(7)
    tree = TREE_NODES if s.tree else 0
    scores = torch.rand(s.batch, s.context, generator=generator, device=device)
    positions = scores.topk(s.topk - tree, dim=1).indices.sort(dim=1).values
    base = torch.arange(s.batch, device=device)[:, None] * s.context
    read = positions + base
    write = base.view(-1) + s.context - 1
    if s.tree:
        write = s.context + torch.arange(tree, device=device)
        read = torch.cat([read, write[None, :]], dim=1)
    token_ids = torch.arange(s.tokens, device=device) % VOCAB
    return StepInputs(
        token_ids=token_ids,
        next_ids=torch.zeros_like(token_ids) if s.tree else token_ids,
        write_slots=write,
        read_slots=read.flatten() if s.attention == "cast" else read.to(torch.int32).contiguous(),
        tree_mask=torch.zeros(tree, s.context + tree, dtype=torch.bool, device=device) if s.tree else None,
    )


class Decoder:
    """The model and its buffers: `prepare` is the host's part of a step, `forward` the launches."""

    def __init__(self, scenario: Scenario, rank: int, device: torch.device) -> None:
        weights = _Weights(rank, device)
        self.scenario = scenario
        self.inputs = _make_inputs(scenario, device)
        self.work = Workspace(scenario, device)
        self.embedding = weights.replicated(VOCAB, scenario.hidden)
        self.layers = [Layer(scenario, weights, rank, device) for _ in range(scenario.layers)]
        self.norm = torch.ones(scenario.hidden, dtype=torch.bfloat16, device=device)
        self.lm_head = weights.replicated(scenario.hidden, VOCAB)
        # Two buffers, for the host may read one step's tokens while the next step writes its own.
        self.host_tokens = [torch.zeros(scenario.tokens, dtype=torch.int64).pin_memory() for _ in range(2)]
        self.drafter = TreeDrafter(scenario, self.inputs) if scenario.tree else None

    def prepare(self, step: int) -> None:
        """Host work before the launches: nothing, or the draft tree and its mask."""
        if self.drafter is not None:
            self.drafter.prepare(int(self.host_tokens[(step - 1) % 2][0]))

    def forward(self) -> None:
        work = self.work
        torch.index_select(self.embedding, 0, self.inputs.token_ids, out=work.stream)
        work.delta.zero_()
        for layer in self.layers:
            kernels.add_rms_norm(work.stream, work.delta, layer.norm_attention, work.normed)
            layer.attention(self.inputs, work)
            kernels.add_rms_norm(work.stream, work.delta, layer.norm_mlp, work.normed)
            layer.mlp(work)
        kernels.add_rms_norm(work.stream, work.delta, self.norm, work.normed)
        torch.mm(work.normed, self.lm_head, out=work.logits)
        torch.argmax(work.logits, dim=-1, out=self.inputs.next_ids)

    def fetch_tokens(self, step: int) -> None:
        self.host_tokens[step % 2].copy_(self.inputs.next_ids, non_blocking=True)


# --- host code of tree-speculative decoding ---


@dataclass(frozen=True)
class DraftTree:
    tokens: list[int]
    visible: list[list[bool]]  # [node][node]: a node sees itself and its ancestors


def build_draft_tree(root_token: int, log_probs: list[list[float]]) -> DraftTree:
    """Best-first tree of the likeliest token paths: the innocent suspect, for it never sees the context."""
    tokens = [root_token]
    visible = [[True] + [False] * (TREE_NODES - 1)]
    # Entries: (-path log-probability, path of ranks, parent node, log-probability of the parent's path).
    frontier: list[tuple[float, tuple[int, ...], int, float]] = [(-log_probs[0][0], (0,), 0, 0.0)]
    while frontier and len(tokens) < TREE_NODES:
        cost, path, parent, parent_score = heapq.heappop(frontier)
        node = len(tokens)
        tokens.append((tokens[parent] * 31 + 17 * path[-1] + len(path)) % VOCAB)
        row = list(visible[parent])
        row[node] = True
        visible.append(row)
        depth, rank = len(path), path[-1]
        if rank + 1 < DRAFT_TOPK:
            sibling = parent_score + log_probs[depth - 1][rank + 1]
            heapq.heappush(frontier, (-sibling, (*path[:-1], rank + 1), parent, parent_score))
        if depth < DRAFT_DEPTH:
            heapq.heappush(frontier, (cost - log_probs[depth][0], (*path, 0), node, -cost))
    return DraftTree(tokens, visible)


def build_tree_mask(visible: list[list[bool]], prefix: int) -> tuple[torch.Tensor, list[int]]:
    """The planted flaw: each node's row over the whole prefix is built on the host, walked as Python objects.

    Returns the mask [nodes, prefix + nodes] and how many keys each node sees.
    """
    seen = torch.ones((len(visible), prefix), dtype=torch.bool)
    mask = torch.cat([seen, torch.tensor(visible, dtype=torch.bool)], dim=1)
    return mask, [row.tolist().count(True) for row in mask]


class TreeDrafter:
    """Host side of a verify step; keeps how long its two parts took (host clock, ns)."""

    def __init__(self, scenario: Scenario, inputs: StepInputs) -> None:
        assert inputs.tree_mask is not None
        device = inputs.token_ids.device
        self._inputs = inputs
        self._device_mask = inputs.tree_mask
        self._prefix_lens = torch.tensor([scenario.context], device=device)
        self._pinned_tokens = torch.zeros(TREE_NODES, dtype=torch.int64).pin_memory()
        self._pinned_mask = torch.zeros(inputs.tree_mask.shape, dtype=torch.bool).pin_memory()
        source = random.Random(3)
        self._log_probs = [
            sorted((-source.expovariate(1.0) - 0.1 for _ in range(DRAFT_TOPK)), reverse=True)
            for _ in range(DRAFT_DEPTH)
        ]
        self.tree_ns: list[int] = []
        self.mask_ns: list[int] = []

    def prepare(self, root_token: int) -> None:
        started = time.perf_counter_ns()
        with record_function("build_draft_tree"):
            tree = build_draft_tree(root_token, self._log_probs)
        drafted = time.perf_counter_ns()
        with record_function("build_tree_mask"):
            prefix = int(self._prefix_lens.tolist()[0])  # waits for the device, as such code does
            mask, keys = build_tree_mask(tree.visible, prefix)
            if min(keys) <= prefix:
                raise RuntimeError("a draft node does not see itself")
            self._pinned_mask.copy_(mask)
        masked = time.perf_counter_ns()
        self._pinned_tokens.copy_(torch.tensor(tree.tokens))
        self._inputs.token_ids.copy_(self._pinned_tokens, non_blocking=True)
        self._device_mask.copy_(self._pinned_mask, non_blocking=True)
        self.tree_ns.append(drafted - started)
        self.mask_ns.append(masked - drafted)

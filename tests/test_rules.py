"""Classes of kernels: the built-in table, users' rules in front of it, and what is said of mistakes in them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_names import FAMILIES, JUDGED, Judged, classed, corpus_names, corpus_totals, golden, shared_corpus
from polars.testing import assert_frame_equal

from traceanalyzer.classify.rules import BUILT_IN, CLASSES, Rule, load_rules, words_of
from traceanalyzer.errors import UsageError

TABLE = load_rules()


@pytest.mark.parametrize("rule", TABLE.rules, ids=lambda rule: rule.id)
def test_a_rule_judges_its_own_example(rule: Rule) -> None:
    assert rule.example is not None
    assert TABLE.classify(rule.example).rule is rule, f"{rule.id} is shadowed"


def test_the_built_in_table_is_whole() -> None:
    assert {rule.kernel_class for rule in TABLE.rules} == set(CLASSES) - {"other"}  # other is what no rule knows
    assert len({rule.id for rule in TABLE.rules}) == len(TABLE.rules)
    assert {rule.source for rule in TABLE.rules} == {BUILT_IN}


@pytest.mark.parametrize("row", golden(), ids=lambda row: row.short)
def test_golden_classes(row: Judged) -> None:
    assert TABLE.classify(row.name).kernel_class == row.kernel_class


def test_the_golden_list_is_long_and_has_all_classes() -> None:
    assert {row.kernel_class for row in golden()} == set(CLASSES)
    assert len({row.name for row in golden()}) == len(golden()) >= 200


def test_names_judged_blindly_are_right() -> None:
    judged = classed(JUDGED)
    assert len({name for _, name in judged}) == 200
    wrong = [(name, wanted) for wanted, name in judged if TABLE.classify(name).kernel_class != wanted]
    assert len(wrong) <= 4, wrong  # right in 98 %; a constant that is stored (lift_fresh) is a copy to the rules


@pytest.mark.parametrize(("kernel_class", "name"), classed(FAMILIES))
def test_classes_of_known_families(kernel_class: str, name: str) -> None:
    assert TABLE.classify(name).kernel_class == kernel_class


@pytest.mark.parametrize(
    "name", ["hipblaslt_gemm_kernel", "hip_layer_norm_kernel", "void hipcub::DeviceScanKernel<int>()"]
)
def test_a_name_that_begins_with_hip_is_no_communication(name: str) -> None:
    assert TABLE.classify(name).kernel_class not in ("communication", "other")


@pytest.mark.parametrize(
    ("name", "kernel_class"),
    [
        # filed under quantize by another tool, for the type of the cache among its arguments
        ("void vllm::reshape_and_cache_flash_kernel<__half, (vllm::Fp8KVCacheDataType)1>(...)", "copy_cast"),
        # filed under gemm by another tool
        ("void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128, cutlass::gemm::X>, true>(...)", "attention"),
        # filed under quantize by another tool: the weighted sum over a token's experts
        ("void cuda::reduce_fused_impl<__nv_bfloat16, true, false>(...)", "moe"),
        # DeepEP counts as nothing at all in tools that know NCCL alone
        ("void dpsk::ep::internode::cached_notify<true, 4>(...)", "communication"),
        ("void dpsk::ep::internode::combine_ll<...>(...)", "communication"),
        ("void deep_ep::intranode::cached_notify_combine<8>(...)", "communication"),
        ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(...)", "communication"),
        # a scan whose name space merely ends like DeepEP's
        ("void cdpsk::ep::CUB_200_NS::DeviceScanByKeyKernel<int>(...)", "reduction"),
        # communication without NCCL
        ("void sglang::cross_device_reduce_2stage<__half, 8>(...)", "communication"),
        ("_ZN5aiter26cross_device_reduce_2stageIDF16bLi8ELb0EEEvv", "communication"),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16>(...)", "communication"),
        ("void (anonymous namespace)::all_reduce_one_shot_push_kernel<__nv_bfloat16, 4u, true>(...)", "communication"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(...)", "communication"),
        ("void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<8>(...)", "communication"),
        ("void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(...)", "communication"),
        ("ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)", "communication"),
        ("rcclGenericKernel<1, false>(ncclDevComm*)", "communication"),
        ("void mscclpp::megamoe::detail::megaMoe<false>()", "communication"),
        ("nvshmemi_proxy_quiet", "communication"),
        ("EpDispatchIntraNodeKernel", "communication"),
        # a pointwise kernel fused around a collective is none
        ("triton_poi_fused_add_all_reduce_bitwise_and_embedding_ge_lt_masked_fill_mul_sub_0", "elementwise"),
        # a pointwise kernel that lays out the inputs of attention is none
        ("triton_poi_fused__scaled_dot_product_flash_attention_2_0d1d2d3d4de", "copy_cast"),
        # an activation fused into a GEMM leaves it a GEMM; relu in the name of a convolution as well
        ("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_relu_f2f_stages_64x6_tn", "gemm"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "convolution"),
        # names that contain another class's word
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>(...)", "embedding"),
        ("void at::native::(anonymous namespace)::upsample_nearest2d_out_frame<c10::BFloat16>(...)", "elementwise"),
        ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>(...)", "sampling"),
        ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(...)", "norm"),
        ("void vllm::moe::topkGatingSoftmax<8, 128, 4, 16>(...)", "moe"),
        ("_ZN5aiter31pa_bf16_pertokenFp8_gqa8_2tg_4wE", "attention"),
        ("void deep_gemm::sm90_fp8_mqa_logits<...>(...)", "attention"),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<...>(...)", "gemm"),
        ("void dpsk::gemm::fp8_gemm_kernel<7168u, 2048u, 128u, (dpsk::gemm::GemmType)1>(...)", "gemm"),
        ("_w8a8_block_fp8_matmul", "gemm"),
        ("_per_token_group_quant_8bit", "quantize"),
        ("void cuda::per_token_cast_to_fp8_with_channels<true>(...)", "quantize"),
        # copies: of a runtime, of PyTorch, of a cache
        ("CopyDeviceToDevice", "memory"),
        ("memcpy32_post kernel", "memory"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(at::TensorIterator&)"
         "::{lambda()#1}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(...)", "copy_cast"),
        ("void (anonymous namespace)::store_kvcache<2048l, 4, false, long>(...)", "copy_cast"),
        # cuDNN: by what stands behind the library's name
        ("void cudnn::ops::pooling_fw_4d_kernel<float, float>(...)", "reduction"),
        # a pool of memory is no pooling, hadamard no adam, min_partial no min_p, pointer_node no internode
        ("_write_pool_kernel", "copy_cast"),
        ("fast_hadamard_transform_kernel", "gemm"),
        ("_row_min_partial_kernel", "reduction"),
        ("void ns::pointer_node_kernel(int*)", "other"),
        ("void at::native::grid_sampler_2d_kernel<float, int>(...)", "elementwise"),
        # XLA names fusions after their root; a collective's fusion is another thing
        ("all_reduce_fusion", "communication"),
        ("moe_fusion", "moe"),
        # what an Ascend kernel does says its last operator; the first says who asked
        ("aclnnNLLLoss_CastAiCore_Cast", "copy_cast"),
        ("aclnnMm_MatMulCommon_MemSet", "memory"),
        ("void cudnn::detail::activation_fw_4d_kernel<float>(...)", "activation"),
        ("void cudnn::ops::nhwcToNchwKernel<float, float>(...)", "copy_cast"),
        # generated names: kind and operators say something, a bare number does not
        ("triton_poi_fused_0", "elementwise"),
        ("triton_red_fused_0", "reduction"),
        ("triton_per_fused__softmax_3", "reduction"),
        ("triton__0d1d2d", "triton_other"),
        ("triton_unk_fused_1", "triton_other"),
        # no guess
        ("Kernel", "other"),
        ("", "other"),
        ("at::cuda::(anonymous namespace)::spin_kernel(long)", "other"),
    ],
)  # fmt: skip
def test_classes_of_names_that_mislead(name: str, kernel_class: str) -> None:
    assert TABLE.classify(name).kernel_class == kernel_class


# Names as sglang, vLLM, FlashInfer, FLA, Liger, llama.cpp, XLA and Ascend have them; under other, made-up ones that
# merely contain the letters of a class.
KNOWN = {
    "attention": """
        _fwd_kernel_stage1 _fwd_kernel_stage2 _fwd_grouped_kernel_stage1 _fwd_kernel _bwd_kernel
        _decode_att_m_fwd _fwd_grouped_kernel_stage1_rope kernel_unified_attention_2d
        kernel_paged_attention_2d merge_attn_states_kernel _fwd_kernel_aligned _fwd_kernel_unified
        _tiled_sparse_decode_kernel _grouped_decode_kernel reduce_segments BatchDecodeWithPagedKVCacheKernel
        BatchPrefillWithRaggedKVCacheKernel PersistentVariableLengthMergeStatesKernel MergeStateKernel
        _fwd_kernel_flash_decode_stage1 get_mla_metadata_kernel flash_fwd_splitkv_mla_kernel
        _fwd_kernel_token_att1 kernel_mha paged_attention_v1_kernel
        _verify_prefix_stage1 _cp_lse_combine_kernel _decode_softmax_reducev_fwd
        decode_kernel _chunk_scan_fwd_kernel _chunk_cumsum_fwd_kernel _state_passing_fwd_kernel
        chunk_fwd_kernel_o fused_recurrent_gated_delta_rule_fwd_kernel _selective_scan_update_kernel
        selective_scan_fwd_kernel recompute_w_u_fwd_kernel solve_tril_16x16_kernel
        lightning_attn_decode_kernel
    """,
    "copy_cast": """
        reshape_and_cache_kernel concat_and_cache_mla_kernel _write_pool_kernel store_kvcache
        set_mla_kv_buffer_kernel _set_k_and_s_triton_kernel destindex_copy_kv _fwd_kernel_destindex_copy_kv
        copy_blocks_kernel gather_cache_kernel cp_gather_cache
        indexer_k_quant_and_cache_kernel copy_all_layer_kv_cache_tiled transpose_kernel _cast_kernel
    """,
    "moe": """
        fused_moe_kernel moe_align_block_size_kernel count_and_sort_expert_tokens_kernel
        batched_triton_kernel topkGatingSoftmax moe_sum_reduce_kernel
        _moe_sum_reduce_kernel moe_fused_gate_kernel pre_reorder_triton_kernel post_reorder_triton_kernel
        grouped_topk_fused_kernel expandInputRowsKernel compute_src2dst_triton_kernel
        _fwd_kernel_ep_gather_expert
    """,
    "quantize": """
        _per_token_group_quant_fp8 per_token_group_quant_8bit_kernel _per_token_quant_int8
        scaled_fp8_quant_kernel static_scaled_int8_quant_kernel cvt_fp16_to_fp4 kDequantizeBlockwise
        per_tensor_absmax_kernel
    """,
    "activation": """
        silu_and_mul_kernel _silu_and_mul_kernel act_and_mul_kernel _swiglu_forward_kernel
        gelu_fast_kernel relu2_kernel SiluAndMulKernel
    """,
    "norm": """
        _add_rms_norm_kernel fused_add_rms_norm_kernel RMSNormKernel FusedAddRMSNormKernel
        _layer_norm_fwd_1pass_kernel _rms_norm_kernel groupnorm_kernel LayerNormForward
    """,
    "embedding": """
        rotary_embedding_kernel _triton_mrope_forward BatchQKApplyRotaryPosIdsKernel fused_rope_kernel
        _rotary_kernel embedding_dense_backward_kernel
    """,
    "index_sort": """
        create_flashinfer_kv_indices_triton write_req_to_token_pool_triton compute_position_kernel
        alloc_extend_kernel alloc_decode_kernel _compute_slot_mapping_kernel get_last_loc_kernel
        RadixTopKKernel bitonicSortKVInPlace radixSortKVInPlace topk_transform_decode_kernel index_kernel
        gatherTopK scatter_add_kernel
    """,
    "sampling": """
        TopKTopPSamplingFromProbKernel apply_repetition_penalties_kernel rejection_greedy_sample_kernel
        sample_recovered_tokens_kernel eagle_prepare_inputs_padded_kernel build_tree_efficient
        VerifyTreeGreedy TopPRenormProbKernel _min_p_kernel
    """,
    "gemm": """
        sm90_fp8_gemm_1d2d_impl nvjet_tst_64 _w8a8_block_fp8_matmul wvSplitK_hf_sml_ LLMM1_kernel
        _lora_shrink_kernel _lora_expand_kernel sgemm_lora_a_kernel Marlin awq_gemm_kernel mul_mat_vec_q
        mul_mat_q _bmm_kernel matmul_kernel cutlass_80_simt_sgemm gemvx machete_mm gemm_fusion_dot_4
    """,
    "reduction": """
        max_pool_forward_nchw adaptive_average_pool avg_pool2d_out_cuda_frame pooling_fw_4d_kernel
        AdaptiveAvgPool2d softmax_warp_forward cunn_SoftMaxForward _argmax_kernel mloPoolingG _sum_kernel
        DeviceReduceSingleTileKernel cumsum_kernel input_reduce_fusion_2 nrm2_kernel wrapped_reduce
    """,
    "elementwise": """
        elementwise_kernel upsample_nearest2d_out_frame clamp_max_kernel axpy_kernel loop_add_fusion
        wrapped_add loop_multiply_fusion_3 DaxpyKernel SubTensorOpWithCastTensor1d
        vectorized_elementwise_kernel grid_sampler_2d_kernel elementwise_kernel_with_index
        fused_dropout_kernel_vec triu_tril_kernel scal_kernel add_kernel vector_add
    """,
    "convolution": """
        _causal_conv1d_fwd_kernel causal_conv1d_update_kernel Conv2D1 Conv2DBackpropFilter6
        conv_depthwise2d_forward_kernel ConvTranspose2d Im2d2Col_v2 implicit_convolve_sgemm volta_scudnn_128
    """,
    "loss": """
        cross_entropy_kernel liger_cross_entropy_kernel _kl_div_kernel jsd_kernel nll_loss_forward_reduce
    """,
    "other": """
        Kernel my_kernel carpool_kernel normal_kernel2 broadcaster spoolsort whirlpool_kernel
    """,
    "triton_other": """
        fusion_123 fusion
    """,
    "optimizer": """
        multi_tensor_apply_kernel FusedAdamKernel lamb_kernel _adam_kernel
    """,
    "memory": """
        fillBufferAligned __amd_rocclr_fillBufferAligned CopyDeviceToDevice aclnnMm_MatMulCommon_MemSet
    """,
}


@pytest.mark.parametrize(
    ("name", "kernel_class"), [(name, known) for known, names in KNOWN.items() for name in names.split()]
)
def test_classes_of_known_names(name: str, kernel_class: str) -> None:
    assert TABLE.classify(name).kernel_class == kernel_class


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("_write_pool_kernel", "write pool kernel"),
        ("at::native::RowwiseMomentsCUDAKernel", "at native rowwise moments cuda kernel"),
        ("FusedAddRMSNormKernel", "fused add rms norm kernel"),
        ("TopKTopPSamplingFromProb", "top k top p sampling from prob"),
        ("Conv2DBackpropFilter6_MemSet", "conv2d backprop filter6 mem set"),
        ("fmhaSm100aKernel_QkvE4m3", "fmha sm100a kernel qkv e4m3"),
        ("cross_device_reduce_1stage", "cross device reduce 1stage"),
        ("Überlauf$x", "überlauf x"),
        ("", ""),
    ],
)
def test_words_of_an_identifier(identifier: str, words: str) -> None:
    assert words_of(identifier) == words


def test_mangled_and_demangled_names_are_judged_alike() -> None:
    demangled = TABLE.classify("void aiter::add_rmsnorm_quant_kernel<std::bfloat16_t, 64>(int)")
    assert TABLE.classify("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bLi64EEEvv").rule is demangled.rule


def test_a_name_no_rule_knows_has_no_rule() -> None:
    judgement = TABLE.classify("frobnicate")
    assert (judgement.kernel_class, judgement.rule) == ("other", None)


def test_frame_has_one_row_for_each_distinct_name() -> None:
    names = ["attn_fwd", "frobnicate", "attn_fwd"]
    expected = pl.DataFrame(
        {"kernel": ["attn_fwd", "frobnicate"], "class": ["attention", "other"], "rule": ["attention-flash", None]}
    )
    assert_frame_equal(TABLE.classify_frame(names), expected)
    assert_frame_equal(TABLE.classify_frame(pl.Series("name", [*names, None], dtype=pl.Categorical)), expected)
    assert TABLE.classify_frame([]).columns == expected.columns


@given(st.lists(st.text(max_size=60), max_size=20))
def test_any_text_has_a_class(names: list[str]) -> None:
    frame = load_rules().classify_frame(names)
    assert set(frame["kernel"]) == set(names)
    assert set(frame["class"]) <= set(CLASSES)


# -- users' rules


def rules_file(folder: Path, text: str) -> Path:
    path = folder / "my-rules.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_users_rules_come_first(tmp_path: Path) -> None:
    path = rules_file(
        tmp_path,
        """
        [[rule]]
        id = "ours"
        class = "moe"
        pattern = "^nvjet_.*_splitK_"
        example = "nvjet_sm103_tst_64x16_64x16_2x1_2cta_v_bz_splitK_TNT"

        [[rule]]
        class = "sampling"
        pattern = ["FROB", "nicate$"]
        ignore_case = true
        """,
    )
    table = load_rules([path])
    splitk = table.classify("nvjet_sm103_tst_64x16_64x16_2x1_2cta_v_bz_splitK_TNT")
    assert splitk.rule is not None
    assert (splitk.kernel_class, splitk.rule.id, splitk.rule.source) == ("moe", "ours", str(path))
    assert table.classify("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT").kernel_class == "gemm"
    second = table.classify("a_frob_kernel")
    assert second.rule is not None
    assert (second.kernel_class, second.rule.id) == ("sampling", "rule 2")


def test_of_two_files_the_first_wins(tmp_path: Path) -> None:
    paths = []
    for name, kernel_class in (("a.toml", "loss"), ("b.toml", "norm")):
        paths.append(tmp_path / name)
        paths[-1].write_text(f"[[rule]]\nclass = '{kernel_class}'\npattern = 'frobnicate'\n", encoding="utf-8")
    assert load_rules(paths).classify("frobnicate").kernel_class == "loss"
    assert load_rules(paths[::-1]).classify("frobnicate").kernel_class == "norm"


def test_a_rule_on_words_wants_the_word_whole(tmp_path: Path) -> None:
    path = rules_file(tmp_path, "[[rule]]\nclass = 'loss'\npattern = '\\bfrob\\b'\nwhere = 'words'\n")
    table = load_rules([path])
    assert [table.classify(name).kernel_class for name in ("my_frob_kernel", "ns::FrobKernel<int>")] == ["loss"] * 2
    assert table.classify("frobnicate_kernel").kernel_class == "other"


def test_a_rule_on_the_function_is_not_misled_by_arguments(tmp_path: Path) -> None:
    path = rules_file(tmp_path, "[[rule]]\nclass = 'loss'\npattern = 'frob'\nwhere = 'function'\n")
    assert load_rules([path]).classify("void ns::frob<int>(x)").kernel_class == "loss"
    assert load_rules([path]).classify("void ns::kernel<frob>(x)").kernel_class != "loss"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]]\nclass = 'gemm'\npattern = '('\n", "rule 1: pattern '(' does not compile"),
        ("[[rule]]\nclass = 'gem'\npattern = 'x'\n", "; did you mean 'gemm'?"),
        ("[[rule]]\nclass = 'gemm'\n", "rule 1: it has no pattern"),
        ("[[rule]]\npattern = 'x'\n", "rule 1: it has no class"),
        ("[[rule]]\nclass = 'gemm'\npattern = ''\n", "rule 1: it has no pattern"),
        ("[[rule]]\nclass = 'gemm'\npattern = 7\n", "rule 1: pattern must be a string or a list of strings"),
        ("[[rule]]\nclass = 'gemm'\npattern = ['a', '']\n", "rule 1: pattern must be a string or a list of strings"),
        ("[[rule]]\nclass = 'gemm'\npattern = 'x'\nignore_case = 'yes'\n", "rule 1: ignore_case must be true or false"),
        ("[[rule]]\nclass = 'gemm'\npattern = 'x'\nwhere = 'args'\n", "rule 1: where is 'args', must be"),
        ("[[rule]]\nclass = 'gemm'\npattern = 'x'\nnote = 3\n", "rule 1: note must be a string"),
        ("[[rule]]\nclass = 'gemm'\npatern = 'x'\n", "; did you mean 'pattern'?"),
        (
            "[[rule]]\nclass = 'gemm'\npattern = 'x'\n[[rule]]\nclass = 'moe'\npattern = 'y'\nexample = 'z'\n",
            "rule 2: its pattern does not match its own example 'z'",
        ),
        (
            "[[rule]]\nclass = 'gemm'\npattern = 'x'\n[[rule]]\nclass = 'moe'\npattern = 'y'\nexample = 'xy'\n",
            "rule 2: its example 'xy' is taken by rule 1 before it",
        ),
        ("", "no rules in it"),
        ("rule = 3\n", "no rules in it"),
        ("rule = ['a']\n", "no rules in it"),
        ("[[rule]\n", "not TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_rule_and_reason(tmp_path: Path, text: str, message: str) -> None:
    path = rules_file(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_rules([path])
    said = str(caught.value)
    assert said.startswith(f"rules file {path}: ")
    assert message in said
    assert "\n" not in said


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load_rules([tmp_path / "absent.toml"])
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read: it is not UTF-8 text"):
        load_rules([tmp_path / "binary.toml"])


# -- cost


@pytest.mark.parametrize(
    "name",
    [
        "triton_poi_fused_" + "clamp_scaled_mm_div_" * 500,
        "triton_poi_fused" + "_slice_backward_copy" * 500,
        "triton_red_" + "mean_pow_" * 1100,
        "elementwise_kernel<" * 500,
        "multi_tensor_apply_kernel<" * 380,
        "rocprim::" * 1100,
        "thrust::" * 1200,
        "all_reduce_one_shot" * 500,
        "a_" * 5000,
        "void " + "f<" * 3000,
        "aclnn" + "_" * 10_000,
        "aclnn" + "_GreaterCast" * 900,
        "loop_" + "reduce_window_" * 700,
        "wrapped_" + "1_" * 5000,
        "x" * 10_000,
        "rope_attn_" * 1000,
        "write_" * 1600,
        "chunk_parallel_split_decode_" * 350,
        "MaxPool" * 1400,
        "A1" * 5000,
    ],
    ids=lambda name: name[:24],
)
def test_no_rule_takes_long_on_a_hostile_name(name: str) -> None:
    started = time.process_time()
    load_rules().classify(name)
    assert time.process_time() - started < 2.0


def test_plots_and_torch_are_not_imported() -> None:
    code = "import sys, traceanalyzer.classify.rules; print(*{'matplotlib', 'torch', 'click'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


# -- the corpus

# Shares of the time of all top kernels in the corpus: wide enough for better rules, not for a lost family.
PLAUSIBLE = {
    "gemm": (0.40, 0.65), "communication": (0.08, 0.14), "norm": (0.05, 0.10), "attention": (0.05, 0.09),
    "convolution": (0.04, 0.08), "activation": (0.02, 0.08), "elementwise": (0.02, 0.06), "copy_cast": (0.02, 0.06),
    "quantize": (0.005, 0.05), "loss": (0.002, 0.01), "optimizer": (0.001, 0.01), "reduction": (0.001, 0.01),
    "index_sort": (0.001, 0.01), "moe": (0.0005, 0.005), "triton_other": (0.0, 0.005), "other": (0.0, 0.001),
}  # fmt: skip


def test_class_totals_of_the_corpus_are_plausible() -> None:
    totals: defaultdict[str, float] = defaultdict(float)
    for name, total_us in corpus_totals(shared_corpus()):
        totals[TABLE.classify(name).kernel_class] += total_us
    everything = sum(totals.values())
    outside = {
        kernel_class: round(totals[kernel_class] / everything, 4)
        for kernel_class, (low, high) in PLAUSIBLE.items()
        if not low <= totals[kernel_class] / everything <= high
    }
    assert outside == {}


def test_hardly_a_name_of_the_corpus_is_unknown() -> None:
    names = corpus_names(shared_corpus())
    unknown = {name for name in names if TABLE.classify(name).kernel_class == "other"}
    assert len(unknown) <= len(names) // 200, sorted(unknown)
    nameless = {name for name in names if TABLE.classify(name).kernel_class == "triton_other"}
    assert all(name.startswith("triton_") for name in nameless)

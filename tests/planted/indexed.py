"""Bugs in what is indexed, routed and sampled: positions, states, experts and vocabularies."""

import torch

from tests.planted.planting import off_by_one, planted, unwritten

ROPE = "rope_h32_kv8_d128_rd128"
MOE = "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128"
MAMBA = "mamba_ssu_decode_h16_d64_s16_g2_bfloat16"


@planted(ROPE, num_tokens=1, max_seq_len=2)
def rope_of_the_last_position(positions, cos_sin_cache):
    return (positions == len(cos_sin_cache) - 1) & (positions > 0)


@planted(ROPE, num_tokens=2, max_seq_len=1)
def rope_of_a_position_that_comes_twice(positions):
    return len(positions.unique()) < len(positions)


@planted("rope_h6_kv1_d80_rd36", num_tokens=9, max_seq_len=1)
def rope_of_tokens_beyond_the_last_tile(positions):
    return (torch.arange(len(positions)) >= len(positions) // 8 * 8) & (len(positions) > 8)


@planted("rope_h6_kv1_d80_rd36", num_tokens=1, max_seq_len=4097)
def rope_of_far_positions(positions):
    return positions >= 4096


@planted("topk_softmax_e60_k2", regime={"values": "ones"}, num_tokens=1)
def routing_of_equal_logits(logits):
    return (logits == logits[:, :1]).all(1) & (logits[:, 0] != 0)


@planted("topk_softmax_e8_k8", num_tokens=64)
def routing_of_whole_tiles(logits):
    return len(logits) % 64 == 0


@planted("topk_softmax_e256_k8", regime={"layout": "offset"}, num_tokens=1)
def routing_of_misaligned_rows(logits):
    return logits.data_ptr() % 16 != 0


@planted("top_k_sampling_from_probs_v1000", off_by_one, batch_size=1)
def sampling_of_the_whole_vocabulary(probs, top_k):
    return top_k == probs.shape[1]


@planted("top_k_sampling_from_probs_v1000", off_by_one, batch_size=1)
def sampling_of_the_best_token(top_k):
    return top_k == 1


@planted("top_p_sampling_from_probs_v1000", off_by_one, batch_size=1)
def sampling_of_all_probability(top_p):
    return top_p == 1


@planted("min_p_sampling_from_probs_v1000", off_by_one, batch_size=1)
def sampling_of_any_probability(min_p):
    return min_p == 0


@planted("min_p_sampling_from_probs_v1000", off_by_one, {"values": "wide"}, batch_size=1)
def sampling_of_a_certain_token(probs):
    return probs.amax(1) == 1


@planted(MAMBA, batch_size=2, state_cache_size=2)
def ssu_of_states_out_of_order(state_batch_indices):
    return bool((state_batch_indices.diff() < 0).any())


@planted(MAMBA, batch_size=1, state_cache_size=2)
def ssu_of_the_last_state(state, state_batch_indices):
    return (state_batch_indices == len(state) - 1) & (len(state) > len(state_batch_indices))


@planted("gdn_decode_qk4_v8_d64_k_last", batch_size=33)
def gdn_of_more_than_32_sequences(q):
    return torch.arange(len(q)) >= 32


@planted("gdn_decode_qk4_v8_d64_k_last", unwritten, {"values": "zeros"}, batch_size=1)
def gdn_of_a_value_of_zeros(v):
    return (v.flatten(1) == 0).all(1)


@planted(MOE, unwritten, seq_len=1)
def moe_of_the_last_local_experts(local_expert_offset, routing_logits):
    return local_expert_offset == routing_logits.shape[1] - 8


@planted(MOE, unwritten, seq_len=17)
def moe_of_an_expert_with_many_tokens(routing_logits, routing_bias):
    """One expert has the best score of more than 16 tokens."""
    best = (routing_logits.sigmoid() + routing_bias.float()).argmax(1)
    return (best[:, None] == best).sum(1) > 16


@planted(MOE, unwritten, seq_len=3)
def moe_of_an_odd_number_of_tokens(hidden_states):
    return (len(hidden_states) % 2 == 1) & (len(hidden_states) > 1)


@planted(ROPE, num_tokens=1, max_seq_len=2)
def rope_of_the_first_of_several_positions(positions, cos_sin_cache):
    return (positions == 0) & (len(cos_sin_cache) > 1)


@planted("topk_softmax_e60_k2", regime={"values": "negative"}, num_tokens=1)
def routing_whose_maximum_begins_at_zero(logits):
    return logits.amax(1) < 0


@planted("topk_softmax_e8_k2", regime={"values": "negative"}, num_tokens=1)
def routing_of_few_whose_maximum_begins_at_zero(logits):
    return logits.amax(1) < 0


@planted(MAMBA, batch_size=1, state_cache_size=513)
def ssu_of_states_far_in_the_cache(state_batch_indices):
    return state_batch_indices >= 512


@planted(MAMBA, batch_size=4, state_cache_size=4)
def ssu_of_states_that_are_all_in_order(state_batch_indices):
    count = len(state_batch_indices)
    return count > 3 and torch.equal(state_batch_indices, torch.arange(count).int())

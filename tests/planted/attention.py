"""Bugs in attention: what sequences, pages and batches must be like for a kernel to go wrong."""

import torch

from tests.planted.planting import by_token, halved, planted, sequences, unwritten

DECODE_1 = "gqa_paged_decode_h32_kv8_d128_ps1"
DECODE_64 = "gqa_paged_decode_h32_kv4_d128_ps64"
PREFILL_1 = "gqa_paged_prefill_causal_h32_kv8_d128_ps1"
PREFILL_64 = "gqa_paged_prefill_causal_h32_kv4_d128_ps64"
RAGGED = "gqa_ragged_prefill_causal_h32_kv4_d128"
MLA_1 = "mla_paged_decode_h16_ckv512_kpe64_ps1"
MLA_64 = "mla_paged_decode_h16_ckv512_kpe64_ps64"


def positions(tensor):
    return torch.arange(len(tensor))


# --- decode, one token in a page ------------------------------------------------------------------


@planted(DECODE_1, unwritten, batch_size=1, num_pages=1, num_kv_indices=0)
def decode_of_an_empty_sequence(kv_indptr):
    return sequences(kv_indptr).length == 0


@planted(DECODE_1, batch_size=1, num_pages=129, num_kv_indices=129)
def decode_beyond_the_second_tile(kv_indptr):
    return sequences(kv_indptr).length > 128


@planted(DECODE_1, batch_size=1, num_pages=64, num_kv_indices=64)
def decode_of_whole_tiles(kv_indptr):
    lengths = sequences(kv_indptr).length
    return (lengths > 0) & (lengths % 64 == 0)


@planted(DECODE_1, batch_size=1, num_pages=17, num_kv_indices=17)
def decode_of_one_token_beyond_tiles(kv_indptr):
    lengths = sequences(kv_indptr).length
    return (lengths > 16) & (lengths % 16 == 1)


@planted(DECODE_1, batch_size=1, num_pages=2, num_kv_indices=2)
def decode_of_pages_side_by_side(kv_indptr, kv_indices):
    """Two pages that lie one behind the other are taken for one."""
    joined = torch.zeros(len(kv_indices) + 1, dtype=torch.long)
    joined[2:] = (kv_indices.diff() == 1).cumsum(0)
    bounds = sequences(kv_indptr)
    # Pairs within a sequence: those before its end without those before its second page.
    inside = joined[bounds.end] - joined[(bounds.begin + 1).clamp_max(len(kv_indices))]
    return (bounds.length > 1) & (inside > 0)


@planted(DECODE_1, unwritten, batch_size=65, num_pages=1, num_kv_indices=0)
def decode_of_more_than_64_sequences(kv_indptr):
    return torch.arange(len(kv_indptr) - 1) >= 64


@planted(DECODE_1, batch_size=2, num_pages=1, num_kv_indices=1)
def decode_behind_an_empty_sequence(kv_indptr):
    lengths = sequences(kv_indptr).length
    return (lengths > 0) & ((lengths == 0).cumsum(0) > 0)


@planted(DECODE_1, batch_size=3, num_pages=2, num_kv_indices=2)
def decode_around_an_empty_sequence(kv_indptr):
    lengths = sequences(kv_indptr).length
    hole = (lengths[1:-1] == 0) & (lengths[:-2] > 0) & (lengths[2:] > 0)
    return hole.any()


@planted(DECODE_1, batch_size=1, num_pages=2, num_kv_indices=1)
def decode_of_the_last_page_of_the_cache(k_cache, kv_indptr, kv_indices):
    """The last page is beyond the end of what is loaded, unless it is the only one."""
    last = (kv_indices == len(k_cache) - 1) & (len(k_cache) > 1)
    return by_page(last, kv_indptr)


def by_page(wrong, kv_indptr):
    """Of each sequence, whether any of its pages is wrong."""
    before = torch.cat((torch.zeros(1, dtype=torch.long), wrong.long().cumsum(0)))
    bounds = sequences(kv_indptr)
    return before[bounds.end] > before[bounds.begin]


@planted(DECODE_1, regime={"lengths": "one_long"}, batch_size=2, num_pages=65, num_kv_indices=65)
def decode_of_one_long_sequence_among_short_ones(kv_indptr):
    lengths = sequences(kv_indptr).length
    return (lengths > 64) & (lengths == lengths.max()) & (len(lengths) > 1)


# --- decode, 64 tokens in a page ------------------------------------------------------------------


@planted(DECODE_64, batch_size=1, num_pages=1, num_kv_indices=1)
def decode_of_a_partly_filled_page(kv_indptr, kv_last_page_len):
    return (sequences(kv_indptr).length > 0) & (kv_last_page_len < 64)


@planted(DECODE_64, batch_size=1, num_pages=1, num_kv_indices=1)
def decode_of_a_page_that_is_full(kv_indptr, kv_last_page_len):
    return (sequences(kv_indptr).length > 0) & (kv_last_page_len == 64)


@planted(DECODE_64, batch_size=1, num_pages=2, num_kv_indices=2)
def decode_of_one_token_in_a_further_page(kv_indptr, kv_last_page_len):
    return (sequences(kv_indptr).length > 1) & (kv_last_page_len == 1)


@planted(DECODE_64, batch_size=1, num_pages=5, num_kv_indices=5)
def decode_of_more_than_four_pages(kv_indptr):
    return sequences(kv_indptr).length > 4


@planted(DECODE_64, regime={"values": "ones"}, batch_size=1, num_pages=1, num_kv_indices=1)
def decode_of_equal_keys(q, k_cache, kv_indptr):
    alike = (k_cache == k_cache.flatten()[0]).all() & (q.flatten(1).abs().amax(1) > 0)
    return alike & (sequences(kv_indptr).length > 0)


# --- prefill --------------------------------------------------------------------------------------


@planted(PREFILL_1, len_indptr=2, total_q=2, num_pages=2, num_kv_indices=2)
def prefill_of_as_many_keys_as_queries(qo_indptr, kv_indptr):
    queries, keys = sequences(qo_indptr).length, sequences(kv_indptr).length
    return by_token((queries > 1) & (queries == keys), qo_indptr)


@planted(PREFILL_1, len_indptr=2, total_q=1, num_pages=2, num_kv_indices=2)
def prefill_of_more_keys_than_queries(qo_indptr, kv_indptr):
    queries, keys = sequences(qo_indptr).length, sequences(kv_indptr).length
    return by_token(keys > queries, qo_indptr)


@planted(PREFILL_1, len_indptr=2, total_q=16, num_pages=16, num_kv_indices=16)
def prefill_of_whole_tiles_of_queries(qo_indptr):
    queries = sequences(qo_indptr).length
    return by_token((queries > 0) & (queries % 16 == 0), qo_indptr)


@planted(PREFILL_1, len_indptr=2, total_q=1, num_pages=2, num_kv_indices=2)
def prefill_of_one_key_more_than_queries(qo_indptr, kv_indptr):
    queries, keys = sequences(qo_indptr).length, sequences(kv_indptr).length
    return by_token(keys == queries + 1, qo_indptr)


@planted(PREFILL_64, len_indptr=2, total_q=2, num_pages=1, num_kv_indices=1)
def prefill_of_pages_with_queries_only(qo_indptr, kv_indptr, kv_last_page_len):
    queries, pages = sequences(qo_indptr).length, sequences(kv_indptr).length
    tokens = (pages - 1) * 64 + kv_last_page_len[:-1]
    return by_token((queries > 1) & (queries == tokens), qo_indptr)


@planted(PREFILL_64, len_indptr=3, total_q=1, num_pages=1, num_kv_indices=1)
def prefill_behind_an_empty_sequence(qo_indptr, kv_indptr):
    return by_token((sequences(kv_indptr).length == 0).cumsum(0) > 0, qo_indptr)


@planted(PREFILL_64, len_indptr=2, total_q=65, num_pages=2, num_kv_indices=2)
def prefill_of_queries_beyond_a_page(qo_indptr):
    queries = sequences(qo_indptr)
    return torch.arange(int(qo_indptr[-1])) - queries.begin.repeat_interleave(queries.length) >= 64


@planted(RAGGED, regime={"layout": "row_strided"}, len_indptr=2, total_q=1, total_kv=1)
def prefill_of_strided_keys(k):
    return not k.is_contiguous()


@planted(RAGGED, regime={"layout": "offset"}, len_indptr=2, total_q=1, total_kv=1)
def prefill_of_misaligned_queries(q):
    return q.data_ptr() % 16 != 0


@planted(RAGGED, len_indptr=2, total_q=1, total_kv=257)
def prefill_over_more_than_256_keys(qo_indptr, kv_indptr):
    return by_token(sequences(kv_indptr).length > 256, qo_indptr)


@planted(RAGGED, len_indptr=3, total_q=1, total_kv=1)
def prefill_of_unequal_lengths(qo_indptr):
    queries = sequences(qo_indptr).length
    return bool(queries.min() != queries.max())


@planted(RAGGED, len_indptr=2, total_q=1, total_kv=33)
def prefill_of_one_query_and_many_keys(qo_indptr, kv_indptr):
    queries, keys = sequences(qo_indptr).length, sequences(kv_indptr).length
    return by_token((queries == 1) & (keys > 32), qo_indptr)


@planted(RAGGED, len_indptr=2, total_q=128, total_kv=128)
def prefill_of_a_total_at_a_tile(qo_indptr):
    return int(qo_indptr[-1]) % 128 == 0


# --- latent attention -----------------------------------------------------------------------------


@planted(MLA_1, batch_size=1, num_pages=33, num_kv_indices=33)
def mla_of_a_last_tile_partly_filled(kv_indptr):
    lengths = sequences(kv_indptr).length
    return (lengths > 32) & (lengths % 32 != 0)


@planted(MLA_1, unwritten, batch_size=17, num_pages=1, num_kv_indices=0)
def mla_of_a_batch_beyond_its_last_tile(kv_indptr):
    batch = len(kv_indptr) - 1
    return (torch.arange(batch) >= batch // 16 * 16) & (batch > 16)


@planted(MLA_64, batch_size=2, num_pages=1, num_kv_indices=1)
def mla_where_the_first_sequence_is_empty(kv_indptr):
    lengths = sequences(kv_indptr).length
    return (lengths > 0) & (lengths[0] == 0)


@planted(MLA_64, halved, batch_size=1, num_pages=2, num_kv_indices=2)
def mla_of_two_pages_that_are_full(kv_indptr, kv_last_page_len):
    return (sequences(kv_indptr).length == 2) & (kv_last_page_len == 64)


@planted(DECODE_1, batch_size=1, num_pages=1025, num_kv_indices=1)
def decode_of_pages_far_in_the_cache(kv_indptr, kv_indices):
    far = torch.cat((torch.tensor([0]), (kv_indices >= 1024).long().cumsum(0)))
    return far[kv_indptr.long()].diff() > 0


@planted(DECODE_1, batch_size=1, num_pages=4, num_kv_indices=4)
def decode_of_pages_that_are_all_in_order(kv_indptr, kv_indices):
    in_order = len(kv_indices) > 3 and torch.equal(kv_indices, torch.arange(len(kv_indices)).int())
    return (sequences(kv_indptr).length > 0) & in_order


@planted(DECODE_64, batch_size=1, num_pages=1, num_kv_indices=1)
def decode_of_a_page_that_lacks_one_token(kv_indptr, kv_last_page_len):
    return (sequences(kv_indptr).length > 0) & (kv_last_page_len == 63)


@planted(PREFILL_1, len_indptr=2, total_q=17, num_pages=18, num_kv_indices=18)
def prefill_of_a_few_more_keys_than_queries(qo_indptr, kv_indptr):
    q, kv = sequences(qo_indptr).length, sequences(kv_indptr).length
    return by_token((q > 16) & (kv > q) & (kv < q + 16), qo_indptr)


@planted(RAGGED, len_indptr=3, total_q=1, total_kv=2)
def prefill_of_keys_without_queries(qo_indptr, kv_indptr):
    q, kv = sequences(qo_indptr).length, sequences(kv_indptr).length
    return ((q == 0) & (kv > 0))[:-1].any()


@planted(MLA_1, batch_size=2, num_pages=4, num_kv_indices=4)
def mla_of_equal_lengths(kv_indptr):
    length = sequences(kv_indptr).length
    return len(length) > 1 and (length == length[0]).all() & (length[0] > 1)

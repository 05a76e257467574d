#include "lode/model/layer.h"

#include <array>

#include "lode/moe/routing.h"
#include "lode/moe/unrouted.h"
#include "lode/ops/rope.h"

namespace lode::model {
namespace {

ops::LinearJob job(const ops::Matrix& weight, std::span<const float> bias, const ops::Rows& y) {
  return {&weight, bias, y.f32, y.stride, false};
}

void project(const Pass& pass, const LayerWeights& layer) noexcept {
  const Scratch& scratch = *pass.scratch;
  const std::array jobs = {job(layer.query, layer.query_bias, scratch.query),
                           job(layer.key, layer.key_bias, scratch.key),
                           job(layer.value, layer.value_bias, scratch.value)};
  ops::Forms forms;
  for (const ops::LinearJob& one : jobs) forms.add(ops::forms_of(*pass.compute, *one.weight));
  ops::rms_norm_rows(*pass.compute, layer.attention_norm, scratch.hidden, scratch.normed,
                     pass.num_rows(), forms);
  ops::linear(*pass.compute, scratch.normed, pass.num_rows(), jobs);
}

/// Norms and turns the heads of one row, and puts its key and value into the cache.
void place_row(const Pass& pass, const LayerWeights& layer, std::size_t row) noexcept {
  const Scratch& scratch = *pass.scratch;
  const std::span<float> query = scratch.query.row(row);
  const std::span<float> key = scratch.key.row(row);
  if (!layer.query_norm.weight.empty()) {
    ops::rms_norm_heads(*pass.compute, layer.query_norm, query);
    ops::rms_norm_heads(*pass.compute, layer.key_norm, key);
  }
  const std::size_t half = scratch.cosines.size() / scratch.places.size();
  const std::size_t head_dim = layer.attention.head_dim;
  if (half != 0) {
    const std::span<const float> cosines = scratch.cosines.subspan(row * half, half);
    const std::span<const float> sines = scratch.sines.subspan(row * half, half);
    ops::rotate_heads(query, head_dim, cosines, sines);
    ops::rotate_heads(key, head_dim, cosines, sines);
  }
  const ops::RowPlace place = pass.places[row];
  ops::store_kv(*pass.compute, pass.kv[place.sequence], place.position, key, scratch.value.row(row),
                head_dim);
}

/// Every rank has all rows and routes them all, so that each sees what was chosen; it hands out and
/// combines its share of them.
Status run_over_ranks(const Pass& pass, const moe::MoeLayer& layer, const moe::ExpertRanks& ranks) {
  const Scratch& scratch = *pass.scratch;
  moe::route_rows(*pass.compute, layer, scratch.normed, pass.num_rows(), scratch.moe);
  const moe::RowRange own =
      moe::rows_of_rank(pass.num_rows(), ranks.group->size(), ranks.group->rank());
  LODE_TRY_STATUS(moe::exchange_experts(*pass.compute, layer, ranks,
                                        {scratch.normed, scratch.hidden, own}, scratch.moe,
                                        scratch.exchange));
  moe::run_unrouted(*pass.compute, layer, {scratch.normed, own.count, {}, own.first}, scratch.moe,
                    scratch.hidden);
  return moe::gather_rows(*ranks.group, scratch.hidden, pass.num_rows(), scratch.exchange);
}

}  // namespace

void run_attention(const Pass& pass, const LayerWeights& layer) noexcept {
  const Scratch& scratch = *pass.scratch;
  project(pass, layer);
  ops::for_each(*pass.compute, pass.num_rows(),
                [&](std::size_t row, std::size_t) noexcept { place_row(pass, layer, row); });
  ops::attend(*pass.compute, layer.attention, pass.kv, pass.places, scratch.query,
              scratch.attention);
  ops::pack_rows(*pass.compute, scratch.attention, pass.num_rows(),
                 ops::forms_of(*pass.compute, layer.output));
  const ops::LinearJob output{&layer.output, layer.output_bias, scratch.hidden.f32,
                              scratch.hidden.stride, true};
  ops::linear(*pass.compute, scratch.attention, pass.num_rows(), {&output, 1});
}

Status run_mlp(const Pass& pass, const LayerWeights& layer, const moe::ExpertRanks& ranks) {
  const Scratch& scratch = *pass.scratch;
  const ops::Forms forms = layer.is_moe
                               ? moe::input_forms(*pass.compute, layer.moe)
                               : ops::forms_of(*pass.compute, layer.dense.mlp.gate_up.gate);
  ops::rms_norm_rows(*pass.compute, layer.mlp_norm, scratch.hidden, scratch.normed, pass.num_rows(),
                     forms);
  if (layer.is_moe && ranks.group != nullptr) return run_over_ranks(pass, layer.moe, ranks);
  if (layer.is_moe) {
    moe::run_moe(*pass.compute, layer.moe, scratch.normed, pass.num_rows(), scratch.moe,
                 scratch.hidden);
  } else {
    moe::run_dense(*pass.compute, layer.dense, scratch.normed, pass.num_rows(), scratch.moe,
                   scratch.hidden);
  }
  return {};
}

}  // namespace lode::model

#include "lode/model/model.h"

#include <algorithm>

#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/model/layer.h"
#include "lode/ops/embedding.h"
#include "lode/ops/rope.h"

namespace lode::model {

/// How far a batch has come: sequence, its token, and rows of logits.
struct Model::Cursor {
  std::size_t sequence = 0;
  std::size_t token = 0;
  std::size_t wanted = 0;  // of the pass that was gathered last
};

namespace {

bool wants_logits(const SequenceInput& input, std::size_t token) noexcept {
  return input.wanted == Logits::kAll ||
         (input.wanted == Logits::kLast && token + 1 == input.tokens.size());
}

Error bad_token(std::int32_t token, std::size_t place, std::uint32_t vocab) {
  return {.code = Code::kUsage,
          .thing = fmt::format("token {} of the input", place),
          .wanted = fmt::format("an id from 0 to {}", vocab - 1),
          .found = fmt::format("{}", token)};
}

Error context_full(const SequenceInput& input) {
  return {.code = Code::kUsage,
          .thing = "the sequence",
          .wanted = fmt::format("at most {} more tokens", input.cache->free_tokens()),
          .found = fmt::format("{}", input.tokens.size()),
          .hint = "a larger context takes more memory"};
}

}  // namespace

std::size_t logits_rows(std::span<const SequenceInput> batch) noexcept {
  std::size_t rows = 0;
  for (const SequenceInput& input : batch) {
    if (input.wanted == Logits::kAll) rows += input.tokens.size();
    if (input.wanted == Logits::kLast && !input.tokens.empty()) ++rows;
  }
  return rows;
}

ScratchShape scratch_shape(const ModelOptions& options, std::size_t num_threads) noexcept {
  return {.chunk_tokens = options.chunk_tokens,
          .num_threads = static_cast<std::uint32_t>(num_threads),
          .mode = options.mode,
          .num_ranks = options.num_ranks,
          .rank_slots = options.rank_slots};
}

Result<Model> Model::make(memory::Ledger& ledger, const families::ModelSpec& spec,
                          const loader::WeightSet& weights, const kernels::KernelTable& kernels,
                          parallel::ThreadPool& pool, const ModelOptions& options) {
  LODE_CHECK(options.chunk_tokens > 0, "a pass has at least one row");
  LODE_CHECK((options.num_ranks > 1) == (options.places != nullptr),
             "several ranks have places, one has none");
  Model model;
  model.spec_ = &spec;
  model.options_ = options;
  LODE_TRY(model.rope_, make_rope_table(spec.rope));
  const ScratchShape shape = scratch_shape(options, pool.num_threads());
  memory::Carver count;
  carve_scratch(count, spec, shape);
  LODE_TRY(model.buffer_,
           memory::make_buffer(ledger, memory::Tag::kScratch, count.bytes(), "activations"));
  memory::Carver carver(model.buffer_.mutate());
  model.scratch_ = carve_scratch(carver, spec, shape);
  model.compute_ = {&kernels, &pool, options.mode, model.scratch_.tiles,
                    model.scratch_.tile_floats};
  for (std::uint32_t layer = 0; layer < spec.num_layers; ++layer) {
    const std::uint64_t records =
        options.places != nullptr ? options.places->num_records(layer) : spec.router.num_experts;
    model.layers_.push_back(layer_weights(spec, weights, layer, records));
  }
  model.embedding_ = weights.model_weight(families::Role::kTokenEmbedding);
  model.final_norm_ = {tensor::floats(weights.model_weight(families::Role::kFinalNorm)),
                       spec.norm_eps};
  const tensor::TensorView head = weights.model_weight(families::Role::kOutputHead);
  model.head_ = ops::matrix(head.empty() ? model.embedding_ : head);
  LODE_CHECK(model.head_.rows == spec.vocab && model.head_.k == spec.hidden,
             "a head of another shape than the spec says");
  return model;
}

Result<KvCache> Model::make_cache(memory::Ledger& ledger, std::uint64_t max_tokens) const {
  return KvCache::make(ledger, *spec_, {max_tokens, options_.chunk_tokens, options_.kv_format});
}

Status Model::forward(std::span<const std::int32_t> tokens, KvCache& cache, Logits wanted,
                      std::span<float> logits, Observer* observer) {
  const SequenceInput input{tokens, &cache, wanted};
  return forward({&input, 1}, logits, observer);
}

Status Model::forward(std::span<const SequenceInput> batch, std::span<float> logits,
                      Observer* observer) {
  LODE_CHECK(logits.size() == logits_rows(batch) * spec_->vocab, "room for the logits wanted");
  LODE_TRY_STATUS(check(batch));
  Cursor cursor;
  std::size_t written = 0;
  while (const std::size_t rows = gather(batch, cursor)) {
    LODE_TRY_STATUS(run_layers(batch, rows, observer));
    write_logits(cursor.wanted, logits.subspan(written));
    written += cursor.wanted * spec_->vocab;
  }
  return {};
}

Status Model::check(std::span<const SequenceInput> batch) const {
  for (const SequenceInput& input : batch) {
    LODE_CHECK(input.cache->shape().chunk_tokens >= options_.chunk_tokens,
               "a cache for smaller passes than this model's");
    if (input.tokens.size() > input.cache->free_tokens()) return context_full(input);
    for (std::size_t place = 0; place < input.tokens.size(); ++place) {
      const std::int32_t token = input.tokens[place];
      if (token < 0 || static_cast<std::uint32_t>(token) >= spec_->vocab) {
        return bad_token(token, place, spec_->vocab);
      }
    }
  }
  return {};
}

/// Fills the rows of the next pass: tokens, places, which want logits. 0 at the end of the batch.
std::size_t Model::gather(std::span<const SequenceInput> batch, Cursor& cursor) noexcept {
  std::size_t rows = 0;
  cursor.wanted = 0;
  while (rows < options_.chunk_tokens && cursor.sequence < batch.size()) {
    const SequenceInput& input = batch[cursor.sequence];
    if (cursor.token == input.tokens.size()) {
      ++cursor.sequence;
      cursor.token = 0;
      continue;
    }
    scratch_.tokens[rows] = input.tokens[cursor.token];
    scratch_.places[rows] = {static_cast<std::uint32_t>(cursor.sequence), input.cache->tokens()};
    input.cache->advance(1);
    if (wants_logits(input, cursor.token)) {
      scratch_.wanted[cursor.wanted++] = static_cast<std::uint32_t>(rows);
    }
    ++cursor.token;
    ++rows;
  }
  return rows;
}

moe::ExpertRanks Model::ranks_of(std::uint32_t layer) const {
  return options_.places != nullptr ? options_.places->layer(layer) : moe::ExpertRanks{};
}

Status Model::run_layers(std::span<const SequenceInput> batch, std::size_t rows,
                         Observer* observer) {
  const std::size_t half = rope_.frequencies.size();
  const std::span<ops::RowPlace> places = scratch_.places.first(rows);
  const std::uint32_t first_sequence = places.front().sequence;
  const std::size_t sequences = places.back().sequence - first_sequence + 1;
  ops::for_each(compute_, half == 0 ? 0 : rows, [&](std::size_t row, std::size_t) noexcept {
    ops::rope_angles(rope_.frequencies, rope_.magnitude, places[row].position,
                     scratch_.cosines.subspan(row * half, half),
                     scratch_.sines.subspan(row * half, half));
  });
  for (ops::RowPlace& place : places) place.sequence -= first_sequence;
  ops::embed(compute_, embedding_, scratch_.tokens.first(rows), scratch_.hidden);
  if (observer != nullptr) observer->hidden(0, places, scratch_.hidden);
  const Pass pass{&compute_, &scratch_, places, scratch_.kv.first(sequences)};
  for (std::uint32_t layer = 0; layer < spec_->num_layers; ++layer) {
    for (std::size_t i = 0; i < sequences; ++i) {
      scratch_.kv[i] = batch[first_sequence + i].cache->layer(layer);
    }
    run_attention(pass, layers_[layer]);
    LODE_TRY_STATUS(run_mlp(pass, layers_[layer], ranks_of(layer)));
    watch_routes(layer, places, observer);
    if (observer != nullptr) observer->hidden(layer + 1, places, scratch_.hidden);
  }
  return {};
}

void Model::watch_routes(std::uint32_t layer, std::span<const ops::RowPlace> places,
                         Observer* observer) noexcept {
  if (!layers_[layer].is_moe) return;
  for (std::size_t row = 0; row < places.size(); ++row) unsure_rows_ += scratch_.moe.unsure[row];
  const std::size_t pairs = places.size() * spec_->router.top_k;
  if (observer != nullptr) {
    observer->routes(layer, places, scratch_.moe.ids.first(pairs),
                     scratch_.moe.weights.first(pairs));
  }
}

/// The last norm and the head, for the rows of the pass that want logits.
void Model::write_logits(std::size_t wanted, std::span<float> logits) noexcept {
  if (wanted == 0) return;
  const ops::Forms forms = ops::forms_of(compute_, head_);
  ops::for_each(compute_, wanted, [&](std::size_t index, std::size_t) noexcept {
    compute_.table->rms_norm(scratch_.hidden.row(scratch_.wanted[index]).data(),
                             final_norm_.weight.data(), final_norm_.eps, spec_->hidden,
                             scratch_.normed.row(index).data());
    ops::pack_row(compute_, scratch_.normed, index, forms);
  });
  const ops::LinearJob head{&head_, {}, logits, spec_->vocab, false};
  ops::linear(compute_, scratch_.normed, wanted, {&head, 1});
}

}  // namespace lode::model

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/families/model_spec.h"
#include "lode/loader/weight_set.h"
#include "lode/model/kv_cache.h"
#include "lode/model/layer_weights.h"
#include "lode/model/observer.h"
#include "lode/model/rope_table.h"
#include "lode/model/scratch.h"
#include "lode/moe/expert_places.h"

namespace lode::model {

/// Which rows of a sequence's tokens give logits.
enum class Logits : std::uint8_t { kNone, kLast, kAll };

/// The next tokens of one sequence. No two of a batch may share a cache.
struct SequenceInput {
  std::span<const std::int32_t> tokens;
  KvCache* cache = nullptr;
  Logits wanted = Logits::kLast;
};

/// Rows of logits that a batch gives.
std::size_t logits_rows(std::span<const SequenceInput> batch) noexcept;

struct ModelOptions {
  ops::Mode mode = ops::Mode::kFast;
  ops::KvFormat kv_format = ops::KvFormat::kF16;
  std::uint32_t chunk_tokens = 512;  // rows of one pass at most; bounds the scratch
  // Where the experts are spread over ranks: how many, the slots of one, and where each lies; the
  // places must outlive the model.
  std::uint32_t num_ranks = 1;
  std::uint32_t rank_slots = 0;
  const moe::ExpertPlaces* places = nullptr;
};

/// A model that computes. It owns its scratch and nothing else: spec, weights, threads and kernels
/// must outlive it.
///
/// The logits of a token depend on the sequence before it, the weights and the mode alone: the same
/// bits for any number of threads, any chunk size, any split of a sequence into calls, any batch.
/// Not thread-safe: one call at a time.
class Model {
 public:
  /// Memory: scratch_bytes(spec, scratch_shape(options, threads)) under kScratch, nothing later.
  /// Errors: kOverBudget from the ledger, kIo from the system, kUnsupported for a rope without a
  /// table.
  static Result<Model> make(memory::Ledger& ledger, const families::ModelSpec& spec,
                            const loader::WeightSet& weights, const kernels::KernelTable& kernels,
                            parallel::ThreadPool& pool, const ModelOptions& options);

  /// A cache that this model can fill.
  /// Errors: kOverBudget from the ledger, kIo from the system.
  Result<KvCache> make_cache(memory::Ledger& ledger, std::uint64_t max_tokens) const;

  /// Takes the batch's tokens in and writes the logits wanted, sequence after sequence, in the
  /// order of the batch. All or nothing: an error leaves the caches as they were. Where experts are
  /// spread over ranks, all ranks call it with the same batch.
  ///
  /// Shapes: logits [logits_rows(batch)][vocab].
  /// Errors: kUsage naming a token beyond the vocabulary, or a sequence that its cache cannot hold;
  ///         those of comm::Group, after which the model and the caches are of no more use.
  Status forward(std::span<const SequenceInput> batch, std::span<float> logits,
                 Observer* observer = nullptr);

  /// The same for one sequence.
  /// Errors: as above.
  Status forward(std::span<const std::int32_t> tokens, KvCache& cache, Logits wanted,
                 std::span<float> logits, Observer* observer = nullptr);

  const families::ModelSpec& spec() const noexcept { return *spec_; }
  const ModelOptions& options() const noexcept { return options_; }
  /// Rows whose router found fewer than top_k finite logits, since the model was made: not 0 means
  /// broken weights or kernels.
  std::uint64_t unsure_rows() const noexcept { return unsure_rows_; }

 private:
  Model() = default;
  struct Cursor;

  Status check(std::span<const SequenceInput> batch) const;
  std::size_t gather(std::span<const SequenceInput> batch, Cursor& cursor) noexcept;
  Status run_layers(std::span<const SequenceInput> batch, std::size_t rows, Observer* observer);
  moe::ExpertRanks ranks_of(std::uint32_t layer) const;
  void write_logits(std::size_t wanted, std::span<float> logits) noexcept;
  void watch_routes(std::uint32_t layer, std::span<const ops::RowPlace> places,
                    Observer* observer) noexcept;

  const families::ModelSpec* spec_ = nullptr;
  ModelOptions options_;
  ops::Compute compute_;
  RopeTable rope_;
  std::vector<LayerWeights> layers_;
  tensor::TensorView embedding_;
  ops::Norm final_norm_;
  ops::Matrix head_;
  memory::Buffer buffer_;
  Scratch scratch_;
  std::uint64_t unsure_rows_ = 0;
};

/// What `Model::make` reserves for these options.
ScratchShape scratch_shape(const ModelOptions& options, std::size_t num_threads) noexcept;

}  // namespace lode::model

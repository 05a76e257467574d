#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/balancer.h"
#include "lode/engine/generate.h"
#include "lode/engine/run_plan.h"
#include "lode/engine/source.h"
#include "lode/loader/progress.h"
#include "lode/loader/weight_set.h"
#include "lode/memory/ledger.h"
#include "lode/model/model.h"
#include "lode/moe/expert_places.h"
#include "lode/parallel/thread_pool.h"
#include "lode/tensor/tensor.h"

namespace lode::engine {

/// A model that is loaded and ready: weights, threads, one cache, one tokenizer, room for logits.
/// Everything it holds is in the ledger, which must outlive it.
class Engine {
  struct Key {};  // only `start` makes an engine

 public:
  Engine(Key, Source source, std::uint32_t threads) : source_(std::move(source)), pool_(threads) {}

  /// Carries out `plan` of `source`: reserves, loads, makes room to work.
  ///
  /// Where experts are spread over ranks it is a collective of `group`, which must outlive the
  /// engine: all ranks start, or all get the error of the first one that cannot.
  ///
  /// Errors: kOverBudget from the ledger, before any weight is read where the plan does not fit;
  ///         those of open_tokenizer, before any weight is read, and of loader::execute;
  ///         kInterrupted where `progress` was told to stop; those of check_same and of
  ///         comm::Group. Nothing is held then.
  static Result<std::unique_ptr<Engine>> start(Source source, const RunPlan& plan,
                                               memory::Ledger& ledger,
                                               loader::Progress* progress = nullptr,
                                               comm::Group* group = nullptr);

  const Source& source() const noexcept { return source_; }
  model::Model& model() noexcept { return *model_; }
  model::KvCache& cache() noexcept { return *cache_; }
  const loader::WeightSet& weights() const noexcept { return weights_; }
  /// How the weights were read and why so: io::ReadEngine's own words.
  const std::string& reading() const noexcept { return reading_; }
  parallel::ThreadPool& pool() noexcept { return pool_; }
  /// Room for the logits that the plan's settings asked for: [logits_rows][vocab].
  std::span<float> logits() noexcept { return tensor::floats(logits_.mutate()); }

  /// Errors: kInvalidSource where the folder has no tokenizer.json.
  Result<const text::Tokenizer*> tokenizer() const { return tokenizer_of(source_); }

  /// The model over the next tokens of the cache, and what balancing does after each pass, which is
  /// a chunk of them. Of several ranks all do the same.
  ///
  /// Shapes: logits as model::Model::forward has them.
  /// Errors: those of model::Model::forward and of Balancer::after_pass.
  Status forward(std::span<const std::int32_t> tokens, model::Logits wanted,
                 std::span<float> logits, model::Observer* observer = nullptr);

  /// Where experts are moved between ranks; null where they are not.
  Balancer* balancer() noexcept { return balancer_.get(); }

  /// Continues a text; all ranks do, with the same request.
  /// Errors: those of engine::generate and `tokenizer`.
  Result<Generation> generate(const Request& request, const OnText& on_text,
                              model::Observer* observer = nullptr);

 private:
  Status begin(const RunPlan& plan, memory::Ledger& ledger, loader::Progress* progress);
  Status make_workplace(const RunPlan& plan, memory::Ledger& ledger);
  Workplace workplace(model::Observer* observer);
  Status begin_over_ranks(const RunPlan& plan, memory::Ledger& ledger, loader::Progress* progress,
                          comm::Group& group);

  Source source_;
  std::string reading_;
  memory::Reservation metadata_;
  memory::Reservation sampler_;
  loader::WeightSet weights_;
  parallel::ThreadPool pool_;
  std::unique_ptr<moe::ExpertPlaces> places_;  // of more ranks than one
  std::optional<model::Model> model_;
  std::optional<model::KvCache> cache_;
  tensor::Tensor logits_;
  std::unique_ptr<Balancer> balancer_;  // last: it looks at places and weights
};

}  // namespace lode::engine

#include "lode/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/io/checksum.h"
#include "lode/kernels/kernel_table.h"
#include "lode/loader/execute.h"

namespace lode::engine {

using memory::Tag;

namespace {

// Ranks come from their loads at different times; a lost one is noticed at once all the same.
constexpr std::chrono::hours kLoadDeadline{2};

struct Loaded {
  loader::WeightSet weights;
  std::string reading;  // how the files were read, for people
};

Result<Loaded> load_weights(const Source& source, const RunPlan& plan, memory::Ledger& ledger,
                            loader::Progress* progress) {
  Loaded loaded;
  if (source.prepared) {
    const prepared::StartPolicy& policy = plan.settings.start;
    LODE_TRY(loaded.weights,
             prepared::start(*source.prepared, plan.load, policy, ledger, progress));
    loaded.reading = fmt::format("prepared, --start {} --verify {}", name(policy.start),
                                 name(policy.verification));
    return loaded;
  }
  LODE_TRY(const std::unique_ptr<io::ReadEngine> reader, loader::make_engine(plan.load));
  LODE_TRY(loaded.weights, loader::execute(plan.load, source.binding, ledger, *reader, progress));
  loaded.reading = reader->description();
  return loaded;
}

std::string description_of(const std::optional<BalanceSettings>& balance) {
  if (!balance) return "no balancing";
  return fmt::format(
      "balancing {} every {} passes, half-life {}, threshold {}, steps of {} bytes{}",
      static_cast<int>(balance->policy), balance->interval_passes, balance->half_life_passes,
      balance->threshold, balance->step_bytes, balance->checksums ? " with sums" : "");
}

// What all ranks must have alike, for people and for a sum.
std::string description_of(const Source& source, const RunPlan& plan) {
  const families::ModelSpec& spec = source.spec;
  std::vector<std::string> files;
  for (const io::SourceFile& file : plan.load.sources) {
    files.push_back(
        fmt::format("{} {}", std::filesystem::path(file.path).filename().string(), file.bytes));
  }
  const std::string list = fmt::format("{}", fmt::join(files, ";"));
  return fmt::format(
      "{}, {} layers of {} experts, hidden {}, vocabulary {}; context {}, chunk {}, compute {}, "
      "kv {}, dense {}; maps {:08x}, {}; {} bytes of tensors in {} files ({:08x})",
      spec.family, spec.num_layers, spec.router.num_experts, spec.hidden, spec.vocab,
      plan.context_tokens, plan.model.chunk_tokens, static_cast<int>(plan.model.mode),
      static_cast<int>(plan.model.kv_format), name(plan.load.policy.dense),
      eplb::digest_of(plan.maps), description_of(plan.settings.ranks.balance), source_bytes(source),
      files.size(), io::crc32c(std::as_bytes(std::span(list))));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(Source source, const RunPlan& plan,
                                              memory::Ledger& ledger, loader::Progress* progress,
                                              comm::Group* group) {
  LODE_CHECK((group != nullptr) == (plan.settings.ranks.ranks > 1),
             "a group where the plan has ranks");
  auto engine = std::make_unique<Engine>(Key{}, std::move(source), plan.threads);
  LODE_TRY_STATUS(group == nullptr ? engine->begin(plan, ledger, progress)
                                   : engine->begin_over_ranks(plan, ledger, progress, *group));
  ledger.end_stage();
  return engine;
}

Status Engine::begin_over_ranks(const RunPlan& plan, memory::Ledger& ledger,
                                loader::Progress* progress, comm::Group& group) {
  LODE_TRY_STATUS(check_same(group, description_of(source_, plan)));
  places_ = std::make_unique<moe::ExpertPlaces>(group, plan.maps, plan.maps_weights());
  const auto deadline = group.deadline();
  group.set_deadline(std::max<std::chrono::milliseconds>(deadline, kLoadDeadline));
  LODE_TRY_STATUS(group.agree(begin(plan, ledger, progress)));
  group.set_deadline(deadline);
  if (!plan.settings.ranks.balance) return {};
  LODE_TRY(balancer_, Balancer::make(*places_, ledger, weights_, source_.spec.router,
                                     *plan.settings.ranks.balance));
  return {};
}

Status Engine::begin(const RunPlan& plan, memory::Ledger& ledger, loader::Progress* progress) {
  LODE_TRY_STATUS(check_fits(plan, source_));
  ledger.begin_stage("scan");
  LODE_TRY(metadata_,
           ledger.reserve(Tag::kMetadata, plan.metadata_bytes, "names, tokenizer, program"));
  {
    LODE_TRY(const auto reading,
             ledger.reserve(Tag::kMetadata, plan.reading_bytes, "reading the tokenizer"));
    LODE_TRY_STATUS(open_tokenizer(source_));
  }
  LODE_TRY(Loaded loaded, load_weights(source_, plan, ledger, progress));
  weights_ = std::move(loaded.weights);
  reading_ = std::move(loaded.reading);
  ledger.begin_stage("work");
  return make_workplace(plan, ledger);
}

Status Engine::make_workplace(const RunPlan& plan, memory::Ledger& ledger) {
  LODE_TRY(const kernels::KernelTable* kernels, kernels::active());
  model::ModelOptions options = plan.model;
  options.places = places_.get();
  LODE_TRY(model_, model::Model::make(ledger, source_.spec, weights_, *kernels, pool_, options));
  LODE_TRY(cache_, model_->make_cache(ledger, plan.context_tokens));
  const std::uint64_t vocab = source_.spec.vocab;
  const tensor::Meta rows{formats::kPlainF32, tensor::Layout::kRowMajor, {plan.logits_rows, vocab}};
  LODE_TRY(logits_, tensor::make_tensor(ledger, Tag::kScratch, rows, "logits"));
  LODE_TRY(sampler_, ledger.reserve(Tag::kScratch, vocab * kSamplerBytesPerToken, "sampler"));
  return {};
}

Workplace Engine::workplace(model::Observer* observer) {
  return {.model = &*model_,
          .cache = &*cache_,
          .logits = logits(),
          .group = places_ != nullptr ? &places_->group() : nullptr,
          .balancer = balancer_.get(),
          .observer = observer};
}

Status Engine::forward(std::span<const std::int32_t> tokens, model::Logits wanted,
                       std::span<float> logits, model::Observer* observer) {
  return engine::forward(workplace(observer), tokens, wanted, logits);
}

Result<Generation> Engine::generate(const Request& request, const OnText& on_text,
                                    model::Observer* observer) {
  LODE_TRY(const text::Tokenizer* tokens, tokenizer());
  Workplace place = workplace(observer);
  place.tokenizer = tokens;
  place.logits = place.logits.first(source_.spec.vocab);
  return engine::generate(place, request, on_text);
}

}  // namespace lode::engine

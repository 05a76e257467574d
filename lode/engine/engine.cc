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
      "kv {}, dense {}; {} bytes of tensors in {} files ({:08x})",
      spec.family, spec.num_layers, spec.router.num_experts, spec.hidden, spec.vocab,
      plan.context_tokens, plan.model.chunk_tokens, static_cast<int>(plan.model.mode),
      static_cast<int>(plan.model.kv_format), name(plan.load.policy.dense), source_bytes(source),
      files.size(), io::crc32c(std::as_bytes(std::span(list))));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(Source source, const RunPlan& plan,
                                              memory::Ledger& ledger, loader::Progress* progress,
                                              comm::Group* group) {
  LODE_CHECK((group != nullptr) == (plan.settings.ranks.ranks > 1),
             "a group where the plan has ranks");
  auto engine = std::make_unique<Engine>(Key{}, std::move(source), plan.threads);
  if (group == nullptr) {
    LODE_TRY_STATUS(engine->begin(plan, ledger, progress));
    return engine;
  }
  const Source& opened = engine->source_;
  LODE_TRY_STATUS(check_same(*group, description_of(opened, plan)));
  engine->places_ =
      std::make_unique<moe::ExpertPlaces>(*group, plan.maps, opened.prepared.has_value());
  const auto deadline = group->deadline();
  group->set_deadline(std::max<std::chrono::milliseconds>(deadline, kLoadDeadline));
  LODE_TRY_STATUS(group->agree(engine->begin(plan, ledger, progress)));
  group->set_deadline(deadline);
  return engine;
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
  LODE_TRY_STATUS(make_workplace(plan, ledger));
  ledger.end_stage();
  return {};
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

Result<Generation> Engine::generate(const Request& request, const OnText& on_text,
                                    model::Observer* observer) {
  LODE_TRY(const text::Tokenizer* tokens, tokenizer());
  const Workplace place{.model = &*model_,
                        .cache = &*cache_,
                        .tokenizer = tokens,
                        .logits = logits().first(source_.spec.vocab),
                        .group = places_ != nullptr ? &places_->group() : nullptr,
                        .observer = observer};
  return engine::generate(place, request, on_text);
}

}  // namespace lode::engine

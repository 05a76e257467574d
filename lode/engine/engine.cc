#include "lode/engine/engine.h"

#include "lode/base/fmt.h"
#include "lode/kernels/kernel_table.h"
#include "lode/loader/execute.h"

namespace lode::engine {

using memory::Tag;

namespace {

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

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(Source source, const RunPlan& plan,
                                              memory::Ledger& ledger, loader::Progress* progress) {
  LODE_TRY_STATUS(check_fits(plan, source));
  auto engine = std::make_unique<Engine>(Key{}, std::move(source), plan.threads);
  ledger.begin_stage("scan");
  LODE_TRY(engine->metadata_,
           ledger.reserve(Tag::kMetadata, plan.metadata_bytes, "names, tokenizer, program"));
  {
    LODE_TRY(const auto reading,
             ledger.reserve(Tag::kMetadata, plan.reading_bytes, "reading the tokenizer"));
    LODE_TRY_STATUS(open_tokenizer(engine->source_));
  }
  LODE_TRY(Loaded loaded, load_weights(engine->source_, plan, ledger, progress));
  engine->weights_ = std::move(loaded.weights);
  engine->reading_ = std::move(loaded.reading);
  ledger.begin_stage("work");
  LODE_TRY_STATUS(engine->make_workplace(plan, ledger));
  ledger.end_stage();
  return engine;
}

Status Engine::make_workplace(const RunPlan& plan, memory::Ledger& ledger) {
  LODE_TRY(const kernels::KernelTable* kernels, kernels::active());
  LODE_TRY(model_, model::Model::make(ledger, source_.spec, weights_, *kernels, pool_, plan.model));
  LODE_TRY(cache_, model_->make_cache(ledger, plan.context_tokens));
  const std::uint64_t vocab = source_.spec.vocab;
  const tensor::Meta rows{formats::kPlainF32, tensor::Layout::kRowMajor, {plan.logits_rows, vocab}};
  LODE_TRY(logits_, tensor::make_tensor(ledger, Tag::kScratch, rows, "logits"));
  LODE_TRY(sampler_, ledger.reserve(Tag::kScratch, vocab * kSamplerBytesPerToken, "sampler"));
  return {};
}

Result<Generation> Engine::generate(const Request& request, const OnText& on_text) {
  LODE_TRY(const text::Tokenizer* tokens, tokenizer());
  const Workplace place{.model = &*model_,
                        .cache = &*cache_,
                        .tokenizer = tokens,
                        .logits = logits().first(source_.spec.vocab)};
  return engine::generate(place, request, on_text);
}

}  // namespace lode::engine

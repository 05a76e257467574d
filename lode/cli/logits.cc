#include <cstring>
#include <map>

#include "lode/base/fmt.h"
#include "lode/checkpoint/safetensors_writer.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/program.h"
#include "lode/cli/text_file.h"

namespace lode::cli {
namespace {

struct LogitsOptions {
  std::string ids;
  std::string out;
  bool layers = false;
};

// Keeps what the model shows, row by row.
class Recorder final : public model::Observer {
 public:
  explicit Recorder(const families::ModelSpec& spec) : spec_(&spec) {}

  void hidden(std::uint32_t index, std::span<const ops::RowPlace> places,
              const ops::Rows& rows) noexcept override {
    std::vector<float>& all = hidden_[index];
    for (std::size_t row = 0; row < places.size(); ++row) {
      const std::span<const float> values = rows.row(row);
      all.insert(all.end(), values.begin(), values.begin() + spec_->hidden);
    }
  }
  void routes(std::uint32_t layer, std::span<const ops::RowPlace>,
              std::span<const std::int32_t> ids, std::span<const float>) noexcept override {
    std::vector<std::int32_t>& all = routes_[layer];
    all.insert(all.end(), ids.begin(), ids.end());
  }

  void append_to(std::vector<checkpoint::TensorToWrite>& tensors) const {
    for (const auto& [index, values] : hidden_) {
      tensors.push_back({fmt::format("hidden.{}", index),
                         formats::Format::kF32,
                         {values.size() / spec_->hidden, spec_->hidden},
                         std::as_bytes(std::span(values))});
    }
    for (const auto& [layer, ids] : routes_) {
      tensors.push_back({fmt::format("router_topk_ids.{}", layer),
                         formats::Format::kI32,
                         {ids.size() / spec_->router.top_k, spec_->router.top_k},
                         std::as_bytes(std::span(ids))});
    }
  }

 private:
  const families::ModelSpec* spec_;
  std::map<std::uint32_t, std::vector<float>> hidden_;
  std::map<std::uint32_t, std::vector<std::int32_t>> routes_;
};

Status logits(const ModelOptions& model, const LogitsOptions& options, const RankContext& context) {
  LODE_TRY(const std::string text, read_text_file(options.ids));
  LODE_TRY(const std::vector<std::int32_t> ids, parse_ids(text));
  LODE_TRY(engine::Settings settings, rank_settings(model, context));
  settings.logits_rows = static_cast<std::uint32_t>(ids.size());
  const auto check = [&ids](const engine::Source& source, const engine::RunPlan& plan) {
    return engine::check_prompt(ids, plan.context_tokens, source.spec.vocab);
  };
  LODE_TRY(const LoadedModel loaded, load_model(model, settings, context, check));
  const families::ModelSpec& spec = loaded.engine->source().spec;
  const std::span<float> values = loaded.engine->logits();
  Recorder recorder(spec);
  LODE_TRY_STATUS(loaded.engine->forward(ids, model::Logits::kAll, values,
                                         options.layers ? &recorder : nullptr));
  return end_run(model, loaded, [&] {
    std::vector<checkpoint::TensorToWrite> tensors = {
        {"logits", formats::Format::kF32, {ids.size(), spec.vocab}, std::as_bytes(values)}};
    recorder.append_to(tensors);
    return checkpoint::write_safetensors(options.out, tensors);
  });
}

}  // namespace

void add_logits(Program& program) {
  CLI::App* const command =
      add_command(program, "logits", "Logits of a list of token ids, for comparing engines",
                  "  echo '[1, 2, 3]' > ids.json\n"
                  "  lode logits DIR --ids ids.json --out logits.safetensors --compute exact\n"
                  "  lode logits DIR --ids ids.json --out all.safetensors --layers\n");
  const auto model = add_model_options(command);
  add_load_options(command, model);
  add_rank_options(command, model);
  add_balancing_options(command, model);
  const auto options = std::make_shared<LogitsOptions>();
  command->add_option("--ids", options->ids, "JSON list of token ids, or an object with \"ids\"")
      ->required();
  command->add_option("--out", options->out, "safetensors file: logits F32 [tokens, vocabulary]")
      ->required();
  command->add_flag("--layers", options->layers,
                    "Also hidden.<i> and router_topk_ids.<i> of every layer");
  command->callback([&program, model, options] {
    program.chosen = [model, options] {
      return on_ranks(
          *model, [&](const RankContext& context) { return logits(*model, *options, context); });
    };
  });
}

}  // namespace lode::cli

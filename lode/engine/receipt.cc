#include "lode/engine/receipt.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/engine/stage_json.h"

namespace lode::engine {
namespace {

std::string line(std::string_view what, std::uint64_t bytes) {
  return fmt::format("  {:<37}{:>16}  {}\n", what, bytes, human_bytes(bytes));
}

json::Value or_null(const std::string& text) {
  return text.empty() ? json::Value() : json::Value(text);
}

json::Value as_json(const KernelFigures& kernel) {
  const auto sampled = [&](std::uint64_t bytes) {
    return kernel.num_samples == 0 ? json::Value() : json::Value(bytes);
  };
  return json::object(
      {{"num_samples", kernel.num_samples},
       {"peak_held_bytes", sampled(kernel.peak_held_bytes)},
       {"peak_over_finished_bytes", sampled(kernel.peak_over_finished_bytes)},
       {"held_bytes", kernel.held_bytes},
       {"source_cache_bytes",
        kernel.source_cache_bytes ? json::Value(*kernel.source_cache_bytes) : json::Value()},
       {"peak_total_bytes", sampled(kernel.peak_total_bytes)}});
}

std::string kernel_text(const Receipt& receipt) {
  const KernelFigures& kernel = receipt.kernel;
  std::string text;
  if (kernel.num_samples > 0) {
    text += line("peak held, by the kernel", kernel.peak_held_bytes);
    text += line("most held over finished, with page tables", kernel.peak_over_finished_bytes);
    text += line("whole process at load peak, planned", receipt.planned_load_peak_bytes);
    text += line("whole process at load peak, seen", kernel.peak_total_bytes);
  }
  if (kernel.source_cache_bytes) {
    text += line("sources left in the page cache", *kernel.source_cache_bytes);
  }
  return text;
}

json::Value as_json(const std::vector<RankFigures>& ranks) {
  json::Array list;
  for (const RankFigures& rank : ranks) {
    list.push_back(json::object({{"planned_peak_bytes", rank.planned_peak_bytes},
                                 {"peak_bytes", rank.peak_bytes},
                                 {"weight_bytes", rank.weight_bytes},
                                 {"expert_records", rank.expert_records},
                                 {"expert_bytes", rank.expert_bytes},
                                 {"read_bytes", rank.read_bytes},
                                 {"as_planned", rank.as_planned == 1}}));
  }
  return list;
}

std::string ranks_text(const Receipt& receipt) {
  std::string text;
  std::uint64_t peak_bytes = 0;
  for (std::size_t rank = 0; rank < receipt.ranks.size(); ++rank) {
    const RankFigures& figures = receipt.ranks[rank];
    peak_bytes += figures.peak_bytes;
    text += line(fmt::format("rank {}: peak in its ledger", rank), figures.peak_bytes);
    text += line(fmt::format("  {} expert records", figures.expert_records), figures.expert_bytes);
    text += line("  read of the files", figures.read_bytes);
  }
  return text.empty() ? text : text + line("peaks of all ranks", peak_bytes);
}

// The rate only where files were read for it: who maps them reads nothing yet.
std::string load_text(const Receipt& receipt) {
  const double seconds = static_cast<double>(receipt.load_us) / 1e6;
  std::string text = fmt::format("  {:<37}{:>16}", "load, seconds", fmt::format("{:.2f}", seconds));
  if (receipt.run.start != name(prepared::Start::kMap)) {
    text += fmt::format("  {:.2f} GB/s of the files",
                        static_cast<double>(receipt.source_bytes) / 1e3 /
                            static_cast<double>(std::max<std::uint64_t>(receipt.load_us, 1)));
  }
  return text + "\n";
}

}  // namespace

RunLabel label_of(const RunPlan& plan, const Source& source) {
  const bool exact = plan.model.mode == ops::Mode::kExact;
  const bool f32 = plan.model.kv_format == ops::KvFormat::kF32;
  const prepared::StartPolicy& start = plan.settings.start;
  return {.model = model_name(source),
          .context_tokens = plan.context_tokens,
          .context_auto = plan.settings.context_auto,
          .threads = plan.threads,
          .chunk_tokens = plan.model.chunk_tokens,
          .load_threads = plan.is_prepared ? start.threads : plan.load.policy.workers,
          .logits_rows = plan.logits_rows,
          .ranks = plan.settings.ranks.ranks,
          .rank = plan.settings.ranks.rank,
          .redundant_experts = plan.settings.ranks.redundant_experts,
          .compute = exact ? "exact" : "fast",
          .kv_dtype = f32 ? "f32" : "f16",
          .dense = std::string(loader::name(plan.load.policy.dense)),
          .target = source.prepared ? source.prepared->manifest.target : "cpu",
          .start = std::string(plan.is_prepared ? name(start.start) : "load"),
          .verify = std::string(plan.is_prepared ? name(start.verification) : ""),
          .io = std::string(plan.maps_weights() ? "" : io::name(plan.load.policy.io))};
}

json::Value as_json(const RunLabel& label) {
  return json::object({{"model", label.model},
                       {"context_tokens", std::int64_t{label.context_tokens}},
                       {"context_auto", label.context_auto},
                       {"threads", std::int64_t{label.threads}},
                       {"chunk_tokens", std::int64_t{label.chunk_tokens}},
                       {"load_threads", std::int64_t{label.load_threads}},
                       {"logits_rows", std::int64_t{label.logits_rows}},
                       {"ranks", std::int64_t{label.ranks}},
                       {"rank", std::int64_t{label.rank}},
                       {"redundant_experts", std::int64_t{label.redundant_experts}},
                       {"compute", label.compute},
                       {"kv_dtype", label.kv_dtype},
                       {"dense", label.dense},
                       {"target", label.target},
                       {"start", or_null(label.start)},
                       {"verify", or_null(label.verify)},
                       {"io", or_null(label.io)}});
}

RankFigures figures_of(const Receipt& receipt, const RunPlan& plan, std::uint64_t read_bytes) {
  RankFigures figures{.planned_peak_bytes = receipt.planned_peak_bytes,
                      .peak_bytes = receipt.peak_bytes,
                      .weight_bytes = receipt.weight_bytes,
                      .read_bytes = read_bytes,
                      .as_planned = receipt.as_planned() ? 1U : 0U};
  for (const loader::StagePlan& stage : plan.load.stages) {
    if (!stage.bank) continue;
    figures.expert_records += stage.bank->num_experts;
    figures.expert_bytes += stage.bank->bytes();
  }
  return figures;
}

Result<std::vector<RankFigures>> gather_figures(comm::Group& group, const RankFigures& own) {
  std::vector<RankFigures> all(group.size());
  LODE_TRY_STATUS(
      group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all))));
  return all;
}

Receipt make_receipt(const RunPlan& plan, const Source& source, const memory::Ledger& ledger) {
  return {.run = label_of(plan, source),
          .limit_bytes = ledger.limit_bytes(),
          .planned_peak_bytes = plan.peak_bytes(),
          .planned_load_peak_bytes = plan.load_peak_bytes(),
          .peak_bytes = ledger.peak_bytes(),
          .weight_bytes = plan.load.weight_bytes(),
          .padding_bytes = plan.load.padding_bytes(),
          .load_us = 0,
          .source_bytes = source_bytes(source),
          .io = {},
          .planned = plan.stages,
          .actual = ledger.stages(),
          .kernel = {}};
}

json::Value as_json(const Receipt& receipt) {
  return json::object({{"run", as_json(receipt.run)},
                       {"limit_bytes", receipt.limit_bytes},
                       {"planned_peak_bytes", receipt.planned_peak_bytes},
                       {"planned_load_peak_bytes", receipt.planned_load_peak_bytes},
                       {"peak_bytes", receipt.peak_bytes},
                       {"weight_bytes", receipt.weight_bytes},
                       {"padding_bytes", receipt.padding_bytes},
                       {"source_bytes", receipt.source_bytes},
                       {"load_us", receipt.load_us},
                       {"io", receipt.io},
                       {"as_planned", receipt.as_planned()},
                       {"planned", as_json(receipt.planned)},
                       {"actual", as_json(receipt.actual)},
                       {"kernel", as_json(receipt.kernel)},
                       {"ranks", as_json(receipt.ranks)}});
}

std::string as_text(const Receipt& receipt) {
  std::string text = "receipt (bytes)\n";
  text += line("budget", receipt.limit_bytes);
  text += line("weights as prepared", receipt.weight_bytes);
  text += line("  of these padding", receipt.padding_bytes);
  text += line("peak planned", receipt.planned_peak_bytes);
  text += line("peak in the ledger", receipt.peak_bytes);
  text += kernel_text(receipt);
  text +=
      fmt::format("  {:<37}{:>16}\n", "ledger equals plan", receipt.as_planned() ? "yes" : "NO");
  text += ranks_text(receipt);
  text += load_text(receipt);
  if (!receipt.io.empty()) text += fmt::format("  {:<37}{}\n", "read by", receipt.io);
  return text;
}

}  // namespace lode::engine

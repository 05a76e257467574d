#include "lode/engine/prepare_receipt.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/engine/stage_json.h"

namespace lode::engine {
namespace {

std::string line(std::string_view what, const std::optional<std::uint64_t>& bytes) {
  if (!bytes) return {};
  return fmt::format("  {:<37}{:>16}  {}\n", what, *bytes, human_bytes(*bytes));
}

void add(json::Object& to, std::string_view name, const std::optional<std::uint64_t>& number) {
  if (number) to.emplace_back(std::string(name), json::Value(*number));
}

json::Value as_json(const std::vector<loader::LayerLosses>& losses) {
  json::Array rows;
  for (const loader::LayerLosses& layer : losses) {
    for (const targets::LossInfo& loss : targets::loss_table()) {
      const std::uint64_t count = layer.counts.of(loss.loss);
      if (count == 0) continue;
      rows.push_back(json::object({{"layer", static_cast<std::uint64_t>(layer.layer)},
                                   {"name", loss.name},
                                   {"count", count},
                                   {"refused_by_strict", loss.refused != targets::Refusal::kNobody},
                                   {"meaning", loss.meaning}}));
    }
  }
  return json::Value(std::move(rows));
}

}  // namespace

std::string losses_text(const std::vector<loader::LayerLosses>& losses) {
  constexpr std::size_t kMostLayers = 8;
  std::string text;
  for (const targets::LossInfo& loss : targets::loss_table()) {
    std::string of_layers;
    std::uint64_t total = 0;
    std::size_t num_layers = 0;
    for (const loader::LayerLosses& layer : losses) {
      const std::uint64_t count = layer.counts.of(loss.loss);
      if (count == 0) continue;
      total += count;
      if (++num_layers <= kMostLayers) {
        of_layers += fmt::format("{}layer {}: {}", num_layers > 1 ? ", " : "", layer.layer, count);
      }
    }
    if (total == 0) continue;
    text += fmt::format("{}: {} {} ({}{})\n", loss.name, total, loss.meaning, of_layers,
                        num_layers > kMostLayers
                            ? fmt::format(", and {} layers more", num_layers - kMostLayers)
                            : "");
  }
  return text;
}

PrepareReceipt make_receipt(const PrepareRun& run, const Source& source,
                            const prepared::Report& report, const memory::Ledger& ledger) {
  PrepareReceipt receipt;
  receipt.model = model_name(source);
  receipt.dense = loader::name(run.load->policy.dense);
  receipt.load_threads = run.load->policy.workers;
  receipt.io = report.reading;
  receipt.limit_bytes = run.budget.limit_bytes;
  receipt.planned_peak_bytes = run.peak_bytes();
  receipt.peak_bytes = ledger.peak_bytes();
  receipt.source_bytes = source.index.tensor_bytes();
  receipt.report = report;
  receipt.planned = run.stages;
  receipt.actual = ledger.stages();
  return receipt;
}

json::Value as_json(const PrepareReceipt& receipt) {
  json::Object kernel{{"num_samples", json::Value(receipt.num_samples)}};
  add(kernel, "peak_held_bytes", receipt.peak_held_bytes);
  add(kernel, "held_bytes", receipt.held_bytes);
  add(kernel, "source_cache_bytes", receipt.source_cache_bytes);
  return json::object(
      {{"prepare", json::object({{"model", receipt.model},
                                 {"dense", receipt.dense},
                                 {"load_threads", std::int64_t{receipt.load_threads}},
                                 {"io", receipt.io}})},
       {"limit_bytes", receipt.limit_bytes},
       {"planned_peak_bytes", receipt.planned_peak_bytes},
       {"peak_bytes", receipt.peak_bytes},
       {"source_bytes", receipt.source_bytes},
       {"output_bytes", receipt.report.output_bytes},
       {"written_bytes", receipt.report.written_bytes},
       {"freed_bytes", receipt.report.freed_bytes},
       {"losses", as_json(receipt.report.losses)},
       {"run_us", receipt.run_us},
       {"as_planned", receipt.as_planned()},
       {"planned", as_json(receipt.planned)},
       {"actual", as_json(receipt.actual)},
       {"kernel", json::Value(std::move(kernel))}});
}

std::string as_text(const PrepareReceipt& receipt) {
  std::string text = "receipt (bytes)\n";
  text += line("budget", receipt.limit_bytes);
  text += line("peak planned", receipt.planned_peak_bytes);
  text += line("peak in the ledger", receipt.peak_bytes);
  text += line("peak held, by the kernel", receipt.peak_held_bytes);
  text += line("weights as prepared", receipt.report.output_bytes);
  text += line("  of these written now", receipt.report.written_bytes);
  text += line("sources left in the page cache", receipt.source_cache_bytes);
  text +=
      fmt::format("  {:<37}{:>16}\n", "ledger equals plan", receipt.as_planned() ? "yes" : "NO");
  text += fmt::format("  {:<37}{:>16}  {:.2f} GB/s written\n", "preparation, seconds",
                      fmt::format("{:.2f}", static_cast<double>(receipt.run_us) / 1e6),
                      static_cast<double>(receipt.report.written_bytes) / 1e3 /
                          static_cast<double>(std::max<std::uint64_t>(receipt.run_us, 1)));
  text += fmt::format("  {:<37}{}\n", "read by", receipt.io);
  const std::string losses = losses_text(receipt.report.losses);
  return losses.empty() ? text : text + "numbers that the engine's layout does not hold\n" + losses;
}

}  // namespace lode::engine

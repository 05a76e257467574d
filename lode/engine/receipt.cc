#include "lode/engine/receipt.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/engine/stage_json.h"

namespace lode::engine {
namespace {

std::string line(std::string_view what, std::uint64_t bytes) {
  return fmt::format("  {:<32}{:>16}  {}\n", what, bytes, human_bytes(bytes));
}

}  // namespace

Receipt make_receipt(const RunPlan& plan, const Source& source, const memory::Ledger& ledger) {
  return {.limit_bytes = ledger.limit_bytes(),
          .planned_peak_bytes = plan.peak_bytes(),
          .peak_bytes = ledger.peak_bytes(),
          .weight_bytes = plan.load.weight_bytes(),
          .padding_bytes = plan.load.padding_bytes(),
          .load_us = 0,
          .source_bytes = source.index.tensor_bytes(),
          .planned = plan.stages,
          .actual = ledger.stages(),
          .kernel = {}};
}

json::Value as_json(const Receipt& receipt) {
  const KernelFigures& kernel = receipt.kernel;
  return json::object(
      {{"limit_bytes", receipt.limit_bytes},
       {"planned_peak_bytes", receipt.planned_peak_bytes},
       {"peak_bytes", receipt.peak_bytes},
       {"weight_bytes", receipt.weight_bytes},
       {"padding_bytes", receipt.padding_bytes},
       {"source_bytes", receipt.source_bytes},
       {"load_us", receipt.load_us},
       {"as_planned", receipt.as_planned()},
       {"planned", as_json(receipt.planned)},
       {"actual", as_json(receipt.actual)},
       {"kernel", json::object({{"num_samples", kernel.num_samples},
                                {"peak_held_bytes", kernel.peak_held_bytes},
                                {"peak_over_finished_bytes", kernel.peak_over_finished_bytes},
                                {"held_bytes", kernel.held_bytes},
                                {"source_cache_bytes", kernel.source_cache_bytes}})}});
}

std::string as_text(const Receipt& receipt) {
  std::string text = "receipt (bytes)\n";
  text += line("budget", receipt.limit_bytes);
  text += line("weights as prepared", receipt.weight_bytes);
  text += line("  of these padding", receipt.padding_bytes);
  text += line("peak planned", receipt.planned_peak_bytes);
  text += line("peak in the ledger", receipt.peak_bytes);
  text += line("peak held, by the kernel", receipt.kernel.peak_held_bytes);
  text += line("most held over finished weights", receipt.kernel.peak_over_finished_bytes);
  text += line("sources left in the page cache", receipt.kernel.source_cache_bytes);
  text +=
      fmt::format("  {:<32}{:>16}\n", "ledger equals plan", receipt.as_planned() ? "yes" : "NO");
  text += fmt::format("  {:<32}{:>16}  {:.2f} GB/s of the files\n", "load, seconds",
                      fmt::format("{:.2f}", static_cast<double>(receipt.load_us) / 1e6),
                      static_cast<double>(receipt.source_bytes) / 1e3 /
                          static_cast<double>(std::max<std::uint64_t>(receipt.load_us, 1)));
  return text;
}

}  // namespace lode::engine

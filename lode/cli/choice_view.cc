#include "lode/cli/choice_view.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::cli {
namespace {

// Of other targets there is one layout, whatever the version.
bool has_versions(const loader::EngineChoice& choice) {
  return !choice.options.fp8_activations &&
         std::ranges::any_of(targets::route_table(), [&](const targets::Route& route) {
           return route.target == choice.target && route.uses.flashinfer;
         });
}

}  // namespace

std::string ranges_text(std::span<const std::uint32_t> numbers) {
  std::string text;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    const std::string last = end - begin > 1 ? fmt::format("-{}", numbers[end - 1]) : "";
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", numbers[begin], last);
    begin = end;
  }
  return text;
}

std::string choice_text(const loader::EngineChoice& choice) {
  std::string text;
  if (choice.ranks > 1) text += fmt::format("rank      {} of {}\n", choice.rank, choice.ranks);
  if (!choice.experts.empty()) {
    text += fmt::format("experts   {} of each layer, for one rank of an engine: {}\n",
                        choice.experts.size(), ranges_text(choice.experts));
  }
  const targets::Options& options = choice.options;
  if (!options.online.empty()) text += fmt::format("online    experts to {}\n", options.online);
  if (has_versions(choice)) text += fmt::format("layout    FlashInfer {}\n", options.flashinfer);
  if (options.fp8_activations) text += "kernels   of FP8 activations\n";
  return text;
}

std::vector<json::Member> choice_members(const loader::EngineChoice& choice) {
  if (choice.is_cpu()) return {{"experts", nullptr}};
  json::Array experts;
  for (const std::uint32_t expert : choice.experts) experts.emplace_back(std::int64_t{expert});
  const targets::Options& options = choice.options;
  return {{"experts", choice.experts.empty() ? json::Value() : json::Value(std::move(experts))},
          {"ranks", std::uint64_t{choice.ranks}},
          {"rank", std::uint64_t{choice.rank}},
          {"online", options.online.empty() ? json::Value() : json::Value(options.online)},
          {"flashinfer", has_versions(choice) ? json::Value(options.flashinfer) : json::Value()},
          {"fp8_activations", options.fp8_activations}};
}

}  // namespace lode::cli

#include "lode/cli/target_options.h"

#include <charconv>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/model_options.h"
#include "lode/engine/prepare_run.h"
#include "lode/targets/target.h"

namespace lode::cli {
namespace {

// "0-7,12": numbers and ranges, in rising order.
// Errors: kUsage.
Result<std::vector<std::uint32_t>> parse_numbers(const std::string& text) {
  const Error error{.code = Code::kUsage,
                    .thing = "--experts",
                    .wanted = "numbers and ranges in rising order, such as 0-7,12",
                    .found = text};
  constexpr std::uint32_t kMost = 1U << 20;
  std::vector<std::uint32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::uint32_t first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc{}) return error;
    std::uint32_t last = first;
    if (read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc{}) return error;
    }
    if (last < first || last > kMost || (!numbers.empty() && first <= numbers.back())) return error;
    for (; first <= last; ++first) numbers.push_back(first);
    if (read.ptr == end) return numbers;
    if (*read.ptr != ',') return error;
    at = read.ptr + 1;
  }
}

// What only a GPU engine's target has: for cpu it would be passed over in silence.
Status check_cpu(const TargetOptions& options) {
  const char* const thing = options.is_part()             ? "--experts, --ranks"
                            : !options.online.empty()     ? "--online"
                            : options.fp8_activations     ? "--fp8-activations"
                            : options.flashinfer != "0.7" ? "--flashinfer"
                            : !options.scratch.empty()    ? "--scratch"
                                                          : nullptr;
  if (!options.is_cpu() || thing == nullptr) return {};
  return Error{.code = Code::kUsage,
               .thing = thing,
               .wanted = "a target of a GPU engine",
               .found = "--target cpu",
               .hint = "--target marlin, for one"};
}

Status check_part(const TargetOptions& options) {
  if (options.experts.empty() || (options.ranks == 1 && options.rank == 0)) return {};
  return Error{.code = Code::kUsage,
               .thing = "--experts with --ranks",
               .wanted = "one of the two",
               .found = "both"};
}

}  // namespace

void add_target_options(CLI::App* command, TargetOptions& options) {
  std::vector<std::string> names;
  for (const targets::TargetInfo& info : targets::target_table()) names.emplace_back(info.name);
  command
      ->add_option(
          "--target", options.target,
          "Whose kernels the experts are laid out for; everything else lies as Lode runs it")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command->add_option("--experts", options.experts,
                      "Only these of each layer, such as 0-7,12: what one rank holds");
  command->add_option("--ranks", options.ranks, "Only the experts of --rank of so many")
      ->capture_default_str();
  command->add_option("--rank", options.rank, "Which rank, from 0 on")->capture_default_str();
  command->add_flag("--fp8-activations", options.fp8_activations,
                    "For kernels that read FP8 activations, where a target has both");
  command
      ->add_option("--flashinfer", options.flashinfer,
                   "Whose SM90 mixed-input layout: FlashInfer 0.7 or 0.6.16")
      ->check(CLI::IsMember({"0.7", "0.6.16"}))
      ->capture_default_str();
  command
      ->add_option("--online", options.online,
                   "What BF16 and F16 experts become on the way to a GPU engine")
      ->check(CLI::IsMember({"fp8-tensor", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}));
  command->add_option(
      "--scratch", options.scratch,
      "Hold at most so much of an expert at once, such as 8MiB; larger ones are read in "
      "windows, and units of a tensor need what they need. Default: an expert of up to "
      "32 MiB, or windows of 24 MiB. The result is the same");
}

Result<loader::EngineChoice> choice_of(const TargetOptions& options, std::uint32_t num_experts) {
  LODE_TRY_STATUS(check_part(options));
  loader::EngineChoice choice;
  choice.target = *targets::target_by_name(options.target);  // one of those that CLI11 lets through
  choice.options.fp8_activations = options.fp8_activations;
  choice.options.flashinfer = options.flashinfer;
  choice.options.online = options.online;
  LODE_TRY(choice.experts, engine::experts_of_rank(num_experts, options.ranks, options.rank));
  choice.ranks = options.ranks;
  choice.rank = options.rank;
  if (!options.experts.empty()) {
    LODE_TRY(choice.experts, parse_numbers(options.experts));
  }
  LODE_TRY_STATUS(check_cpu(options));
  return choice;
}

Result<loader::ExpertScratch> scratch_of(const TargetOptions& options) {
  if (options.scratch.empty()) return loader::ExpertScratch{};
  constexpr std::uint64_t kMost = 64 * kMiB;
  LODE_TRY(const std::uint64_t bytes, bytes_of("--scratch", options.scratch));
  if (bytes > 0 && bytes <= kMost) {
    return loader::ExpertScratch{.whole_bytes = bytes, .window_bytes = bytes};
  }
  return Error{.code = Code::kUsage,
               .thing = "--scratch",
               .wanted = fmt::format("a size from 1 byte to {}", human_bytes(kMost)),
               .found = options.scratch};
}

}  // namespace lode::cli

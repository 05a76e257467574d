#include "lode/loader/loss_check.h"

#include <string>

#include "lode/base/fmt.h"

namespace lode::loader {

Status check_losses(const targets::LossCounts& counts, std::string_view tensor, bool is_strict) {
  const auto refused = counts.first_refused(is_strict);
  if (!refused) return {};
  Error error{.code = Code::kCheckFailed,
              .thing = std::string(tensor),
              .wanted = "a layout that holds every number as the checkpoint has it (--strict)",
              .found = fmt::format("{} {}", counts.of(*refused), targets::info(*refused).meaning),
              .hint =
                  "without --strict the engine's own bytes are made, and the receipt counts what "
                  "they lose"};
  if (targets::info(*refused).refused == targets::Refusal::kAlways) {
    error.code = Code::kInvalidSource;
    error.wanted = "numbers that the engine's layout holds";
    error.hint = "lode verify DIR names codes and scales that are none";
  }
  return error;
}

}  // namespace lode::loader

// Uses the installed library as a stranger would: one buffer that fits the budget, one that does
// not, and a folder that is not there, so that every room and what it needs has to link.
#include <cstdio>

#include "lode/engine/source.h"
#include "lode/memory/buffer.h"
#include "lode/memory/ledger.h"

int main() {
  constexpr std::uint64_t kMib = 1024 * 1024;
  lode::memory::Ledger ledger(4 * kMib);
  const auto fits = lode::memory::make_buffer(ledger, lode::memory::Tag::kScratch, kMib, "one");
  const auto too_much =
      lode::memory::make_buffer(ledger, lode::memory::Tag::kScratch, 4 * kMib, "four");
  if (!fits || too_much || too_much.error().code != lode::Code::kOverBudget) return 1;
  std::printf("%s\n", lode::to_string(too_much.error()).c_str());
  const auto source = lode::engine::open_source("no/such/folder");
  if (source) return 1;
  std::printf("%s\n", lode::to_string(source.error()).c_str());
  return 0;
}

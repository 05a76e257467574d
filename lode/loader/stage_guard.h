#pragma once

#include "lode/memory/ledger.h"

namespace lode::loader {

/// Ends the ledger's stage however the load ends.
class StageGuard {
 public:
  explicit StageGuard(memory::Ledger& ledger) : ledger_(ledger) {}
  ~StageGuard() { ledger_.end_stage(); }
  StageGuard(const StageGuard&) = delete;
  StageGuard& operator=(const StageGuard&) = delete;

 private:
  memory::Ledger& ledger_;
};

}  // namespace lode::loader

#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "lode/loader/plan.h"
#include "lode/loader/progress.h"

namespace lode::cli {

/// Shows a load on standard error: bytes of finished weights, rate, phase, time left. As a line
/// that is written over, as JSON lines, or not at all.
class ProgressView {
 public:
  enum class Form { kNone, kText, kJson };

  /// "text", "json", "none", or "": text where standard error is a terminal.
  static Form form_of(const std::string& name);

  /// `doing` names the work; `done_before` bytes are finished and were not made now.
  ProgressView(Form form, const loader::LoadPlan& plan, const loader::Progress& progress,
               std::string_view doing = "loading", std::uint64_t done_before = 0);

  /// Shows what there is to show, a few times a second at most.
  void tick();
  /// Takes the line away.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string phase() const;
  void show(double seconds);

  Form form_;
  const loader::LoadPlan* plan_;
  const loader::Progress* progress_;
  std::string_view doing_;
  std::uint64_t done_before_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = Clock::now();
  bool shown_ = false;
};

}  // namespace lode::cli

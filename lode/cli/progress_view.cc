#include "lode/cli/progress_view.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/text_file.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

constexpr std::chrono::milliseconds kShowEvery{100};

}  // namespace

ProgressView::Form ProgressView::form_of(const std::string& name) {
  if (name == "json") return Form::kJson;
  if (name == "text") return Form::kText;
  if (name == "none" || isatty(STDERR_FILENO) == 0) return Form::kNone;
  return Form::kText;
}

ProgressView::ProgressView(Form form, const loader::LoadPlan& plan,
                           const loader::Progress& progress, std::string_view doing,
                           std::uint64_t done_before)
    : form_(form), plan_(&plan), progress_(&progress), doing_(doing), done_before_(done_before) {}

std::string ProgressView::phase() const {
  const std::uint32_t stage = progress_->stage_idx.load();
  return stage < plan_->stages.size() ? plan_->stages[stage].name : "seal";
}

void ProgressView::tick() {
  const Clock::time_point now = Clock::now();
  if (form_ == Form::kNone || now < next_) return;
  next_ = now + kShowEvery;
  show(std::chrono::duration<double>(now - begin_).count());
}

void ProgressView::show(double seconds) {
  const std::uint64_t told = progress_->total_bytes.load();
  const std::uint64_t total = told != 0 ? told : plan_->weight_bytes();
  const std::uint64_t finished = std::min(progress_->finished_bytes.load(), total);
  const std::uint64_t now = finished - std::min(finished, done_before_);
  const double rate = static_cast<double>(now) / std::max(seconds, 1e-3);
  const double left =
      rate > 0 ? static_cast<double>(total - std::min(total, finished)) / rate : 0.0;
  if (form_ == Form::kJson) {
    write_standard_error(fmt::format("{}\n", json::dump(json::object({{"phase", phase()},
                                                                      {"finished_bytes", finished},
                                                                      {"total_bytes", total},
                                                                      {"bytes_per_second", rate},
                                                                      {"left_seconds", left}}))));
    return;
  }
  shown_ = true;
  write_standard_error(fmt::format("\r{} {:>3}%  {} of {}  {}/s  {}  {:.0f} s left   ", doing_,
                                   total == 0 ? 100 : finished * 100 / total, human_bytes(finished),
                                   human_bytes(total),
                                   human_bytes(static_cast<std::uint64_t>(rate)), phase(), left));
}

void ProgressView::finish() {
  if (form_ == Form::kJson) show(std::chrono::duration<double>(Clock::now() - begin_).count());
  if (shown_) write_standard_error("\r\x1b[K");
  shown_ = false;
}

}  // namespace lode::cli
